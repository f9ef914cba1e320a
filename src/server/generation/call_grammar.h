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

// `grammar`: of Grammar::Kind::kLark, without triggers. It is the same text for the same tools, and
// has each name, text and schema once. Where OfferedFunction::is_loose, the arguments are any JSON
// object.
struct CallGrammar {
  Grammar grammar = {};
  std::vector<std::string> cut = {};  // functions of whose schemas not all was looked at
  std::string unkept = {};  // a strict function whose schema it does not keep; empty: there is none
};

// `tokenizer`: of the layout's special tokens; null: it has none. REQUIRES: the layout has calls,
// and there are functions.
CallGrammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                              const tokenizer::Tokenizer* tokenizer);

// How a model is made to write a call of which it is not known how it does by itself.
text::CallLayout json_layout();

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

// The schemas of any object, and of any value.
std::string any_object();
std::string any_json();
// What a schema says under "x-guidance" to be written so.
OrderedJson fixed_spaces();

}  // namespace lmtp::server
