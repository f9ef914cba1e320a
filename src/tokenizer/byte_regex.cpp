#include "byte_regex.h"

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "regex_parser.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::size_t kSetsMax = 64;      // a signature is a word of as many bits
constexpr std::size_t kClassesMax = 128;  // bytes beyond ASCII
constexpr char32_t kAsciiEnd = 0x80;

using Signature = std::uint64_t;  // bit i: whether the set i has the character

// The classes of non-ASCII characters that the pattern distinguishes.
class Classes {
 public:
  Result<void> find(const std::vector<const std::vector<CodePointRange>*>& sets,
                    CodePointTable& table) {
    std::vector<char32_t> starts = {kAsciiEnd};
    for (const auto* set : sets) {
      for (const CodePointRange& range : *set) {
        if (range.first > kAsciiEnd) starts.push_back(range.first);
        if (range.last >= kAsciiEnd && range.last < kCodePointMax) starts.push_back(range.last + 1);
      }
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const char32_t last = i + 1 < starts.size() ? starts[i + 1] - 1 : kCodePointMax;
      Signature signature = 0;
      for (std::size_t s = 0; s < sets.size(); ++s) {
        if (contains(*sets[s], starts[i])) signature |= Signature{1} << s;
      }
      const auto byte = byte_of(signature);
      if (!byte) return byte.error();
      table.set({starts[i], last}, *byte);
    }
    return {};
  }

  // The bytes of the set's characters.
  std::bitset<256> bytes(std::size_t set_index, const std::vector<CodePointRange>& set) const {
    std::bitset<256> bytes;
    for (char32_t c = 0; c < kAsciiEnd; ++c) bytes[c] = contains(set, c);
    for (const auto& [signature, byte] : bytes_) bytes[byte] = (signature >> set_index & 1) != 0;
    return bytes;
  }

 private:
  Result<std::uint8_t> byte_of(Signature signature) {
    const auto [entry, is_new] =
        bytes_.try_emplace(signature, static_cast<std::uint8_t>(kAsciiEnd + bytes_.size()));
    if (is_new && bytes_.size() > kClassesMax) {
      return Error{ErrorCode::kInvalid, "it tells more than " + std::to_string(kClassesMax) +
                                            " classes of characters apart"};
    }
    return entry->second;
  }

  std::map<Signature, std::uint8_t> bytes_;
};

void append_byte(std::size_t byte, std::string& out) {
  char text[8];
  std::snprintf(text, sizeof text, "\\x%02zX", byte);
  out += text;
}

// A set of bytes in PCRE2's syntax.
void append_set(const std::bitset<256>& bytes, std::string& out) {
  if (bytes.none()) {
    out += "(?!)";
    return;
  }
  out += '[';
  for (std::size_t first = 0; first < 256; ++first) {
    if (!bytes[first]) continue;
    std::size_t last = first;
    while (last + 1 < 256 && bytes[last + 1]) ++last;
    append_byte(first, out);
    if (last > first) {
      out += '-';
      append_byte(last, out);
    }
    first = last;
  }
  out += ']';
}

Result<ByteRegex> from_parts(const std::vector<RegexPart>& parts) {
  // Equal sets count once.
  std::vector<const std::vector<CodePointRange>*> sets;
  std::vector<std::size_t> set_of_part(parts.size());
  const auto same = [](const std::vector<CodePointRange>& a, const std::vector<CodePointRange>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const CodePointRange& x, const CodePointRange& y) {
                        return x.first == y.first && x.last == y.last;
                      });
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // ASCII characters keep their own bytes, so they need no signature.
    if (!parts[i].is_set || parts[i].set.empty() || parts[i].set.back().last < kAsciiEnd) continue;
    std::size_t s = 0;
    while (s < sets.size() && !same(*sets[s], parts[i].set)) ++s;
    if (s == sets.size()) sets.push_back(&parts[i].set);
    set_of_part[i] = s;
  }
  if (sets.size() > kSetsMax) {
    return Error{ErrorCode::kInvalid,
                 "it has more than " + std::to_string(kSetsMax) + " sets of characters"};
  }
  ByteRegex regex;
  Classes classes;
  if (auto found = classes.find(sets, regex.classes); !found) return found.error();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const RegexPart& part = parts[i];
    if (!part.is_set) {
      regex.pattern += part.syntax;
    } else if (part.set.empty() || part.set.back().last < kAsciiEnd) {
      append_set(Classes().bytes(0, part.set), regex.pattern);
    } else {
      append_set(classes.bytes(set_of_part[i], part.set), regex.pattern);
    }
  }
  return regex;
}

}  // namespace

Result<ByteRegex> make_byte_regex(std::string_view pattern) {
  const auto parts = parse_regex(pattern);
  if (!parts) return parts.error();
  return from_parts(*parts);
}

ByteRegex make_byte_regex(std::span<const CodePointRange> ranges) {
  RegexPart part;
  part.is_set = true;
  part.set.assign(ranges.begin(), ranges.end());
  return *from_parts({part});
}

}  // namespace lmtp::tokenizer
