// From how a model writes calls to the grammar that its calls are kept to.
#pragma once

#include <string>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/request/grammar.h"
#include "lmtp/text/reply_layout.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "offered_tools.h"

namespace lmtp::server {

// Whether several calls stand between texts of their own.
inline bool has_section(const text::CallLayout& layout) {
  return !layout.section_begin.empty() || !layout.section_end.empty();
}
// Whether calls may follow one another without an opening of their own.
inline bool is_list(const text::CallLayout& layout) {
  return has_section(layout) || layout.opening.empty();
}
// What follows a function's name; empty: the arguments.
inline const std::string& end_of_name(const text::CallLayout& layout) {
  if (!layout.index_begin.empty()) return layout.index_begin;
  return layout.id_begin.empty() ? layout.name_end : layout.id_begin;
}

// A grammar of Grammar::Kind::kLark, without triggers. It is the same text for the same tools, and
// has each name, text and schema once. Where OfferedFunction::is_loose, the arguments are any JSON
// object. `tokenizer`: of the layout's special tokens; null: it has none. REQUIRES: the layout has
// calls, and there are functions.
Grammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                          const tokenizer::Tokenizer* tokenizer);

// How a model is made to write a call of which it is not known how it does by itself.
text::CallLayout json_layout();

// A text in Lark's notation, of whose tokens the special ones are named by their ids: no byte of
// theirs is text.
std::string lark_literal(const tokenizer::Tokenizer& tokenizer, std::string_view text);

// What calls begin with that a model makes by itself.
GrammarTriggers call_triggers(const text::ReplyLayout& layout, const OfferedTools& tools,
                              const tokenizer::Tokenizer& tokenizer);

// As templates write JSON, so that keys and separators are certain; else white space in what Lark
// takes for JSON could go on for ever; in the form that the library knows. What is no object: any
// object.
std::string with_fixed_spaces(OrderedJson schema);
std::string with_fixed_spaces(const std::string&) = delete;  // which is no text of one
// The same of a text; of one that is no schema any object's.
std::string schema_with_fixed_spaces(const std::string& text);

// A parameter of a function that tags or Python write one by one, in the order of its schema.
struct Parameter {
  std::string name;
  bool is_required = false;
  // A string alone: it is written as it is. Neither of both: it is a string where it is no JSON.
  bool is_text = false;
  bool is_json = false;
  std::vector<std::string> texts = {};  // the only ones; empty: any
  std::string type = {};                // the schema's; empty: it names none, or several
  std::string schema = {};  // with fixed spaces; empty: it can't be told apart from the function's
};
std::vector<Parameter> parameters_of(const OfferedFunction& function);

}  // namespace lmtp::server
