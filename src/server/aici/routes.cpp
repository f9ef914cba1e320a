#include "routes.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context.h"
#include "error.h"
#include "generation/controllers.h"
#include "generation/json_fields.h"
#include "http/message.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"
#include "lmtp/protocol/message.h"
#include "run.h"

namespace lmtp::server {
namespace {

using Tags = std::vector<aici::TagInfo>;

std::string model_of(std::string_view query) {
  constexpr std::string_view kName = "model=";
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    if (part.starts_with(kName)) return percent_decoded(part.substr(kName.size()));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
  }
  return {};
}

// The runtime of the controllers of the model that the query names. Null where there is none; then
// the client has its answer.
std::shared_ptr<aici::Runtime> runtime_of(const ServerContext& context, const HttpRequest& http,
                                          const ResponderPtr& responder) {
  auto runtime =
      runtime_for(context.generation.models.of(responder->caller()), model_of(http.query));
  if (runtime) return std::move(*runtime);
  responder->send(aici_error(runtime.error(), true));
  return nullptr;
}

bool refuses_uploads(const ServerContext& context, const ResponderPtr& responder) {
  const Result<void> taken = check_uploads(context.controllers);
  if (taken) return false;
  responder->send(aici_refusal(403, taken.error().message));
  return true;
}

aici::Auth auth_from(const ResponderPtr& responder) {
  return auth_of(responder->caller().get(), responder->id());
}

// Answers with the result, a ModuleInfo or tags.
template <typename T>
aici::Runtime::Done<Result<T>> send_to(const ResponderPtr& responder) {
  return [responder, auth = auth_from(responder)](Result<T> done) {
    HttpResponse response =
        done ? HttpResponse{200, "application/json",
                            json_text(answer_json(std::move(*done), auth)) + "\n"}
             : aici_error(about_module(done.error()), false);
    responder->post([responder, response = std::move(response)]() mutable {
      responder->send(std::move(response));
    });
  };
}

}  // namespace

HttpResponse aici_wrong_type() {
  return aici_refusal(415, "Content-Type: allowed is application/json");
}

void aici_upload(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (refuses_uploads(context, responder)) return;
  if (const auto runtime = runtime_of(context, http, responder)) {
    runtime->upload(std::move(http.body), auth_from(responder),
                    send_to<aici::ModuleInfo>(responder));
  }
}

Then aici_set_tags(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return [&context, http = std::move(http), responder] {
    if (refuses_uploads(context, responder)) return;
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
      runtime->set_tags(*module, std::move(tags), auth_from(responder), send_to<Tags>(responder));
    }
  };
}

void aici_tags(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (const auto runtime = runtime_of(context, http, responder)) {
    runtime->get_tags(auth_from(responder), send_to<Tags>(responder));
  }
}

void aici_untag(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (refuses_uploads(context, responder)) return;
  constexpr std::string_view kAbove = "/v1/controllers/tags/";
  std::string tag = percent_decoded(http.path.substr(kAbove.size()));
  if (const auto runtime = runtime_of(context, http, responder)) {
    runtime->remove_tags({std::move(tag)}, auth_from(responder), send_to<Tags>(responder));
  }
}

Then aici_run(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return [&context, responder, request = read_run(http.body)]() mutable {
    if (request) return answer_run(context, std::move(*request), responder);
    context.generation.models.refusals().add(request.error().code);
    responder->send(aici_error(request.error(), false));
  };
}

}  // namespace lmtp::server
