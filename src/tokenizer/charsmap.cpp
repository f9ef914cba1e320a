#include "charsmap.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "lmtp/base/check.h"
#include "lmtp/base/little_endian.h"
#include "lmtp/base/utf8.h"

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

bool is_ascii(char letter) { return static_cast<unsigned char>(letter) < 0x80; }

// An extended grapheme cluster. \X alone is not enough: with flags and pictographs PCRE2 ends some
// before a mark, and joins some that have a mark but no ZWJ between them; its older releases know
// no Indic conjuncts (Unicode 16, annex 29, rule 9c).
std::string grapheme_pattern() {
  const std::string mark = R"([\p{Grapheme_Extend}\p{EMod}])";
  const std::string flag = R"(\p{RI}{1,2}+)";
  const std::string pictograph = R"(\p{ExtPict}(?:)" + mark + R"(*+\x{200D}\p{ExtPict})*+)";
  const std::string consonant =
      R"([\x{915}-\x{939}\x{958}-\x{95F}\x{978}-\x{97F}\x{995}-\x{9A8}\x{9AA}-\x{9B0}\x{9B2})"
      R"(\x{9B6}-\x{9B9}\x{9DC}\x{9DD}\x{9DF}\x{9F0}\x{9F1}\x{A95}-\x{AA8}\x{AAA}-\x{AB0}\x{AB2})"
      R"(\x{AB3}\x{AB5}-\x{AB9}\x{AF9}\x{B15}-\x{B28}\x{B2A}-\x{B30}\x{B32}\x{B33}\x{B35}-\x{B39})"
      R"(\x{B5C}\x{B5D}\x{B5F}\x{B71}\x{C15}-\x{C28}\x{C2A}-\x{C39}\x{C58}-\x{C5A})"
      R"(\x{D15}-\x{D3A}])";
  const std::string linker = R"([\x{94D}\x{9CD}\x{ACD}\x{B4D}\x{C4D}\x{D4D}])";
  const std::string between = R"((?:(?!\x{200C}))" + mark + R"(|\x{200D}))";
  const std::string conjunct = consonant + "(?:(?:(?!" + linker + ")" + between + ")*+" + linker +
                               between + "*+" + consonant + ")++";
  return R"(\p{PCM}*+(?:)" + flag + "|" + pictograph + "|" + conjunct +
         R"()[\p{Grapheme_Extend}\p{EMod}\p{Mc}\x{200D}]*+|\X)";
}

std::shared_ptr<const pcre2_code> compile_grapheme() {
  const std::string pattern = grapheme_pattern();
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_ANCHORED, &error, &where, nullptr);
  LMTP_CHECK(code != nullptr);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  return {code, [](pcre2_code* old) { pcre2_code_free(old); }};
}

// Buffers for matching; one thread at a time. No limits: the pattern does not backtrack, so the
// time is linear in the text.
struct Search {
  Search() {
    LMTP_CHECK(found != nullptr && limits != nullptr);
    pcre2_set_match_limit(limits.get(), std::numeric_limits<std::uint32_t>::max());
    pcre2_set_heap_limit(limits.get(), std::numeric_limits<std::uint32_t>::max());
  }

  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found{
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits{
      pcre2_match_context_create(nullptr), pcre2_match_context_free};
};

// Bytes of the grapheme cluster that `text` begins with. REQUIRES: !text.empty().
std::size_t grapheme_size(const pcre2_code* grapheme, std::string_view text, const Search& search) {
  // The only grapheme cluster of two ASCII characters is \r\n.
  if (is_ascii(text[0]) && text[0] != '\r' && (text.size() == 1 || is_ascii(text[1]))) return 1;
  const int rc = pcre2_match(grapheme, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                             PCRE2_NO_UTF_CHECK, search.found.get(), search.limits.get());
  LMTP_CHECK(rc > 0);  // the pattern matches any text
  return pcre2_get_ovector_pointer(search.found.get())[1];
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes) {
  constexpr std::size_t kUnit = sizeof(std::uint32_t);
  if (bytes.size() < kUnit) return Error{ErrorCode::kInvalid, "the charsmap is cut off"};
  const std::size_t num_units = little_endian(bytes.substr(0, kUnit)) / kUnit;
  bytes.remove_prefix(kUnit);
  if (num_units == 0) return Error{ErrorCode::kInvalid, "the charsmap has an empty trie"};
  if (num_units > bytes.size() / kUnit) {
    return Error{ErrorCode::kInvalid, "the charsmap is cut off"};
  }
  Charsmap map;
  map.trie_.reserve(num_units);
  for (std::size_t i = 0; i < num_units; ++i) {
    const std::uint64_t unit = little_endian(bytes.substr(i * kUnit, kUnit));
    map.trie_.push_back(static_cast<std::uint32_t>(unit));
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
  const Search search;
  while (!text.empty()) {
    std::string_view grapheme = text.substr(0, grapheme_size(grapheme_.get(), text, search));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() <= kGraphemeBytesMax) {
      // If only a prefix is a key, the rest is dropped, as in the library.
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
