#include "vocabulary.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "llguidance_library.h"
#include "lmtp/base/json.h"

namespace lmtp::constraint {
namespace {

constexpr char kSpecialMark = '\xff';  // in front of a special token's name; no text has this byte

std::size_t tokenize(const void* user_data, const std::uint8_t* bytes, std::size_t num_bytes,
                     std::uint32_t* tokens, std::size_t num_max) {
  const auto& vocabulary = *static_cast<const Vocabulary*>(user_data);
  const auto ids = vocabulary.spell({reinterpret_cast<const char*>(bytes), num_bytes});
  for (std::size_t i = 0; i < std::min(ids.size(), num_max); ++i) {
    tokens[i] = static_cast<std::uint32_t>(ids[i]);
  }
  return ids.size();
}

}  // namespace

Vocabulary::Vocabulary(const llg::Api* api, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       int size, std::span<const TokenId> eos_ids)
    : api_(api), tokenizer_(std::move(tokenizer)), size_(size) {
  for (const TokenId id : eos_ids) {
    if (id >= 0 && id < size) eos_ids_.push_back(static_cast<std::uint32_t>(id));
  }
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::make(
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int vocab_size,
    std::span<const TokenId> eos_ids) {
  const Result<const llg::Api*> api = llguidance();
  if (!api) return api.error();
  // Not make_shared: the constructor is private.
  const std::shared_ptr<Vocabulary> made(
      new Vocabulary(*api, std::move(tokenizer), vocab_size, eos_ids));
  if (Result<void> done = made->make_table(); !done) return done.error();
  return std::shared_ptr<const Vocabulary>(made);
}

Vocabulary::~Vocabulary() {
  if (table_ != nullptr) api_->free_tokenizer(table_);
}

Result<void> Vocabulary::make_table() {
  std::vector<std::uint32_t> lengths;
  std::string bytes;
  lengths.reserve(static_cast<std::size_t>(size_));
  for (TokenId id = 0; id < size_; ++id) {
    const std::string_view token = tokenizer_->token_bytes(id);
    const std::size_t num_before = bytes.size();
    if (tokenizer_->is_special(id) && !token.empty()) {
      bytes += kSpecialMark;
    } else if (!token.empty()) {
      token_of_.try_emplace(token, id);
      token_bytes_max_ = std::max(token_bytes_max_, token.size());
    }
    bytes += token;
    lengths.push_back(static_cast<std::uint32_t>(bytes.size() - num_before));
  }
  llg::TokenizerInit init;
  init.vocab_size = static_cast<std::uint32_t>(size_);
  init.token_lens = lengths.data();
  init.token_bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  init.tokenize_assumes_string = true;
  init.tokenize_fn = tokenize;
  init.tokenize_user_data = this;
  if (!eos_ids_.empty()) {
    init.tok_eos = eos_ids_.front();
    init.tok_eos_extra = eos_ids_.data() + 1;
    init.tok_eos_extra_count = static_cast<std::uint32_t>(eos_ids_.size() - 1);
  }
  std::array<char, 256> error{};
  table_ = api_->new_tokenizer_v2(&init, error.data(), error.size());
  if (table_ == nullptr) {
    return Error{ErrorCode::kInternal,
                 std::string("grammar: the tokenizer does not fit llguidance: ") + error.data()};
  }
  return {};
}

bool Vocabulary::is_eos(TokenId token) const {
  return std::ranges::find(eos_ids_, static_cast<std::uint32_t>(token)) != eos_ids_.end();
}

std::string Vocabulary::describe(TokenId token) const {
  std::string text = std::to_string(token) + " (";
  append_json_string(tokenizer_->token_bytes(token), text);
  return text + ")";
}

// The tokens that are left of `ids` behind `front`, if their bytes are exactly `text`: a tokenizer
// may change a text, or put a space in front of it.
std::optional<std::vector<TokenId>> Vocabulary::spelled_by(std::span<const TokenId> ids,
                                                           std::string_view front,
                                                           std::string_view text,
                                                           bool has_special) const {
  std::size_t i = 0;
  for (; i < ids.size() && !front.empty(); ++i) {
    std::string_view token = tokenizer_->token_bytes(ids[i]);
    if (token.starts_with(' ')) token.remove_prefix(1);
    if (!front.starts_with(token)) return std::nullopt;
    front.remove_prefix(token.size());
  }
  const auto spelled = ids.subspan(i);
  for (const TokenId id : spelled) {
    const std::string_view token = tokenizer_->token_bytes(id);
    const bool is_text =
        id < size_ && !token.empty() && (has_special || !tokenizer_->is_special(id));
    if (!is_text || !text.starts_with(token)) return std::nullopt;
    text.remove_prefix(token.size());
  }
  if (!text.empty()) return std::nullopt;
  return std::vector<TokenId>(spelled.begin(), spelled.end());
}

std::vector<TokenId> Vocabulary::spell(std::string_view text) const {
  // As Tokenizer::encode_continuation(), but special tokens that the text contains stay text.
  const bool has_front = tokenizer_->spaces_dropped_max() > 0;
  for (const std::string front : {"@", "^"}) {
    const std::string whole = (has_front ? front : "") + std::string(text);
    const std::array<tokenizer::TextRange, 1> plain{{{0, whole.size()}}};
    const auto ids = tokenizer_->encode_around(whole, plain);
    if (!ids) break;
    if (auto spelled = spelled_by(*ids, has_front ? front : "", text)) return *spelled;
    if (!has_front) break;
  }
  return spell_greedily(text);
}

std::vector<TokenId> Vocabulary::spell_marker(std::string_view text) const {
  const auto ids = tokenizer_->encode_around(text, {});
  auto spelled = ids ? spelled_by(*ids, "", text, true) : std::nullopt;
  return spelled ? std::move(*spelled) : spell(text);
}

std::vector<TokenId> Vocabulary::spell_greedily(std::string_view text) const {
  std::vector<TokenId> ids;
  while (!text.empty()) {
    std::size_t length = std::min(token_bytes_max_, text.size());
    auto found = token_of_.end();
    while (length > 0 && (found = token_of_.find(text.substr(0, length))) == token_of_.end()) {
      --length;
    }
    if (length == 0) break;
    ids.push_back(found->second);
    text.remove_prefix(length);
  }
  return ids;
}

}  // namespace lmtp::constraint
