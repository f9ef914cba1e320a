// The grammars in bodies of HTTP's APIs: TGI's, OpenAI's, vLLM's and llama.cpp's fields.
#pragma once

#include <string>
#include <string_view>

#include "generation.h"
#include "json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/request/grammar.h"

namespace lmtp::server {

// Keys in their order, which is that of the members that a schema lets the model write.
GrammarValue grammar_value(const OrderedJson* value);

// Of {"type": ..., "value": ...}; json_schema's value may be OpenAI's {"name", "schema"}. The
// error's text is for behind the name of the field.
Result<Grammar> read_typed_grammar(const OrderedJson& value);

// Of whichever of OpenAI's, vLLM's and llama.cpp's fields the body has: at most one. `fields`,
// which are those of `body`, get the error.
void read_grammar(JsonFields& fields, const std::string& body, GenerationRequest& request);

// `fields` get an error where there is a grammar already.
void set_grammar(std::string_view field, Grammar grammar, JsonFields& fields,
                 GenerationRequest& request);

}  // namespace lmtp::server
