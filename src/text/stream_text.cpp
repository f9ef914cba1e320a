#include "lmtp/text/stream_text.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

namespace lmtp::text {
namespace {

bool is_marked(const TokenDecoder::Options& options, TokenId token) {
  return options.marked != nullptr &&
         std::ranges::find(*options.marked, token) != options.marked->end();
}

bool is_left_out(const TokenDecoder::Options& options, TokenId token) {
  return options.skip_special_tokens && options.tokenizer->is_special(token) &&
         !is_marked(options, token);
}

// What stop strings are looked for in: bytes that none has where the token is marked.
std::string searched(const TokenDecoder& decoder, TokenId token, std::string text) {
  if (decoder.is_marked(token)) text.assign(text.size(), kSpecialBegin);
  return text;
}

}  // namespace

std::string mark_special(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                         std::vector<TokenId>* special) {
  const auto ids = tokenizer.encode_around(text, {});
  std::string marked;
  for (const TokenId id : ids ? *ids : std::vector<TokenId>()) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (!tokenizer.is_special(id) || bytes.empty()) continue;
    const std::size_t at = text.find(bytes);
    if (at == std::string_view::npos) continue;
    marked.append(text.substr(0, at)).append(1, kSpecialBegin).append(bytes).append(1, kSpecialEnd);
    text.remove_prefix(at + bytes.size());
    if (special != nullptr) special->push_back(id);
  }
  return marked.append(text);
}

std::string TokenDecoder::push(TokenId token) {
  const tokenizer::Tokenizer& tokenizer = *options_.tokenizer;
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (bytes.empty() || is_left_out(options_, token)) return {};
  const bool is_first = std::exchange(options_.at_start, false);
  if (is_marked(token)) {
    std::string text = decoder_.finish();
    return text.append(1, kSpecialBegin).append(bytes).append(1, kSpecialEnd);
  }
  return decoder_.push(is_first ? tokenizer.first_token_bytes(token) : bytes);
}

std::string_view TokenDecoder::special(TokenId token) const {
  const bool is_special = is_left_out(options_, token) || is_marked(token);
  return is_special ? options_.tokenizer->token_bytes(token) : std::string_view();
}

bool TokenDecoder::is_marked(TokenId token) const { return text::is_marked(options_, token); }

bool is_without_text(const TokenDecoder::Options& options, std::span<const TokenId> tokens) {
  const tokenizer::Tokenizer& tokenizer = *options.tokenizer;
  return std::ranges::all_of(tokens, [&](TokenId token) {
    return tokenizer.token_bytes(token).empty() || is_left_out(options, token);
  });
}

TextStopChecker::TextStopChecker(TokenDecoder::Options options,
                                 std::shared_ptr<const StopStrings> stops,
                                 std::span<const TokenId> resumed)
    : options_(std::move(options)), stops_(std::move(stops)), decoder_(options_), matcher_(stops_) {
  for (const TokenId token : resumed) {
    matcher_.push(searched(decoder_, token, decoder_.push(token)), false);
  }
}

bool TextStopChecker::push(TokenId token, bool may_stop) {
  if (may_stop && stops_->has(decoder_.special(token))) return true;
  return matcher_.push(searched(decoder_, token, decoder_.push(token)), may_stop).has_value();
}

std::unique_ptr<StopChecker> TextStopChecker::restarted(std::span<const TokenId> before,
                                                        std::span<const TokenId> generated) const {
  TokenDecoder::Options options = options_;
  options.at_start = is_without_text(options, before);
  return std::make_unique<TextStopChecker>(std::move(options), stops_, generated);
}

StreamText::StreamText(TokenDecoder::Options options, std::shared_ptr<const StopStrings> stops,
                       bool include_stop, std::span<const TokenId> resumed)
    : decoder_(std::move(options)), include_stop_(include_stop) {
  if (stops != nullptr) matcher_.emplace(std::move(stops));
  for (const TokenId token : resumed) cut(token, decoder_.push(token), FinishReason::kNone);
}

StreamText::Piece StreamText::push(TokenId token, FinishReason reason) {
  const std::string_view special = decoder_.special(token);
  std::string decoded = decoder_.push(token);
  if (reason == FinishReason::kStop && matcher_ && matcher_->stops().has(special)) {
    std::string text = std::exchange(held_, {}) + decoder_.finish();
    if (include_stop_) text += decoder_.is_marked(token) ? std::string_view(decoded) : special;
    return {std::move(text), std::string(special)};
  }
  Piece piece = cut(token, std::move(decoded), reason);
  if (reason == FinishReason::kNone || piece.stop_text) return piece;
  piece.text += std::exchange(held_, {}) + decoder_.finish();
  return piece;
}

StreamText::Piece StreamText::cut(TokenId token, std::string decoded, FinishReason reason) {
  if (!matcher_) return {std::move(decoded), {}};
  const auto match =
      matcher_->push(searched(decoder_, token, decoded), reason == FinishReason::kStop);
  const std::size_t num_held_before = held_.size();
  held_ += decoded;
  if (match) {
    const std::string& stop = matcher_->stops()[match->which];
    held_.resize(num_held_before + match->end - (include_stop_ ? 0 : stop.size()));
    return {std::exchange(held_, {}), stop};
  }
  const std::size_t num_certain = held_.size() - matcher_->num_held();
  Piece piece{held_.substr(0, num_certain), {}};
  held_.erase(0, num_certain);
  return piece;
}

}  // namespace lmtp::text
