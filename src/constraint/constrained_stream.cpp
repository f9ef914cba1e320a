// constrain(): what keeps a stream to its grammar. Both halves look at the same matchers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiled_grammar.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "matchers.h"

namespace lmtp::constraint {
namespace {

constexpr std::size_t kForcedMax = 64;  // tokens behind the one that is drawn

class GrammarMasks : public MaskSource {
 public:
  GrammarMasks(std::shared_ptr<Matchers> matchers, bool forces)
      : matchers_(std::move(matchers)), forces_(forces) {
    matchers_->add_stream();
  }
  ~GrammarMasks() override { matchers_->remove_stream(); }
  GrammarMasks(const GrammarMasks&) = delete;
  GrammarMasks& operator=(const GrammarMasks&) = delete;

  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    Result<Matcher> matcher = matchers_->take(generated);
    Result<void> done = matcher ? fill(*matcher, next) : matcher.error();
    if (!done) return Error{done.error().code, "constraint: " + done.error().message};
    matchers_->give_back(std::move(*matcher));
    return done;
  }

  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<GrammarMasks>(matchers_, forces_);
  }

 private:
  Result<void> fill(Matcher& matcher, NextTokens& next) const;

  const std::shared_ptr<Matchers> matchers_;
  const bool forces_;
};

// What is forced is asked for token by token. A tokenizer may spell the rest of a text in another
// way when it begins later, and a stream that is continued from any of its tokens must go the same
// way.
Result<void> GrammarMasks::fill(Matcher& matcher, NextTokens& next) const {
  Result<Matcher::Forced> forced = matcher.forced();
  if (!forced) return forced.error();
  if (forced->token < 0) return matcher.mask(next.words);
  next.words[static_cast<std::size_t>(forced->token) / 32] |= 1U << (forced->token % 32);
  if (!forces_) return {};
  bool is_drawn = true;
  // The last one is drawn, and so is an end token: either may end the stream.
  while (forced->has_more && next.forced.size() < kForcedMax &&
         !matchers_->vocabulary().is_eos(forced->token)) {
    if (Result<void> done = matcher.consume(forced->token); !done) return done;
    if (!is_drawn) next.forced.push_back(forced->token);
    is_drawn = false;
    forced = matcher.forced();
    if (!forced) return forced.error();
  }
  return {};
}

class GrammarStop : public StopChecker {
 public:
  // generated: of which none has ended the stream.
  GrammarStop(std::shared_ptr<Matchers> matchers, std::span<const TokenId> generated,
              std::shared_ptr<StopChecker> stops)
      : matchers_(std::move(matchers)),
        generated_(generated.begin(), generated.end()),
        stops_(std::move(stops)) {}

  bool push(TokenId token, bool may_stop) override {
    const bool text_ends = stops_ != nullptr && stops_->push(token, may_stop);
    generated_.push_back(token);
    return text_ends || (may_stop && grammar_ends());
  }

  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> before,
                                         std::span<const TokenId> generated) const override {
    return std::make_unique<GrammarStop>(
        matchers_, generated, stops_ == nullptr ? nullptr : stops_->restarted(before, generated));
  }

 private:
  // Nothing can follow. Where the grammar fails here, the next mask says so.
  bool grammar_ends() const {
    if (matchers_->goes_beyond(generated_)) return false;
    Result<Matcher> matcher = matchers_->take(generated_);
    if (!matcher) return matchers_->vocabulary().is_eos(generated_.back());
    const bool ends = matcher->is_stopped();
    matchers_->give_back(std::move(*matcher));
    return ends;
  }

  const std::shared_ptr<Matchers> matchers_;
  std::vector<TokenId> generated_;
  const std::shared_ptr<StopChecker> stops_;
};

}  // namespace

Result<ConstrainedStream> constrain(const std::shared_ptr<const CompiledGrammar>& grammar,
                                    std::span<const TokenId> generated,
                                    std::shared_ptr<StopChecker> stops) {
  const auto matchers = std::make_shared<Matchers>(grammar);
  Result<Matcher> matcher = matchers->take(generated);
  if (!matcher) return Error{ErrorCode::kInvalid, "resumed: " + matcher.error().message};
  matchers->give_back(std::move(*matcher));
  // Tokens that are put behind others end no stream, but a stop string may.
  const bool forces = stops == nullptr;
  return ConstrainedStream{std::make_shared<GrammarMasks>(matchers, forces),
                           std::make_shared<GrammarStop>(matchers, generated, std::move(stops))};
}

}  // namespace lmtp::constraint
