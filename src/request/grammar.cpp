#include "lmtp/request/grammar.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lmtp {
namespace {

using Kind = Grammar::Kind;
using Given = GrammarValue::Kind;

struct Type {
  std::string_view name;
  Kind kind;
  std::string_view allowed;  // as its value
};

constexpr std::string_view kText = "text";
constexpr std::string_view kObject = "an object or its JSON as text";
constexpr std::string_view kSchemaOrNone = "a schema (an object or its JSON as text), or none";

// The first of a kind is the one that is written.
constexpr std::array kTypes = {
    Type{"regex", Kind::kRegex, kText},
    Type{"choice", Kind::kChoice, "a list of texts"},
    Type{"json_object", Kind::kJson, kSchemaOrNone},
    Type{"json_schema", Kind::kJsonSchema, kObject},
    Type{"json", Kind::kJsonSchema, kSchemaOrNone},
    Type{"lark", Kind::kLark, kText},
    Type{"gbnf", Kind::kGbnf, kText},
    Type{"llguidance", Kind::kLlguidance, kObject},
};

// Whether such a value gives such a grammar.
bool is_of(Kind kind, Given given) {
  switch (kind) {
    case Kind::kChoice:
      return given == Given::kList;
    case Kind::kJson:
    case Kind::kJsonSchema:
    case Kind::kLlguidance:
      return given == Given::kText || given == Given::kObject;
    default:
      return given == Given::kText;
  }
}

}  // namespace

Result<Grammar> make_grammar(std::string_view type, GrammarValue value) {
  const auto* const found = std::ranges::find(kTypes, type, &Type::name);
  if (found == kTypes.end()) {
    std::string names;
    for (const Type& known : kTypes) names.append(names.empty() ? "" : ", ").append(known.name);
    return Error{ErrorCode::kInvalid, ".type: is unknown; allowed are " + names};
  }
  const bool has_schema =
      value.kind != Given::kNone && !(value.kind == Given::kObject && value.text == "{}");
  if (!has_schema && (type == "json" || type == "json_object")) return Grammar{Kind::kJson, {}};
  if (!is_of(found->kind, value.kind)) {
    return Error{
        ErrorCode::kInvalid,
        ".value: " + std::string(value.kind == Given::kNone ? "is missing" : "is no such") +
            "; allowed with " + std::string(type) + " is " + std::string(found->allowed)};
  }
  if (found->kind == Kind::kRegex && value.text.empty()) {
    return Error{ErrorCode::kInvalid, ".value: is empty; allowed is an expression"};
  }
  if (value.text.size() > kMaxGrammarBytes) {
    return Error{ErrorCode::kInvalid, ".value: has " + std::to_string(value.text.size()) +
                                          " bytes; allowed are at most " +
                                          std::to_string(kMaxGrammarBytes)};
  }
  const Kind kind = found->kind == Kind::kJson ? Kind::kJsonSchema : found->kind;
  return Grammar{kind, std::move(value.text)};
}

std::string_view grammar_type(Kind kind) {
  if (kind == Kind::kFree) return "free";
  return std::ranges::find(kTypes, kind, &Type::kind)->name;
}

}  // namespace lmtp
