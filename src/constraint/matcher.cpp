#include "matcher.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace lmtp::constraint {
namespace {

constexpr std::size_t kErrorBytesMax = 500;

// The library's own limits, in its units: a grammar that needs more is refused, or its stream ends.
constexpr llg::ParserLimits kLimits{
    .max_items_in_row = 2'000,        // Earley items at one byte; time goes by their square
    .initial_lexer_fuel = 1'000'000,  // of building the lexer: some 20 ms
    .step_lexer_fuel = 200'000,       // of one mask: some 15 ms
    .step_max_items = 50'000,         // of one mask: some 3 ms
    .max_lexer_states = 100'000,      // of one grammar, for its life: 1 to 2 KB each
    .max_grammar_size = 500'000,      // symbols in its rules
    .precompute_large_lexemes = true,
    .verbose_errors = false,
};

// On one line and without what the library says to its own programmers.
std::string as_sentence(std::string_view text) {
  for (const char* end : {"\n<non-verbose/>", "\n<backtrace>"}) {
    text = text.substr(0, text.find(end));
  }
  const bool is_cut = text.size() > kErrorBytesMax;
  std::string line(text.substr(0, kErrorBytesMax));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::ranges::replace(line, '\n', ' ');
  return line + (is_cut ? " ..." : "");
}

}  // namespace

Result<Matcher> Matcher::make(std::shared_ptr<const Vocabulary> vocabulary, const std::string& kind,
                              const std::string& text) {
  const llg::Api& api = vocabulary->api();
  llg::ConstraintInit init;
  api.constraint_init_set_defaults(&init, vocabulary->table());
  init.log_stderr_level = 0;
  init.log_buffer_level = 0;
  init.limits = kLimits;
  Matcher matcher(std::move(vocabulary), api.new_matcher(&init, kind.c_str(), text.c_str()));
  if (api.matcher_get_error(matcher.handle_.get()) != nullptr) {
    return Error{ErrorCode::kInvalid, matcher.error_text()};
  }
  return matcher;
}

Matcher Matcher::clone() const {
  Matcher copy(vocabulary_, api().clone_matcher(handle_.get()));
  copy.tokens_ = tokens_;
  return copy;
}

std::string Matcher::error_text() const {
  const char* const text = api().matcher_get_error(handle_.get());
  return as_sentence(text == nullptr ? "it failed" : text);
}

Error Matcher::failed() const {
  const std::string text = error_text();
  // Of its mask; bytes that no token begins with, or a rule that leads back to itself alone.
  const bool is_empty = text == "NoExtensionBias";
  return {ErrorCode::kConstraint,
          is_empty ? "none of the model's tokens goes on as the grammar wants it here" : text};
}

bool Matcher::set_back(std::size_t num_kept) {
  if (num_kept == tokens_.size()) return true;
  // The library does not always count an end token.
  const auto dropped = std::span<const TokenId>(tokens_).subspan(num_kept);
  const bool has_eos =
      std::ranges::any_of(dropped, [&](TokenId token) { return vocabulary_->is_eos(token); });
  if (has_eos || api().matcher_rollback(handle_.get(), dropped.size()) != 0) return false;
  tokens_.resize(num_kept);
  return true;
}

Result<void> Matcher::consume(TokenId token) {
  const auto id = static_cast<std::uint32_t>(token);
  const bool is_known = token >= 0 && token < vocabulary_->size() && !is_stopped();
  const std::int32_t num_allowed =
      is_known ? api().matcher_validate_tokens(handle_.get(), &id, 1) : 0;
  if (num_allowed == 0) {
    return Error{ErrorCode::kConstraint,
                 "token " + vocabulary_->describe(token) + ", which is generated token " +
                     std::to_string(tokens_.size()) + ", is not one that the grammar allows there"};
  }
  if (num_allowed < 0 || api().matcher_consume_token(handle_.get(), id) != 0) return failed();
  tokens_.push_back(token);
  return {};
}

Result<void> Matcher::mask(std::span<std::uint32_t> words) {
  if (api().matcher_compute_mask_into(handle_.get(), words.data(), words.size_bytes()) != 0) {
    return failed();
  }
  return {};
}

Result<Matcher::Forced> Matcher::forced() {
  if (is_stopped()) return Forced{};
  std::array<std::uint32_t, 2> ids{};
  const std::int32_t num = api().matcher_compute_ff_tokens(handle_.get(), ids.data(), ids.size());
  if (num < 0) return failed();
  if (num == 0) return Forced{};
  return Forced{static_cast<TokenId>(ids[0]), num > 1};
}

}  // namespace lmtp::constraint
