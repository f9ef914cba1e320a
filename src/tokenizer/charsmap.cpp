#include "charsmap.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <simdjson.h>

#include <algorithm>
#include <cstddef>

#include "lmtp/base/check.h"
#include "utf8.h"

namespace lmtp::tokenizer {
namespace {

// Larger grapheme clusters are looked up by characters alone.
constexpr std::size_t kGraphemeBytesMax = 5;
// Unicode's longest compatibility decomposition takes 33.
constexpr std::size_t kReplacementBytesMax = 256;

// A unit of the trie; Darts-clone's layout.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label(std::uint32_t unit) { return unit & (0x80000000U | 0xFFU); }
std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }
std::uint32_t value(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

bool is_ascii(char letter) { return static_cast<unsigned char>(letter) < 0x80; }

// An extended grapheme cluster. \X alone is not enough: with flags and pictographs it ends some
// before a mark, and joins some that have a mark but no ZWJ between them.
constexpr std::string_view kGrapheme =
    R"(\p{PCM}*+(?:\p{RI}{1,2}+)"
    R"(|\p{ExtPict}(?:[\p{Grapheme_Extend}\p{EMod}]*+\x{200D}\p{ExtPict})*+))"
    R"([\p{Grapheme_Extend}\p{EMod}\p{Mc}\x{200D}]*+|\X)";

std::shared_ptr<const pcre2_code> compile_grapheme() {
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kGrapheme.data()), kGrapheme.size(),
                                   PCRE2_UTF | PCRE2_ANCHORED, &error, &where, nullptr);
  LMTP_CHECK(code != nullptr);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  return {code, [](pcre2_code* old) { pcre2_code_free(old); }};
}

// Bytes of the grapheme cluster that `text` begins with. REQUIRES: !text.empty().
std::size_t grapheme_size(const pcre2_code* grapheme, std::string_view text,
                          pcre2_match_data* found) {
  // Of two characters of ASCII nothing is one but \r\n.
  if (is_ascii(text[0]) && text[0] != '\r' && (text.size() == 1 || is_ascii(text[1]))) return 1;
  const int rc = pcre2_match(grapheme, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                             PCRE2_NO_UTF_CHECK, found, nullptr);
  LMTP_CHECK(rc > 0);  // there is always one
  return pcre2_get_ovector_pointer(found)[1];
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes) {
  constexpr std::size_t kUnit = sizeof(std::uint32_t);
  if (bytes.size() < kUnit) return Error{ErrorCode::kInvalid, "the charsmap is cut off"};
  const std::size_t num_units = little_endian(bytes) / kUnit;
  bytes.remove_prefix(kUnit);
  if (num_units == 0) return Error{ErrorCode::kInvalid, "the charsmap has an empty trie"};
  if (num_units > bytes.size() / kUnit)
    return Error{ErrorCode::kInvalid, "the charsmap is cut off"};
  Charsmap map;
  map.trie_.reserve(num_units);
  for (std::size_t i = 0; i < num_units; ++i) {
    map.trie_.push_back(little_endian(bytes.substr(i * kUnit)));
  }
  map.replacements_ = bytes.substr(num_units * kUnit);
  const std::string_view texts = map.replacements_;
  if (!simdjson::validate_utf8(texts.data(), texts.size())) {
    return Error{ErrorCode::kInvalid, "the charsmap's replacements are not UTF-8"};
  }
  for (std::size_t begin = 0; begin < texts.size();) {
    const std::size_t end = std::min(texts.find('\0', begin), texts.size());
    if (end - begin > kReplacementBytesMax) {
      return Error{ErrorCode::kInvalid, "a replacement of the charsmap has " +
                                            std::to_string(end - begin) + " bytes; allowed are " +
                                            std::to_string(kReplacementBytesMax)};
    }
    begin = end + 1;
  }
  map.grapheme_ = compile_grapheme();
  return map;
}

std::optional<std::string_view> Charsmap::replacement_of(std::string_view part) const {
  std::size_t node = offset(trie_[0]);
  for (const char letter : part) {
    const auto byte = static_cast<unsigned char>(letter);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || label(trie_[node]) != byte) break;
    const std::uint32_t unit = trie_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= trie_.size()) break;
    const std::size_t begin = value(trie_[node]);
    const std::string_view texts = replacements_;
    const bool inside_char =
        begin < texts.size() && (static_cast<unsigned char>(texts[begin]) & 0xC0) == 0x80;
    if (begin > texts.size() || inside_char) break;
    return texts.substr(begin, texts.find('\0', begin) - begin);
  }
  return std::nullopt;
}

void Charsmap::apply(std::string_view text, std::string& out) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  LMTP_CHECK(found != nullptr);
  while (!text.empty()) {
    std::string_view grapheme = text.substr(0, grapheme_size(grapheme_.get(), text, found.get()));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() <= kGraphemeBytesMax) {
      // Where only its front is a key, the rest goes: as in the library.
      if (const auto replacement = replacement_of(grapheme)) {
        out.append(*replacement);
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view part = grapheme.substr(0, code_point_at(grapheme, 0).num_bytes);
      out.append(replacement_of(part).value_or(part));
      grapheme.remove_prefix(part.size());
    }
  }
}

}  // namespace lmtp::tokenizer
