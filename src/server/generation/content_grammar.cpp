#include "content_grammar.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "call_grammar.h"
#include "lark_rules.h"
#include "lmtp/base/json.h"
#include "lmtp/constraint/gbnf.h"

namespace lmtp::server {
namespace {

std::string slashed(const std::string& regex) {
  std::string out;
  bool is_escaped = false;
  for (const char byte : regex) {
    if (byte == '/' && !is_escaped) out += '\\';
    is_escaped = byte == '\\' && !is_escaped;
    out += byte == '\n' ? std::string("\\n") : std::string(1, byte);
  }
  return "/" + out + "/";
}

std::optional<std::string> alternatives(const std::string& list) {
  const auto texts = parse_json(list, "choices");
  if (!texts || !texts->is_array() || texts->empty()) return std::nullopt;
  std::string out;
  for (const Json& text : *texts) {
    if (!text.is_string()) return std::nullopt;
    append_json_string(text.get<std::string>(), out += out.empty() ? "" : " | ");
  }
  return out;
}

// In Lark's notation.
std::optional<std::string> lark_of(const Grammar& grammar) {
  switch (grammar.kind) {
    case Grammar::Kind::kJson:
    case Grammar::Kind::kJsonSchema:
      return "start: %json " + schema_with_fixed_spaces(grammar.text);
    case Grammar::Kind::kRegex:
      return "start: " + slashed(grammar.text);
    case Grammar::Kind::kChoice: {
      const auto texts = alternatives(grammar.text);
      return texts ? std::optional("start: " + *texts) : std::nullopt;
    }
    case Grammar::Kind::kLark:
      return grammar.text;
    case Grammar::Kind::kGbnf: {
      auto lark = constraint::gbnf_to_lark(grammar.text);
      return lark ? std::optional(*std::move(lark)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

void begin_content(const std::string& begin, const tokenizer::Tokenizer& tokenizer,
                   Grammar& content) {
  if (begin.empty()) return;
  const auto lark = lark_of(content);
  if (!lark) return;
  const std::string start = "start:" + lark_literal(tokenizer, begin) + " @content";
  OrderedJson grammars = OrderedJson::array();
  grammars.push_back(OrderedJson{{"lark_grammar", start}});
  grammars.push_back(OrderedJson{{"name", "content"}, {"lark_grammar", *lark}});
  content.kind = Grammar::Kind::kLlguidance;
  content.text = json_text(OrderedJson{{"grammars", std::move(grammars)}});
}

}  // namespace lmtp::server
