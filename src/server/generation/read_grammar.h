// The grammars in bodies of HTTP's APIs: TGI's, OpenAI's, vLLM's and llama.cpp's fields.
#pragma once

#include <string>
#include <string_view>

#include "generation.h"
#include "json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/request/grammar.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

// Keys in their order, which is that of the members that a schema lets the model write.
GrammarValue grammar_value(const OrderedJson* value);

// How schemas are read: as their clients mean them (schema_reading.h), or to the letter.
enum class SchemaReading { kAsMeant, kAsWritten };

inline SchemaReading schema_reading(const ApiLimits& limits) {
  return limits.open_objects ? SchemaReading::kAsWritten : SchemaReading::kAsMeant;
}

// Of {"type": ..., "value": ...}; json_schema's value may be OpenAI's {"name", "schema", "strict"},
// of which `"strict": false` asks for the letter. The error's text is for behind the name of the
// field.
Result<Grammar> read_typed_grammar(const OrderedJson& value, SchemaReading reading);

// Of whichever of OpenAI's, vLLM's and llama.cpp's fields the body has: at most one. `fields`,
// which are those of `body`, get the error.
void read_grammar(JsonFields& fields, const std::string& body, SchemaReading reading,
                  GenerationRequest& request);

// `fields` get an error where there is a grammar already.
void set_grammar(std::string_view field, Grammar grammar, JsonFields& fields,
                 GenerationRequest& request);

}  // namespace lmtp::server
