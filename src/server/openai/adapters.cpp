#include "adapters.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "error.h"
#include "generation/json_fields.h"
#include "http/message.h"
#include "lmtp/base/json.h"
#include "lmtp/server/http.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kBodyMax = std::size_t{64} << 10;

using Responder = std::shared_ptr<HttpResponder>;

// Answers as vLLM does, with a sentence.
registry::Models::AdapterDone send_adapters_to(const Responder& responder, std::string sentence) {
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

// `act` is given the fields, and answers where none is wrong.
template <typename Act>
HttpHandler handler_of(const Act& act) {
  return [act](const HttpRequest& http, const Responder& responder) {
    if (!is_json(http)) {
      return responder->send({415, "application/json",
                              openai_refusal_json(415,
                                                  "Content-Type: allowed is "
                                                  "application/json.")});
    }
    const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
    if (!root) return responder->send(openai_error(root.error()));
    JsonFields fields(*root);
    act(fields, responder);
    if (fields.failed()) responder->send(openai_error(fields.error()));
  };
}

}  // namespace

void add_adapters(ServerContext& context) {
  if (!context.options.allow_runtime_lora) return;
  registry::Models& models = context.generation.models;
  const auto load = [&models](JsonFields& fields, const Responder& responder) {
    AdapterSource source{needed(fields, "lora_name"), needed(fields, "lora_path")};
    const std::string* base = fields.text("base_model_name");
    const bool in_place = fields.boolean("load_inplace", false);
    if (fields.failed()) return;
    std::string sentence = "Success: LoRA adapter '" + source.name + "' added successfully.";
    models.load_adapter(std::move(source), base != nullptr ? *base : "", in_place,
                        send_adapters_to(responder, std::move(sentence)));
  };
  const auto unload = [&models](JsonFields& fields, const Responder& responder) {
    std::string name = needed(fields, "lora_name");
    if (fields.failed()) return;
    std::string sentence = "Success: LoRA adapter '" + name + "' removed successfully.";
    models.unload_adapter(std::move(name), send_adapters_to(responder, std::move(sentence)));
  };
  context.routes.post("/v1/load_lora_adapter", kBodyMax, handler_of(load), Right::kAdmin);
  context.routes.post("/v1/unload_lora_adapter", kBodyMax, handler_of(unload), Right::kAdmin);
}

}  // namespace lmtp::server
