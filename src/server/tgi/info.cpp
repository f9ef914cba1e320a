// TGI's GET /info.
#include <nlohmann/json.hpp>
#include <string>

#include "context.h"
#include "error.h"
#include "lmtp/base/json.h"
#include "routes.h"

namespace lmtp::server {
namespace {

// Texts that are read at a time to become token ids, besides short ones.
constexpr int kReaders = 1;

registry::ModelStatus described_model(const CallerModels& models) {
  const auto only = models.status("");
  if (only && only->ok()) return **only;
  registry::ModelStatus status;
  status.description = models.default_model();
  return status;
}

OrderedJson or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

}  // namespace

void tgi_info(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  const CallerModels models = context.generation.models.of(responder->caller());
  if (const Result<void> allowed = models.check(""); !allowed) {
    return responder->send(tgi_response(tgi_error(allowed.error(), true)));
  }
  const registry::ModelStatus model = described_model(models);
  const bool found = model.limits.context_length > 0;
  const OrderedJson info = {
      {"model_id", model.description.name},
      {"model_sha", or_null(model.description.commit)},
      {"model_dtype", or_null(model.description.dtype)},
      {"model_device_type", or_null(model.description.device)},
      {"model_pipeline_tag", "text-generation"},
      {"max_concurrent_requests", context.options.api.max_concurrent_requests},
      {"max_best_of", context.options.api.max_best_of},
      {"max_stop_sequences", context.options.api.max_stop_sequences},
      {"max_input_tokens", found ? model.limits.input_tokens_max() : 0},
      {"max_total_tokens", found ? model.limits.total_tokens_max() : 0},
      {"validation_workers", kReaders},
      {"max_client_batch_size", kSequencesMax},
      {"router", "lmtp-serve"},
      {"version", context.options.version},
      {"sha", nullptr},
      {"docker_label", nullptr},
  };
  responder->send({200, "application/json", json_text(info) + "\n"});
}

}  // namespace lmtp::server
