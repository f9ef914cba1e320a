#include "pipeline.h"

#include <simdjson.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "byte_alphabet.h"
#include "lmtp/base/check.h"
#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {

// One encode(): text in, ids out.
class PipelineTokenizer::Encoder final : public WordSink {
 public:
  Encoder(const PipelineTokenizer& tokenizer, EncodeScratch& scratch, std::vector<TokenId>& out)
      : tokenizer_(tokenizer), parts_(tokenizer.parts_), scratch_(scratch), out_(out) {}

  // REQUIRES: valid UTF-8.
  void encode(std::string_view text, std::span<const TextRange> plain) {
    for_each_piece(tokenizer_.raw_added_, text, {plain, 0},
                   [&](std::string_view piece, bool at_start) {
                     if (piece.empty()) return;
                     const auto offset = static_cast<std::size_t>(piece.data() - text.data());
                     encode_piece(piece, at_start, {plain, offset});
                   });
  }

  void take_word(std::string_view word) override {
    if (word.size() > WordCache::kWordBytesMax) {
      parts_.model->append_tokens(word, out_);
      return;
    }
    WordCache::WordSlot& slot = scratch_.cache.slot_of(word);
    if (WordCache::holds(slot, word)) {
      out_.insert(out_.end(), slot.tokens.begin(), slot.tokens.begin() + slot.num_tokens);
      return;
    }
    const std::size_t begin = out_.size();
    parts_.model->append_tokens(word, out_);
    WordCache::store(slot, word, std::span(out_).subspan(begin));
  }

 private:
  using Plain = AddedTokens::Plain;

  void encode_piece(std::string_view piece, bool at_start, Plain plain) {
    if (plain.ranges.empty() || !tokenizer_.normalized_added_.has_special()) {
      plain = {};
    } else if (!parts_.normalizer.empty()) {
      return encode_by_ranges(piece, at_start, plain);
    }
    const auto [normal, front_moved] = parts_.normalizer.apply(piece, scratch_.normalizer);
    encode_normalized(normal, at_start && !front_moved, plain);
  }

  // In the normalized text the ranges would be elsewhere, so each part is normalized by itself.
  void encode_by_ranges(std::string_view piece, bool at_start, Plain plain) {
    std::size_t done = 0;
    const auto encode_to = [&](std::size_t end, bool is_plain) {
      end = std::clamp(end, plain.offset + done, plain.offset + piece.size()) - plain.offset;
      if (end == done) return;
      const auto [normal, front_moved] =
          parts_.normalizer.apply(piece.substr(done, end - done), scratch_.normalizer);
      const TextRange all{0, normal.size()};
      encode_normalized(normal, at_start && done == 0 && !front_moved,
                        {std::span(&all, is_plain ? 1 : 0), 0});
      done = end;
    };
    for (const TextRange& range : plain.ranges) {
      encode_to(range.begin, false);
      encode_to(range.end, true);
    }
    encode_to(plain.offset + piece.size(), false);
  }

  void encode_normalized(std::string_view text, bool at_start, Plain plain) {
    for_each_piece(tokenizer_.normalized_added_, text, plain,
                   [&](std::string_view piece, bool piece_at_start) {
                     parts_.pre_tokenizer.run(piece, at_start && piece_at_start,
                                              scratch_.pre_tokenizer, *this);
                   });
  }

  // Appends the ids of added tokens, and calls take(piece, is_at_start) for the text between them.
  template <typename Take>
  void for_each_piece(const AddedTokens& added, std::string_view text, Plain plain, Take take) {
    AddedTokens::Cursor cursor;
    std::size_t done = 0;
    while (const auto match = added.next(tokenizer_.classes_, text, plain, cursor)) {
      if (match->begin > done) take(text.substr(done, match->begin - done), done == 0);
      out_.push_back(match->token->id);
      // May be before `done`: Hugging Face goes back there, too.
      done = match->end;
    }
    if (done < text.size()) take(text.substr(done), done == 0);
  }

