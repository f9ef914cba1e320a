#include "forced_calls.h"

#include <utility>

#include "call_grammar.h"
#include "reply_formats.h"

namespace lmtp::server {

ForcedReply force_calls(const OfferedTools& tools) {
  if (tools.choice == OfferedTools::Choice::kNamed) {
    const OfferedFunction& only = tools.functions.front();
    return {{Grammar::Kind::kJsonSchema, only.parameters}, make_format({{{"", only.name}}, ""})};
  }
  const text::CallLayout layout = json_layout();
  ForcedCalls calls{{}, layout.call_end};
  for (const OfferedFunction& function : tools.functions) {
    calls.calls.push_back({layout.call_begin + function.name + layout.name_end, function.name});
  }
  OfferedTools one = tools;
  one.calls_several = false;
  return {make_call_grammar({.calls = {layout}}, one, nullptr), make_format(std::move(calls))};
}

}  // namespace lmtp::server
