// constrain(): what keeps a stream to its grammar. Both halves look at the same matchers.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiled_grammar.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "matchers.h"
#include "trigger_walks.h"

namespace lmtp::constraint {
namespace {

constexpr std::size_t kForcedMax = 64;  // tokens behind the one that is drawn

using Walks = std::shared_ptr<TriggerWalks>;  // null: the grammar is of all tokens

Walks copied(const Walks& walks) {
  return walks == nullptr ? nullptr : std::make_shared<TriggerWalks>(*walks);
}

class GrammarMasks : public MaskSource {
 public:
  // matchers: null: anything is allowed, but for what triggers want.
  GrammarMasks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<Matchers> matchers,
               Walks walks, std::vector<TokenId> end_ids, bool forces)
      : vocabulary_(std::move(vocabulary)),
        matchers_(std::move(matchers)),
        walks_(std::move(walks)),
        end_ids_(std::move(end_ids)),
        forces_(forces) {
    if (matchers_ != nullptr) matchers_->add_stream();
  }
  ~GrammarMasks() override {
    if (matchers_ != nullptr) matchers_->remove_stream();
  }
  GrammarMasks(const GrammarMasks&) = delete;
  GrammarMasks& operator=(const GrammarMasks&) = delete;

  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    Result<void> done = walks_ == nullptr ? bind(generated, false, next)
                                          : compute_at(walks_->at(generated), generated, next);
    if (!done) return Error{done.error().code, "constraint: " + done.error().message};
    return done;
  }

  std::size_t num_free(std::span<const TokenId> generated,
                       std::span<const TokenId> drafts) const override {
    return walks_ == nullptr ? 0 : walks_->num_free(generated, drafts);
  }

  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<GrammarMasks>(vocabulary_, matchers_, copied(walks_), end_ids_,
                                          forces_);
  }

 private:
  static void allow(TokenId token, NextTokens& next) {
    next.words[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
  }
  Result<void> bind(std::span<const TokenId> tokens, bool has_others, NextTokens& next) const;
  Result<void> compute_at(const Place& place, std::span<const TokenId> generated,
                          NextTokens& next) const;
  Result<void> fill(Matcher& matcher, NextTokens& next) const;
  void allow_ends(NextTokens& next) const;
  void withhold_ends(NextTokens& next) const;

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::shared_ptr<Matchers> matchers_;
  const Walks walks_;
  const std::vector<TokenId> end_ids_;  // that end the stream beside those of the vocabulary
  const bool forces_;
};

// What the grammar allows after these tokens of its text. has_others: something else may follow as
// well.
Result<void> GrammarMasks::bind(std::span<const TokenId> tokens, bool has_others,
                                NextTokens& next) const {
  Result<Matcher> matcher = matchers_->take(tokens);
  Result<void> done = !matcher     ? matcher.error()
                      : has_others ? matcher->mask(next.words)
                                   : fill(*matcher, next);
  if (!done) return done;
  matchers_->give_back(std::move(*matcher));
  allow_ends(next);
  return done;
}

// The grammar knows the model's end tokens alone.
void GrammarMasks::allow_ends(NextTokens& next) const {
  const auto is_allowed = [&](std::uint32_t id) {
    return (next.words[id / 32] >> (id % 32) & 1U) != 0;
  };
  if (std::ranges::none_of(vocabulary_->eos_ids(), is_allowed)) return;
  const tokenizer::Tokenizer& tokenizer = *vocabulary_->tokenizer();
  for (const TokenId id : end_ids_) {
    if (id < vocabulary_->size() && tokenizer.is_special(id)) allow(id, next);
  }
}

Result<void> GrammarMasks::compute_at(const Place& place, std::span<const TokenId> generated,
                                      NextTokens& next) const {
  std::vector<TokenId> room;
  if (place.only != kNoToken) {
    allow(place.only, next);
    return {};
  }
  const bool has_others = place.also != kNoToken;
  if (place.is_free || matchers_ == nullptr) {
    std::ranges::fill(next.words, ~std::uint32_t{0});
  } else if (const auto done = bind(place.text(generated, room), has_others, next);
             !done && !has_others) {
    return done;
  }
  if (has_others) allow(place.also, next);
  if (walks_->withholds_ends(place)) withhold_ends(next);
  return {};
}

// Unless nothing else may follow.
void GrammarMasks::withhold_ends(NextTokens& next) const {
  std::vector<std::uint32_t> others(next.words.begin(), next.words.end());
  const auto withhold = [&](std::uint32_t id) {
    if (id / 32 < others.size()) others[id / 32] &= ~(1U << (id % 32));
  };
  std::ranges::for_each(vocabulary_->eos_ids(), withhold);
  for (const TokenId id : end_ids_) withhold(static_cast<std::uint32_t>(id));
  if (std::ranges::any_of(others, [](std::uint32_t word) { return word != 0; })) {
    std::ranges::copy(others, next.words.begin());
  }
}

