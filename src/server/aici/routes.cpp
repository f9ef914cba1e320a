#include "routes.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"
#include "generation/controllers.h"
#include "generation/json_fields.h"
#include "generation/read_body.h"
#include "http/message.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"
#include "run.h"

namespace lmtp::server {
namespace {

using Responder = std::shared_ptr<HttpResponder>;

constexpr std::size_t kModuleBytesMax = std::size_t{128} << 20;
constexpr std::size_t kTagsBodyMax = std::size_t{64} << 10;
constexpr std::size_t kTagsMax = 64;
constexpr std::size_t kTagBytesMax = 256;

std::string model_of(std::string_view query) {
  constexpr std::string_view kName = "model=";
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    if (part.starts_with(kName)) return percent_decoded(part.substr(kName.size()));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
  }
  return {};
}

// What runs the controllers of the model that is meant. Where there is none the client has been
// told, and it is null.
std::shared_ptr<aici::Runtime> runtime_for(const ServerContext& context, const HttpRequest& http,
                                           const Responder& responder) {
  const registry::Registry& models = context.generation.models;
  const std::string name = model_of(http.query);
  const auto caller = responder->caller();
  if (caller->account != nullptr) {
    if (auto allowed = models.check_access(*caller->account, name); !allowed) {
      responder->send(aici_error(allowed.error(), true));
      return nullptr;
    }
  }
  if (const auto model = models.ready_model(name)) {
    if (model->controllers) return *model->controllers;
    responder->send(aici_error(of_controller(model->controllers.error()), false));
    return nullptr;
  }
  const auto status = models.status(name);
  const bool is_unknown = status && !status->ok();
  responder->send(aici_error(
      is_unknown ? status->error()
                 : Error{ErrorCode::kUnavailable, "model: is not loaded now; retry once it is"},
      true));
  return nullptr;
}

// An upload is code that runs here.
bool refuses_uploads(const ServerContext& context, const Responder& responder) {
  const ServerOptions& options = context.options;
  if (!options.on_tcp || context.on_loopback || options.aici_upload) return false;
  responder->send(aici_refusal(
      403,
      "controllers are not taken on an address that other machines reach; --aici-upload "
      "takes them from there"));
  return true;
}

bool refuses_type(const HttpRequest& http, const Responder& responder) {
  if (is_json(http)) return false;
  responder->send(aici_refusal(415, "Content-Type: allowed is application/json"));
  return true;
}

// Answers with what `to_json` makes of it.
template <typename T>
aici::Runtime::Done<Result<T>> send_to(const Responder& responder, OrderedJson (*to_json)(T)) {
  return [responder, to_json](Result<T> done) {
    HttpResponse response =
        done ? HttpResponse{200, "application/json", json_text(to_json(std::move(*done))) + "\n"}
             : aici_error(of_controller(done.error()), false);
    responder->post([responder, response = std::move(response)]() mutable {
      responder->send(std::move(response));
    });
  };
}

OrderedJson module_json(aici::ModuleInfo module) {
  return {{"module_id", std::move(module.module_id)},
          {"wasm_size", module.wasm_size},
          {"compiled_size", module.compiled_size},
          {"time", module.compile_ms}};
}

OrderedJson tags_json(std::vector<aici::TagInfo> tags) {
  OrderedJson list = OrderedJson::array();
  for (aici::TagInfo& tag : tags) {
    list.push_back({{"tag", std::move(tag.tag)},
                    {"module_id", std::move(tag.module_id)},
                    {"updated_at", tag.updated_at},
                    {"updated_by", std::move(tag.updated_by)},
                    {"wasm_size", tag.wasm_size},
                    {"compiled_size", tag.compiled_size}});
  }
  return {{"tags", std::move(list)}};
}

void upload(const ServerContext& context, HttpRequest http, const Responder& responder) {
  if (refuses_uploads(context, responder)) return;
  if (const auto runtime = runtime_for(context, http, responder)) {
    runtime->upload(std::move(http.body), auth_of(responder->caller().get()),
                    send_to(responder, module_json));
  }
}

void set_tags(const ServerContext& context, const HttpRequest& http, const Responder& responder) {
  if (refuses_type(http, responder) || refuses_uploads(context, responder)) return;
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return responder->send(aici_error(root.error(), false));
  JsonFields fields(*root);
  const std::string* const module = fields.text("module_id");
  std::vector<std::string> tags = fields.strings("tags", kTagsMax, kTagBytesMax);
  if (module == nullptr) fields.fail("module_id", "is missing; allowed is what the upload gave");
  if (tags.empty()) fields.fail("tags", "is missing; allowed is a list of names");
  if (fields.failed() || module == nullptr) {
    return responder->send(aici_error(fields.error(), false));
  }
  if (const auto runtime = runtime_for(context, http, responder)) {
    runtime->set_tags(*module, std::move(tags), auth_of(responder->caller().get()),
                      send_to(responder, tags_json));
  }
}

void get_tags(const ServerContext& context, const HttpRequest& http, const Responder& responder) {
  if (const auto runtime = runtime_for(context, http, responder)) {
    runtime->get_tags(send_to(responder, tags_json));
  }
}

void run(ServerContext& context, HttpRequest http, const Responder& responder) {
  if (refuses_type(http, responder)) return;
  read_body(context, std::move(http), responder, [&context, responder](const HttpRequest& whole) {
    return [&context, responder, request = read_run(whole.body)]() mutable {
      if (request) return answer_run(context, std::move(*request), responder);
      context.generation.models.refusals().add(request.error().code);
      responder->send(aici_error(request.error(), false));
    };
  });
}

}  // namespace

void add_aici(ServerContext& context) {
  const auto with = [&context](auto handler) {
    // Some move from it. NOLINTNEXTLINE(performance-unnecessary-value-param)
    return [&context, handler](HttpRequest http, const Responder& responder) {
      handler(context, std::move(http), responder);
    };
  };
  context.routes.post("/v1/controllers", kModuleBytesMax, with(upload), Right::kAdmin);
  context.routes.post("/v1/controllers/tags", kTagsBodyMax, with(set_tags));
  context.routes.get("/v1/controllers/tags", with(get_tags));
  context.routes.post("/v1/run", context.options.max_message_bytes, with(run));
}

}  // namespace lmtp::server
