#include "grammar_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/constraint/gbnf.h"
#include "lmtp/constraint/schema_forms.h"

namespace lmtp::constraint {
namespace {

// White space where JSON allows it: one space, or a line break and an indentation. Without a bound
// a model may go on with white space for ever.
constexpr std::string_view kJsonOptions =
    R"("x-guidance":{"whitespace_pattern":"[ ]|\\n[ \\t]{0,32}"})";

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

Result<LibraryGrammar> from_choice(const std::string& text) {
  const Result<Json> list = parse_json(text, "the list of choices");
  if (!list) return invalid(list.error().message);
  if (!list->is_array() || list->empty()) {
    return invalid("is no list of choices; allowed is a JSON list of one or more strings");
  }
  std::string regex;
  for (const Json& choice : *list) {
    const auto* const value = choice.get_ptr<const std::string*>();
    if (value == nullptr) return invalid("has a choice that is no string; allowed are strings");
    regex += (regex.empty() ? "(" : "|") + quote_regex(*value);
  }
  return LibraryGrammar{"regex", regex + ")"};
}

// A schema with options of its own keeps them.
std::string with_json_options(const std::string& schema) {
  if (schema.find("\"x-guidance\"") != std::string::npos) return schema;
  const std::size_t end = schema.find_last_not_of(" \t\r\n");
  if (end == std::string::npos || end == 0 || schema[end] != '}') return schema;
  // Behind the rest, so that places in the library's messages are right.
  const std::size_t last = schema.find_last_not_of(" \t\r\n", end - 1);
  const bool is_empty = last != std::string::npos && schema[last] == '{';
  return schema.substr(0, end) + (is_empty ? "" : ",") + std::string(kJsonOptions) + "}";
}

}  // namespace

std::string quote_regex(std::string_view text) {
  constexpr std::string_view kSpecial = R"(\.+*?()|[]{}^$#&-~/)";
  std::string quoted;
  for (const char byte : text) {
    if (byte == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(byte);
      quoted += {'\\', 'x', kDigits[code >> 4U], kDigits[code & 15U]};
    } else {
      if (kSpecial.find(byte) != std::string_view::npos) quoted += '\\';
      quoted += byte;
    }
  }
  return quoted;
}

Result<LibraryGrammar> to_library_grammar(const Grammar& grammar) {
  if (grammar.text.find('\0') != std::string::npos) {
    return invalid("contains a zero byte; allowed is text");
  }
  switch (grammar.kind) {
    case Grammar::Kind::kRegex:
      return LibraryGrammar{"regex", grammar.text};
    case Grammar::Kind::kChoice:
      return from_choice(grammar.text);
    case Grammar::Kind::kJson:
      return LibraryGrammar{"json_schema", with_json_options(R"({"type":"object"})")};
    case Grammar::Kind::kJsonSchema:
      return LibraryGrammar{"json_schema", with_json_options(to_known_form(grammar.text))};
    case Grammar::Kind::kLark:
      return LibraryGrammar{"lark", grammar.text};
    case Grammar::Kind::kGbnf: {
      Result<std::string> lark = gbnf_to_lark(grammar.text);
      if (!lark) return lark.error();
      return LibraryGrammar{"lark", std::move(*lark)};
    }
    case Grammar::Kind::kLlguidance:
      return LibraryGrammar{"llguidance", grammar.text};
    case Grammar::Kind::kFree:
      break;
  }
  return invalid("is of an unknown kind");
}

}  // namespace lmtp::constraint
