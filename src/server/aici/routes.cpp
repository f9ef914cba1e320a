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
#include "lmtp/protocol/message.h"
#include "lmtp/wasm/wasm.h"
#include "run.h"

namespace lmtp::server {
namespace {

using Responder = std::shared_ptr<HttpResponder>;

constexpr std::size_t kTagsBodyMax = std::size_t{64} << 10;

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
std::shared_ptr<aici::Runtime> runtime_of(const ServerContext& context, const HttpRequest& http,
                                          const Responder& responder) {
  auto runtime =
      runtime_for(context.generation.models, model_of(http.query), responder->caller().get());
  if (runtime) return std::move(*runtime);
  responder->send(aici_error(runtime.error(), true));
  return nullptr;
}

bool refuses_uploads(const ServerContext& context, const Responder& responder) {
  const Result<void> taken = check_uploads(context.controllers);
  if (taken) return false;
  responder->send(aici_refusal(403, taken.error().message));
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
             : aici_error(about_module(done.error()), false);
    responder->post([responder, response = std::move(response)]() mutable {
      responder->send(std::move(response));
    });
  };
}

void upload(const ServerContext& context, HttpRequest http, const Responder& responder) {
  if (refuses_uploads(context, responder)) return;
  if (const auto runtime = runtime_of(context, http, responder)) {
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
  std::vector<std::string> tags =
      fields.strings("tags", protocol::kMaxTags, protocol::kMaxTagBytes);
  if (module == nullptr) fields.fail("module_id", "is missing; allowed is what the upload gave");
  if (tags.empty()) fields.fail("tags", "is missing; allowed is a list of names");
  if (fields.failed() || module == nullptr) {
    return responder->send(aici_error(fields.error(), false));
  }
  if (const auto runtime = runtime_of(context, http, responder)) {
    runtime->set_tags(*module, std::move(tags), auth_of(responder->caller().get()),
                      send_to(responder, tags_json));
  }
}

void get_tags(const ServerContext& context, const HttpRequest& http, const Responder& responder) {
  if (const auto runtime = runtime_of(context, http, responder)) {
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
  context.routes.post("/v1/controllers", wasm::kModuleBytesMax, with(upload), Right::kAdmin);
  context.routes.post("/v1/controllers/tags", kTagsBodyMax, with(set_tags));
  context.routes.get("/v1/controllers/tags", with(get_tags));
  context.routes.post("/v1/run", context.options.max_message_bytes, with(run));
}

}  // namespace lmtp::server
