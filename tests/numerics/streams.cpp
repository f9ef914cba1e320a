#include "streams.h"

#include <algorithm>
#include <memory>
#include <random>

#include "lmtp/base/check.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::numerics {
namespace {

// Random numbers that depend only on the seed, with any standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  int between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(int count) { return between(1, count) == 1; }
  float of(std::initializer_list<float> values) {
    return values.begin()[between(0, static_cast<int>(values.size()) - 1)];
  }
  std::vector<TokenId> tokens(int count, int vocab_size) {
    std::vector<TokenId> drawn(static_cast<std::size_t>(count));
    for (TokenId& token : drawn) token = between(0, vocab_size - 1);
    return drawn;
  }
  std::uint64_t number() { return random_(); }

 private:
  std::mt19937_64 random_;
};

// As LMQL sends it: a few tokens made likely or unlikely, or a mask over half of the vocabulary.
std::shared_ptr<LogitBias> draw_bias(Draw& draw, int vocab_size) {
  auto bias = std::make_shared<LogitBias>();
  const bool is_mask = draw.one_in(2);
  for (TokenId id = 0; id < vocab_size; ++id) {
    if (!draw.one_in(is_mask ? 2 : 12)) continue;
    bias->ids.push_back(id);
    bias->values.push_back(is_mask ? -100.0F : draw.of({-100.0F, -1.5F, 2.0F}));
  }
  return bias;
}

std::shared_ptr<TokenMask> draw_mask(Draw& draw, int vocab_size) {
  auto mask = std::make_shared<TokenMask>();
  mask->num_bytes = (vocab_size + 7) / 8;
  for (int id = 0; id < vocab_size; id += 64) mask->words.push_back(draw.number());
  return mask;
}

SamplingParams draw_params(Draw& draw, int vocab_size) {
  SamplingParams params;
  params.seed = draw.number();
  params.has_seed = true;
  params.temperature = draw.of({0.0F, 0.0F, 0.3F, 0.8F, 1.0F, 1.7F});
  params.top_logprobs = draw.between(0, 8);
  if (draw.one_in(3)) params.top_p = draw.of({0.5F, 0.9F});
  if (draw.one_in(3)) params.top_k = draw.between(2, 20);
  if (draw.one_in(3)) params.min_p = draw.of({0.02F, 0.2F});
  if (draw.one_in(3)) params.typical_p = draw.of({0.5F, 0.95F});
  if (draw.one_in(3)) params.repetition_penalty = draw.of({0.8F, 1.3F});
  if (draw.one_in(4)) params.presence_penalty = draw.of({-0.5F, 0.7F});
  if (draw.one_in(4)) params.frequency_penalty = draw.of({-0.2F, 0.4F});
  if (draw.one_in(2)) params.logit_bias = draw_bias(draw, vocab_size);
  if (draw.one_in(4)) params.mask = draw_mask(draw, vocab_size);
  params.raw_logprobs = draw.one_in(3);
  if (draw.one_in(4)) {  // to its last token, for how long streams are is settled
    params.min_tokens = kMaxCount;
    params.stop_token_ids = draw.tokens(8, vocab_size);
  }
  return params;
}

// The longest chunk of a grid.
constexpr int kChunkMax = 512;
constexpr int kShortPromptMax = 5 * kBlockSize;

int draw_prompt_length(Draw& draw, int longest) {
  switch (draw.between(0, 4)) {
    case 0:
      return draw.between(1, 15);
    case 1:
    case 2:
      return draw.between(16, std::min(60, longest));
    case 3:
      return draw.between(std::min(61, longest), longest);
    default:
      return draw.between(1, kShortPromptMax / kBlockSize) * kBlockSize;  // ends with a block
  }
}

struct Lengths {
  int prompt = 0;
  int num_tokens = 0;  // generated or scored
};

// Longer than any chunk, if the context allows.
int draw_long(Draw& draw, int num_free) {
  return std::min(draw.between(8, 28) + kChunkMax, num_free);
}

Lengths draw_generate(Draw& draw, int index, bool is_long, int context_length) {
  // The first one is long enough that a hog certainly preempts it.
  const int num_tokens = draw.between(index == 0 ? 44 : kTokensMin, kTokensMax);
  if (is_long) return {draw_long(draw, context_length - kTokensMax), num_tokens};
  if (index == 0) return {draw.between(30, 45), num_tokens};
  return {draw_prompt_length(draw, std::min(kPromptMax, context_length - 64)), num_tokens};
}

Lengths draw_score(Draw& draw, bool is_long, int context_length) {
  if (is_long) {
    const int prompt = draw.between(17, 40);
    return {prompt, draw_long(draw, context_length - prompt)};
  }
  return {draw_prompt_length(draw, kShortPromptMax), draw.between(kTokensMin, kTokensMax)};
}