  const PipelineTokenizer& tokenizer_;
  const TokenizerParts& parts_;
  EncodeScratch& scratch_;
  std::vector<TokenId>& out_;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  LMTP_CHECK(parts_.model != nullptr);
  std::tie(raw_added_, normalized_added_) = parts_.added.make_finders(parts_.normalizer);
  const auto size =
      static_cast<std::size_t>(std::max(parts_.model->id_end(), parts_.added.id_end()));
  special_.resize(size);
  for (std::size_t id = 0; id < size; ++id) {
    special_[id] = parts_.added.is_special(static_cast<TokenId>(id));
  }
  fill_token_bytes();
}

std::string_view PipelineTokenizer::spelling(TokenId id) const {
  const AddedToken* added = parts_.added.token(id);
  return added != nullptr ? std::string_view(added->content) : parts_.model->text(id);
}

void PipelineTokenizer::fill_token_bytes() {
  begins_.reserve(special_.size() + 1);
  for (std::size_t i = 0; i < special_.size(); ++i) {
    begins_.push_back(bytes_.size());
    const auto id = static_cast<TokenId>(i);
    if (!parts_.byte_level) {
      bytes_ += parts_.decoder.bytes_of(spelling(id));
    } else if (const AddedToken* added = parts_.added.token(id)) {
      if (!append_spelt_bytes(added->content, bytes_)) bytes_ += added->content;
    } else {
      bytes_ += parts_.model->text(id);
    }
  }
  begins_.push_back(bytes_.size());
}

std::string_view PipelineTokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto i = static_cast<std::size_t>(id);
  return std::string_view(bytes_).substr(begins_[i], begins_[i + 1] - begins_[i]);
}

bool PipelineTokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

bool PipelineTokenizer::adds_bos() const {
  return parts_.bos_id >= 0 && !parts_.prefix.empty() && parts_.prefix.front() == parts_.bos_id;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  if (parts_.byte_level) {
    std::string bytes;
    for (const TokenId id : ids) bytes.append(token_bytes(id));
    append_valid_utf8(bytes, text);
    return text;
  }
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    const std::string_view token = spelling(id);
    if (!token.empty()) tokens.emplace_back(token);
  }
  return parts_.decoder.decode(std::move(tokens));
}

bool PipelineTokenizer::EncodeScratch::gave_up() const {
  const auto& patterns = pre_tokenizer.patterns;
  return normalizer.pattern.gave_up() ||
         std::any_of(patterns.begin(), patterns.end(),
                     [](const PatternScratch& pattern) { return pattern.gave_up(); });
}

Result<std::vector<TokenId>> PipelineTokenizer::encode(std::string_view text) const {
  return encode_around(text, {});
}

Result<std::vector<TokenId>> PipelineTokenizer::encode_around(
    std::string_view text, std::span<const TextRange> plain) const {
  std::vector<TokenId> out;
  if (text.empty()) return out;
  std::unique_ptr<EncodeScratch> scratch = take_scratch();
  out.reserve(text.size() / 4 + 4);
  Encoder encoder(*this, *scratch, out);
  if (simdjson::validate_utf8(text.data(), text.size())) {
    encoder.encode(text, plain);
  } else {
    std::string valid;
    append_valid_utf8(text, valid);
    encoder.encode(valid, {});
  }
  if (scratch->gave_up()) {
    return Error{
        ErrorCode::kInvalid,
        "the tokenizer's regular expression takes too long on this text: break its long runs of "
        "the same kind of characters, or leave the tokenizer out and send token ids"};
  }
  if (text.size() <= kTextBytesMax) give_back(std::move(scratch));
  return out;
}

std::unique_ptr<PipelineTokenizer::EncodeScratch> PipelineTokenizer::take_scratch() const {
  {
    const std::lock_guard lock(scratches_mutex_);
    if (!scratches_.empty()) {
      std::unique_ptr<EncodeScratch> scratch = std::move(scratches_.back());
      scratches_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<EncodeScratch>();
}

void PipelineTokenizer::give_back(std::unique_ptr<EncodeScratch> scratch) const {
  const std::lock_guard lock(scratches_mutex_);
  if (scratches_.size() < kScratchesMax) scratches_.push_back(std::move(scratch));
}

}  // namespace lmtp::tokenizer
