#include "lmql_programs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::tools {
namespace {

class Chunks final : public Program {
 public:
  Chunks(std::vector<TokenId> prompt, int output_tokens)
      : text_(std::move(prompt)), tokens_left_(output_tokens) {}

  std::vector<Request> next(const std::vector<Answer>& answers) override {
    for (const Answer& answer : answers) {
      text_.insert(text_.end(), answer.tokens.begin(), answer.tokens.end());
      tokens_left_ -= static_cast<int>(answer.tokens.size());
      if (answer.finish_reason == FinishReason::kStop || answer.tokens.empty()) return {};
    }
    if (tokens_left_ <= 0) return {};
    Request request;
    request.prompt = text_;
    request.max_tokens = std::min(kLmqlChunkTokens, tokens_left_);
    request.masked = true;
    return {std::move(request)};
  }

 private:
  std::vector<TokenId> text_;
  int tokens_left_;
};

class Beams final : public Program {
 public:
  Beams(std::vector<TokenId> prompt, int num_steps, int num_beams)
      : beams_{{std::move(prompt), 0.0F}}, steps_left_(num_steps), num_beams_(num_beams) {}

  std::vector<Request> next(const std::vector<Answer>& answers) override {
    if (!answers.empty()) advance(answers);
    if (steps_left_ == 0 || beams_.empty()) return {};
    --steps_left_;
    std::vector<Request> requests;
    for (const Beam& beam : beams_) {
      requests.push_back({beam.text, {}, 1, num_beams_, false});
    }
    return requests;
  }

 private:
  struct Beam {
    std::vector<TokenId> text;
    float logprob;  // of what was generated
  };
  struct Candidate {
    std::size_t beam;
    TokenId token;
    float logprob;
  };

  void advance(const std::vector<Answer>& answers) {
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].finish_reason == FinishReason::kStop) continue;  // the beam has ended
      for (const auto& top : answers[i].top_logprobs) {
        candidates.push_back({i, top.token, beams_[i].logprob + top.logprob});
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });
    candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(num_beams_)));
    std::vector<Beam> kept;
    for (const Candidate& candidate : candidates) {
      kept.push_back({beams_[candidate.beam].text, candidate.logprob});
      kept.back().text.push_back(candidate.token);
    }
    beams_ = std::move(kept);
  }

  std::vector<Beam> beams_;
  int steps_left_;
  const int num_beams_;
};

class Scores final : public Program {
 public:
  Scores(std::vector<TokenId> prompt, std::vector<std::vector<TokenId>> texts)
      : prompt_(std::move(prompt)), texts_(std::move(texts)) {}

  std::vector<Request> next(const std::vector<Answer>& answers) override {
    if (!answers.empty()) return {};
    std::vector<Request> requests;
    for (std::vector<TokenId>& text : texts_) {
      requests.push_back({prompt_, std::move(text), 0, 0, false});
    }
    return requests;
  }

 private:
  const std::vector<TokenId> prompt_;
  std::vector<std::vector<TokenId>> texts_;
};

}  // namespace

std::unique_ptr<Program> chunk_program(std::vector<TokenId> prompt, int output_tokens) {
  LMTP_CHECK(output_tokens >= 1, output_tokens);
  return std::make_unique<Chunks>(std::move(prompt), output_tokens);
}

std::unique_ptr<Program> beam_program(std::vector<TokenId> prompt, int num_steps, int num_beams) {
  LMTP_CHECK(num_steps >= 1 && num_beams >= 1 && num_beams <= kLmqlBeamsMax, num_steps, num_beams);
  return std::make_unique<Beams>(std::move(prompt), num_steps, num_beams);
}

std::unique_ptr<Program> score_program(std::vector<TokenId> prompt,
                                       std::vector<std::vector<TokenId>> texts) {
  return std::make_unique<Scores>(std::move(prompt), std::move(texts));
}

}  // namespace lmtp::tools
