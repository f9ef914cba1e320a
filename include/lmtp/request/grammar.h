// A grammar as a client of any protocol sends it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp {

// Where a text comes under its grammar, if not with its first byte. Until then it is free.
struct GrammarTriggers {
  // A text that begins with reasoning: nothing in it is an opening, and stop strings and
  // `min_tokens` count from its end on.
  std::string reasoning_begin = {};
  std::string reasoning_end = {};  // empty: there is none
  bool in_reasoning = false;       // the text begins inside of it
  int reasoning_tokens_max = -1;   // then its end is forced; negative: it is not
  int min_tokens = 0;              // from its end on
  // The grammar is of the text from one of these on, but for those in a fenced block of code.
  // Empty, as the others: of all after the reasoning.
  std::vector<std::string> openings = {};
  // The same, where nothing but white space stands before.
  std::vector<std::string> first_openings = {};
  // Texts that belong to nothing, and after which reasoning may begin.
  std::vector<std::string> dropped = {};
  bool repeats = false;  // after a text of the grammar more is free; else the stream ends there

  bool operator==(const GrammarTriggers&) const = default;
};

// What the text of a stream must match, from its first generated token to its end. JSON has white
// space as models write it, on one line or indented, but never much of it; a schema that has
// "x-guidance" says itself which. docs/constrained.md has what each kind allows.
struct Grammar {
  enum class Kind {
    kRegex,       // a regular expression, of the whole text
    kChoice,      // one of several texts: a JSON list of strings
    kJson,        // any JSON object; the text is empty
    kJsonSchema,  // JSON that is valid by a schema, which is JSON as well
    kLark,        // a grammar in Lark's notation, with llguidance's extensions
    kGbnf,        // a grammar in llama.cpp's notation
    kLlguidance,  // llguidance's own JSON: {"grammars": [...]}
    kFree,        // anything; for its triggers alone, which have no openings
  };

  Kind kind = Kind::kRegex;
  std::string text = {};
  std::optional<GrammarTriggers> triggers = {};

  bool operator==(const Grammar&) const = default;
};

// A client's text: make_grammar() refuses longer ones.
inline constexpr std::size_t kMaxGrammarBytes = std::size_t{256} << 10;

// The value that a client gives with a grammar's type.
struct GrammarValue {
  enum class Kind { kNone, kText, kList, kObject, kOther };

  Kind kind = Kind::kNone;
  std::string text = {};  // of a text itself, of a list or an object its JSON
};

// Of {"type": TYPE, "value": VALUE}, as LMTP and TGI have it: "regex", "choice", "json" (by a
// schema, or any object), "json_schema", "json_object", "lark", "gbnf", "llguidance". The error's
// text is for behind the name of the field.
Result<Grammar> make_grammar(std::string_view type, GrammarValue value);

// The type that gives such a grammar back, with its text as the value.
std::string_view grammar_type(Grammar::Kind kind);

}  // namespace lmtp
