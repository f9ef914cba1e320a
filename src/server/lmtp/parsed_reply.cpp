#include "parsed_reply.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "generation/json_fields.h"
#include "generation/read_tools.h"
#include "generation/vendor_tools.h"
#include "lmtp/base/json.h"

namespace lmtp::server {
namespace {

using protocol::CallPiece;
using protocol::ReplyPieces;

class Writer {
 public:
  explicit Writer(int num_calls) : num_calls_(num_calls) {}

  void add(const Content& /*event*/) {}
  void add(Reasoning& event) { pieces().reasoning += event.text; }
  void add(CallBegins& event) {
    pieces().calls.push_back({num_calls_++, std::move(event.id), std::move(event.function)});
  }
  void add(const CallArguments& event) { call().arguments += event.json; }
  void add(const CallEnds& /*event*/) { call().is_complete = true; }

  std::unique_ptr<ReplyPieces> take() { return std::move(pieces_); }

 private:
  ReplyPieces& pieces() {
    if (pieces_ == nullptr) pieces_ = std::make_unique<ReplyPieces>();
    return *pieces_;
  }
  // The last one that has begun.
  CallPiece& call() {
    auto& calls = pieces().calls;
    if (calls.empty()) calls.push_back({.index = num_calls_ - 1});
    return calls.back();
  }

  int num_calls_;
  std::unique_ptr<ReplyPieces> pieces_;
};

}  // namespace

Result<ReplyWishes> read_wishes(protocol::GenerateMessage& message, SchemaReading reading) {
  const protocol::ReplyReading& asked = *message.reading;
  Json choice = {{"parallel_tool_calls", asked.parallel_tool_calls}};
  if (!asked.tool_choice.empty()) {
    auto parsed = parse_json(asked.tool_choice, "tool_choice");
    if (!parsed) return parsed.error();
    choice["tool_choice"] = std::move(*parsed);
  }
  std::string& given = message.chat->tools;
  const auto tools = parse_ordered_json(given.empty() ? "[]" : given, "tools");
  if (!tools) return tools.error();
  const ClientTools offered = without_vendor_tools(*tools);
  if (!offered.left_out.empty()) given = offered.kept.empty() ? "" : offered.kept.dump();
  JsonFields fields(choice);
  ReplyWishes wishes;
  wishes.tools = read_tools(fields, offered.kept, reading);
  const bool is_forced = wishes.tools && wishes.tools->is_forced();
  if (is_forced && message.grammar) {
    fields.fail("tool_choice", "stands beside grammar; one is allowed");
  }
  if (fields.failed()) return fields.error();
  if (!message.controller.empty() && (is_forced || asked.thinking_token_budget >= 0)) {
    return Error{ErrorCode::kInvalid,
                 "controller: stands beside a tool_choice or a thinking_token_budget that decides "
                 "on tokens as well; one is allowed"};
  }
  wishes.grammar = std::move(message.grammar);
  wishes.reasoning_tokens_max = asked.thinking_token_budget;
  wishes.min_tokens = message.params.min_tokens;
  wishes.has_stop_strings = !message.stop.empty();
  return wishes;
}

std::unique_ptr<ReplyPieces> pieces_of(Reply& reply) {
  Writer writer(reply.num_calls_before);
  for (ReplyEvent& event : reply.events) {
    std::visit([&](auto& kind) { writer.add(kind); }, event);
  }
  return writer.take();
}

}  // namespace lmtp::server