// What is forced is asked for token by token. A tokenizer may spell the rest of a text in another
// way when it begins later, and a stream that is continued from any of its tokens must go the same
// way.
Result<void> GrammarMasks::fill(Matcher& matcher, NextTokens& next) const {
  Result<Matcher::Forced> forced = matcher.forced();
  if (!forced) return forced.error();
  if (forced->token < 0) return matcher.mask(next.words);
  allow(forced->token, next);
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
  // generated: of which none has ended the stream. matchers, walks: as GrammarMasks has them.
  GrammarStop(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<Matchers> matchers,
              Walks walks, std::span<const TokenId> generated, std::shared_ptr<StopChecker> stops)
      : vocabulary_(std::move(vocabulary)),
        matchers_(std::move(matchers)),
        walks_(std::move(walks)),
        generated_(generated.begin(), generated.end()),
        stops_(std::move(stops)) {}

  bool push(TokenId token, bool may_stop) override {
    const Place place = walks_ == nullptr ? Place() : walks_->at(generated_);
    const int num_min = walks_ == nullptr ? 0 : walks_->triggers().min_tokens;
    const bool in_call = walks_ != nullptr && walks_->waits_for_openings() && !place.is_free;
    const bool may_text_stop =
        may_stop && place.counts && !in_call && place.num_counted + 1 >= num_min;
    const bool text_ends = stops_ != nullptr && stops_->push(token, may_text_stop);
    generated_.push_back(token);
    return text_ends || (may_stop && grammar_ends());
  }

  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> before,
                                         std::span<const TokenId> generated) const override {
    return std::make_unique<GrammarStop>(
        vocabulary_, matchers_, copied(walks_), generated,
        stops_ == nullptr ? nullptr : stops_->restarted(before, generated));
  }

 private:
  // Nothing can follow. Where the grammar fails here, the next mask says so.
  bool grammar_ends() const {
    if (walks_ == nullptr) return ends_after(generated_);
    const Place place = walks_->at(generated_);
    std::vector<TokenId> room;
    return !place.is_free && matchers_ != nullptr && place.also == kNoToken &&
           ends_after(place.text(generated_, room));
  }
  bool ends_after(std::span<const TokenId> tokens) const {
    if (matchers_->goes_beyond(tokens)) return false;
    Result<Matcher> matcher = matchers_->take(tokens);
    if (!matcher) return !tokens.empty() && vocabulary_->is_eos(tokens.back());
    const bool ends = matcher->is_stopped();
    matchers_->give_back(std::move(*matcher));
    return ends;
  }

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::shared_ptr<Matchers> matchers_;
  const Walks walks_;
  std::vector<TokenId> generated_;
  const std::shared_ptr<StopChecker> stops_;
};

}  // namespace

Result<ConstrainedStream> constrain(const std::shared_ptr<const CompiledGrammar>& grammar,
                                    std::span<const TokenId> generated,
                                    std::shared_ptr<StopChecker> stops,
                                    const std::optional<GrammarTriggers>& triggers,
                                    std::vector<TokenId> end_ids) {
  const auto vocabulary = grammar->shared_vocabulary();
  const auto matchers = grammar->allows_anything() ? nullptr : std::make_shared<Matchers>(grammar);
  if (matchers == nullptr && !triggers) {
    return Error{ErrorCode::kInvalid, "grammar: allows anything, and has no triggers"};
  }
  const Walks walks =
      triggers ? std::make_shared<TriggerWalks>(*triggers, vocabulary, matchers) : nullptr;
  const Place place = walks != nullptr ? walks->at(generated) : Place{};
  const bool is_bound = walks == nullptr || !(place.is_free || place.also != kNoToken);
  if (is_bound && matchers != nullptr) {
    std::vector<TokenId> room;
    Result<Matcher> matcher = matchers->take(place.text(generated, room));
    if (!matcher) return Error{ErrorCode::kInvalid, "resumed: " + matcher.error().message};
    matchers->give_back(std::move(*matcher));
  }
  // Tokens that are put behind others end no stream, but a stop string may.
  const bool forces = stops == nullptr;
  return ConstrainedStream{
      std::make_shared<GrammarMasks>(vocabulary, matchers, walks, std::move(end_ids), forces),
      std::make_shared<GrammarStop>(vocabulary, matchers, copied(walks), generated,
                                    std::move(stops))};
}

}  // namespace lmtp::constraint
