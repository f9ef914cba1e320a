// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them.
#include <string>
#include <utility>

#include "context.h"
#include "error.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"
#include "routes.h"

namespace lmtp::server {
namespace {

// Answers as vLLM does, with a sentence.
registry::Models::AdapterDone send_adapters_to(const ResponderPtr& responder,
                                               std::string sentence) {
  return [responder, sentence = std::move(sentence)](const Result<void>& done) {
    HttpResponse response = done ? HttpResponse{200, "text/plain; charset=utf-8", sentence + "\n"}
                                 : openai_error(done.error());
    responder->post([responder, response = std::move(response)]() mutable {
      responder->send(std::move(response));
    });
  };
}

// A field that has to be there.
std::string needed(JsonFields& fields, const char* name) {
  const std::string* value = fields.text(name);
  if (value == nullptr || value->empty()) fields.fail(name, "is missing");
  return value != nullptr ? *value : "";
}

// Calls `act` with the fields of the body, and answers where one of them is wrong.
template <typename Act>
Then read_adapter(HttpRequest& http, const ResponderPtr& responder, const Act& act) {
  return [act, responder, body = std::move(http.body)] {
    const auto root = parse_json_object(body, "body", NonFinite::kRefused);
    if (!root) return responder->send(openai_error(root.error()));
    JsonFields fields(*root);
    act(fields);
    if (fields.failed()) responder->send(openai_error(fields.error()));
  };
}

}  // namespace

Then load_adapter(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return read_adapter(http, responder, [&context, responder](JsonFields& fields) {
    AdapterSource source{needed(fields, "lora_name"), needed(fields, "lora_path")};
    const std::string* base = fields.text("base_model_name");
    const bool in_place = fields.boolean("load_inplace", false);
    if (fields.failed()) return;
    std::string sentence = "Success: LoRA adapter '" + source.name + "' added successfully.";
    context.generation.models.of(responder->caller())
        .load_adapter(std::move(source), base != nullptr ? *base : "", in_place,
                      send_adapters_to(responder, std::move(sentence)));
  });
}

Then unload_adapter(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return read_adapter(http, responder, [&context, responder](JsonFields& fields) {
    std::string name = needed(fields, "lora_name");
    if (fields.failed()) return;
    std::string sentence = "Success: LoRA adapter '" + name + "' removed successfully.";
    context.generation.models.of(responder->caller())
        .unload_adapter(std::move(name), send_adapters_to(responder, std::move(sentence)));
  });
}

}  // namespace lmtp::server
