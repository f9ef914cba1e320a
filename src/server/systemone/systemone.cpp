// System One's POST /v1/systemone.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "decisions/decide.h"
#include "decisions/read_questions.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "openai/error.h"
#include "routes.h"

namespace lmtp::server {
namespace {

Result<DecisionRequest> read_systemone(const std::string& body) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  DecisionRequest request;
  request.num_bytes = body.size();
  if (const std::string* model = fields.text("model")) request.model = *model;
  if (const std::string* context = fields.text("instructions")) request.system = *context;
  read_decision_options(fields, *ordered, request);
  request.cache_salt = read_cache_salt(fields);
  for (const std::string_view field : {"assets", "images", "audio", "videos"}) {
    const Json* value = fields.given(field);
    if (value != nullptr && !is_empty_json(*value)) {
      fields.fail(field, "is not supported; leave it out");
    }
  }
  const Json* state = fields.find("state");
  if (state == nullptr || !(state->is_string() || state->is_structured())) {
    fields.fail("state", (state == nullptr ? "is missing" : seen(*state)) +
                             std::string("; allowed are a text, an object and a list"));
  }
  const Json* questions = fields.find("questions");
  if (questions == nullptr || !questions->is_object()) {
    fields.fail("questions", (questions == nullptr ? "is missing" : seen(*questions)) +
                                 std::string("; needed is an object, questions by their names"));
  }
  request.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  request.state = (*ordered)["state"];
  auto read = read_questions((*ordered)["questions"]);
  if (!read) return read.error();
  request.questions = std::move(*read);
  return request;
}

std::string systemone_body(const Decided& decided) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("model", decided.model).key("answers");
  write_systemone(decided.request.questions, decided.answers, json);
  json.key("usage").begin_object();
  json.field("input_tokens", decided.num_prompt_tokens).field("output_tokens", 0).end_object();
  write_all_diagnostics(decided.request.questions, decided.answers, json.key("diagnostics"));
  json.end_object();
  return out + "\n";
}

}  // namespace

Then systemone(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return [&context, responder, request = read_systemone(http.body)]() mutable {
    decide(context.generation, std::move(request), responder, systemone_body, openai_error);
  };
}

}  // namespace lmtp::server
