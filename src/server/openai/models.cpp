// GET /v1/models and /v1/models/{name}.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "context.h"
#include "error.h"
#include "http/message.h"
#include "lmtp/base/json.h"
#include "routes.h"

namespace lmtp::server {
namespace {

OrderedJson model_json(const std::string& name, int context_length, std::int64_t created) {
  OrderedJson model = {
      {"id", name},   {"object", "model"}, {"created", created},      {"owned_by", "lmtp-serve"},
      {"root", name}, {"parent", nullptr}, {"max_model_len", nullptr}};
  if (context_length > 0) model["max_model_len"] = context_length;
  return model;
}

OrderedJson adapter_json(const AdapterSource& adapter, const registry::ModelStatus& model,
                         std::int64_t created) {
  OrderedJson json = model_json(adapter.name, model.limits.context_length, created);
  if (!model.description.hides_path) json["root"] = adapter.folder;
  json["parent"] = model.description.name;
  return json;
}

HttpResponse json_response(const OrderedJson& json) {
  return {200, "application/json", json_text(json) + "\n"};
}

// `name`: as it was asked for.
HttpResponse model_response(const std::string& name, const Result<registry::ModelStatus>& status,
                            std::int64_t created) {
  if (!status) return openai_error(status.error(), true);
  for (const AdapterSource& adapter : status->adapters) {
    if (adapter.name == name) return json_response(adapter_json(adapter, *status, created));
  }
  const registry::ModelDescription& model = status->description;
  const bool repeats_name = !model.hides_path && !registry::is_any_model(name);
  return json_response(
      model_json(repeats_name ? name : model.name, status->limits.context_length, created));
}

}  // namespace

// What is under way, of the models that the caller may use.
void openai_load(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  const CallerModels models = context.generation.models.of(responder->caller());
  int load = 0;
  for (const registry::ModelStatus& model : models.list()) {
    if (models.may_use(model.description.name)) {
      load += model.stats.num_running + model.stats.num_waiting;
    }
  }
  responder->send(json_response({{"server_load", load}}));
}

// Lists the models that are loaded or being loaded, and the default.
void openai_models(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  const CallerModels models = context.generation.models.of(responder->caller());
  OrderedJson data = OrderedJson::array();
  const std::string default_name = models.default_model().name;
  bool has_default = default_name.empty();
  for (const registry::ModelStatus& model : models.list()) {
    const std::string& name = model.description.name;
    has_default = has_default || name == default_name;
    if (models.may_use(name)) {
      data.push_back(model_json(name, model.limits.context_length, context.started));
    }
    for (const AdapterSource& adapter : model.adapters) {
      data.push_back(adapter_json(adapter, model, context.started));
    }
  }
  if (!has_default) data.push_back(model_json(default_name, 0, context.started));
  responder->send(json_response({{"object", "list"}, {"data", std::move(data)}}));
}

void openai_model(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const CallerModels models = context.generation.models.of(responder->caller());
  constexpr std::string_view kAbove = "/v1/models/";
  const std::string name = percent_decoded(http.path.substr(kAbove.size()));
  if (const auto known = models.status(name)) {
    return responder->send(model_response(name, *known, context.started));
  }
  const auto answer = [responder, name,
                       created = context.started](Result<registry::ModelStatus> status) {
    responder->post([responder, name, created, status = std::move(status)] {
      responder->send(model_response(name, status, created));
    });
  };
  if (models.look_up(name, answer)) return;
  models.refusals().add(ErrorCode::kOverloaded);
  responder->send(openai_error(
      {ErrorCode::kOverloaded, "overloaded: too many models are being looked up; retry later"}));
}

}  // namespace lmtp::server