Request generate(std::vector<TokenId> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.params.max_tokens = max_tokens;
  return request;
}

// The first token of the prompt of stream `index` of `count`.
TokenId first_token(std::uint64_t seed, int index, int vocab_size) {
  return static_cast<TokenId>((seed + static_cast<std::uint64_t>(index)) %
                              static_cast<std::uint64_t>(vocab_size));
}

}  // namespace

std::vector<Request> draw_batch(std::uint64_t seed, int count, bool lone_score,
                                const StreamLimits& limits) {
  LMTP_CHECK(2 * count <= limits.vocab_size && limits.context_length >= kContextMin, count,
             limits.vocab_size, limits.context_length);
  const int num_scores = count == 1 ? (lone_score ? 1 : 0) : std::max(1, count / 3);
  Draw draw(seed);
  std::vector<Request> batch;
  for (int index = 0; index < count; ++index) {
    const bool scores = index >= count - num_scores;
    const bool is_long = index == (num_scores == 0 ? 0 : count - num_scores);
    const Lengths lengths = scores ? draw_score(draw, is_long, limits.context_length)
                                   : draw_generate(draw, index, is_long, limits.context_length);
    Request request = generate(draw.tokens(lengths.prompt, limits.vocab_size), lengths.num_tokens);
    request.prompt[0] = first_token(seed, index, limits.vocab_size);
    request.params = draw_params(draw, limits.vocab_size);
    request.params.max_tokens = lengths.num_tokens;
    if (scores) {
      request.kind = RequestKind::kScore;
      request.scored = draw.tokens(lengths.num_tokens, limits.vocab_size);
      if (!is_long && draw.one_in(4)) {
        request.scored[0] = request.prompt[0];
        request.prompt.clear();
      }
    }
    batch.push_back(std::move(request));
  }
  return batch;
}

int num_generated(const std::vector<Request>& batch) {
  return static_cast<int>(std::ranges::count(batch, RequestKind::kGenerate, &Request::kind));
}

int scored_tokens_max(int count) { return kChunkMax + count / 3 * (kShortPromptMax + kTokensMax); }

std::vector<Request> draw_forerunners(std::uint64_t seed, const std::vector<Request>& batch,
                                      const StreamLimits& limits) {
  constexpr int kOwnTokens = 3;
  constexpr int kTokensOfLongOnes = 24;
  Draw draw(seed);
  std::vector<Request> forerunners;
  for (const Request& request : batch) {
    const auto length = static_cast<int>(request.prompt.size());
    if (length < 2) continue;
    int shared = draw.between(1, length > kPromptMax ? kSharedOfLongMax : length - 1);
    if (shared % kBlockSize == 0) --shared;
    std::vector<TokenId> prompt(request.prompt.begin(), request.prompt.begin() + shared);
    // Any token except the batch's own at this position.
    prompt.push_back((request.prompt[static_cast<std::size_t>(shared)] + 1) % limits.vocab_size);
    for (const TokenId token : draw.tokens(kOwnTokens - 1, limits.vocab_size)) {
      prompt.push_back(token);
    }
    forerunners.push_back(
        generate(std::move(prompt), draw.one_in(3) ? kTokensOfLongOnes : draw.between(1, 3)));
    forerunners.back().adapter = request.adapter;
  }
  return forerunners;
}

std::vector<Request> draw_hogs(std::uint64_t seed, int batch_size, const StreamLimits& limits) {
  constexpr int kTokens = 90;
  Draw draw(seed + 1);
  std::vector<Request> hogs;
  for (int index = 0; index < batch_size; ++index) {
    const int length = index == 0 ? limits.context_length - kTokens : draw.between(8, 40);
    hogs.push_back(generate(draw.tokens(length, limits.vocab_size), kTokens));
    hogs.back().prompt[0] = first_token(seed, batch_size + index, limits.vocab_size);
  }
  return hogs;
}

std::vector<int> draw_gaps(std::uint64_t seed, std::size_t count) {
  Draw draw(seed);
  std::vector<int> gaps(count);
  const int together = std::max(3, static_cast<int>(count) / 4);
  int steps_left = kArrivalSteps;
  for (int& gap : gaps) {
    gap = draw.one_in(together) ? std::min(draw.between(1, 3), steps_left) : 0;
    steps_left -= gap;
  }
  return gaps;
}

int blocks_of_prompt(const Request& request) {
  return (static_cast<int>(request.prompt.size()) + kBlockSize - 1) / kBlockSize;
}

int blocks_at_end(const Request& request) {
  const auto length = static_cast<int>(request.prompt.size()) + tokens_to_come(request);
  return (length + kBlockSize - 1) / kBlockSize;
}

int tokens_to_come(const Request& request) {
  return request.kind == RequestKind::kScore ? static_cast<int>(request.scored.size())
                                             : request.params.max_tokens;
}

}  // namespace lmtp::numerics
