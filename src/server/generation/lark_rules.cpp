#include "lark_rules.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>

#include "lmtp/base/json.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {
namespace {

// A regular expression of this text alone.
std::string as_regex(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x80 ? std::string{'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]}
                       : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string lark_quoted(std::string_view text) {
  std::string out = " ";
  append_json_string(text, out);
  return out;
}

std::string lark_literal(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> special;
  const std::string marked = text::mark_special(tokenizer, text, &special);
  std::string_view rest = marked;
  std::string out;
  const auto add = [&](std::string_view plain) {
    if (!plain.empty()) out += lark_quoted(plain);
  };
  for (const TokenId id : special) {
    add(rest.substr(0, rest.find(text::kSpecialBegin)));
    out += " <[" + std::to_string(id) + "]>";
    rest.remove_prefix(rest.find(text::kSpecialEnd) + 1);
  }
  add(rest);
  return out;
}

std::string lark_any_of(const std::vector<std::string>& bodies) {
  std::string any;
  std::unordered_set<std::string_view> known;
  for (const std::string& body : bodies) {
    if (known.insert(body).second) any += (known.size() == 1 ? "" : " |") + body;
  }
  return known.size() == 1 ? any : " (" + any + ")";
}

std::string LarkRules::rule(const std::string& body, const std::string& attributes) {
  const auto [found, is_new] =
      names_.try_emplace(attributes + ":" + body, " r" + std::to_string(names_.size()));
  if (is_new) add(found->second + attributes, body);
  return found->second;
}

void LarkRules::add(std::string_view name, const std::string& body) {
  rules_ += std::string(name.substr(1)) + ":" + body + "\n";
  budget_.num_bytes -= std::min(budget_.num_bytes, name.size() + 1 + body.size());
}

std::string LarkRules::literal(const std::string& text) {
  const auto [found, is_new] = literals_.try_emplace(text);
  if (!is_new) return found->second;
  if (tokenizer_ != nullptr) return found->second = lark_literal(*tokenizer_, text);
  return found->second = text.empty() ? "" : lark_quoted(text);
}

bool LarkRules::has_special(const std::string& text) const {
  return tokenizer_ != nullptr && text::mark_special(*tokenizer_, text) != text;
}

std::string LarkRules::text_before(const std::string& end, const std::string& other_than) {
  std::string any = " /(?s:.*)/";
  if (!other_than.empty()) {
    const auto [found, is_new] =
        names_.try_emplace("TEXT:" + other_than, " TEXT_" + std::to_string(names_.size()));
    if (is_new) add(found->second, any + R"( & ~/(?s:)" + as_regex(other_than) + ".*)/");
    any = found->second;
  }
  const std::string closing = literal(end);
  if (closing.starts_with(" <[")) return rule(any) + closing;
  return rule(any, "[suffix=" + lark_quoted(end).substr(1) + "]");
}

}  // namespace lmtp::server
