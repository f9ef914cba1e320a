// Tools that a chat must call: a grammar keeps the text to a call, which is read out of it again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generation/json_fields.h"
#include "generation/read_grammar.h"
#include "lmtp/base/json.h"

namespace lmtp::server {

struct OpenAiRequest;

// The calls that a text may be: an opening, the arguments as JSON, and the closing.
struct ToolCalls {
  struct Call {
    std::string opening;
    std::string function;
  };

  std::vector<Call> calls;  // empty: a text is no call
  std::string closing;
  bool is_named = false;  // the client has chosen the function
};

// `tools` and `tool_choice` of a chat: the request gets the grammar and the calls.
void read_tool_calls(JsonFields& fields, const OrderedJson& body, SchemaReading reading,
                     OpenAiRequest& request);

// The call that one choice's text is, piece by piece.
class CallReader {
 public:
  // `calls` outlives it.
  explicit CallReader(const ToolCalls& calls) : calls_(&calls) {}

  // The arguments that are certain now. `ends`: it is whole; `is_cut`: but nothing follows either.
  std::string push(std::string_view text, bool ends, bool is_cut);

  // Null: not known yet.
  const ToolCalls::Call* call() const { return call_; }

 private:
  const ToolCalls* calls_;
  const ToolCalls::Call* call_ = nullptr;
  std::string held_;
};

}  // namespace lmtp::server
