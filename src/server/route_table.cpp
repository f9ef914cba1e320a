#include "route_table.h"

#include <limits>
#include <string>
#include <utility>

#include "aici/routes.h"
#include "anthropic/error.h"
#include "anthropic/routes.h"
#include "context.h"
#include "generation/read_body.h"
#include "http/message.h"
#include "http/metrics.h"
#include "http/openapi.h"
#include "http/pages.h"
#include "lmtp/session.h"
#include "lmtp/wasm/wasm.h"
#include "openai/error.h"
#include "openai/routes.h"
#include "responses/routes.h"
#include "systemone/routes.h"
#include "tgi/error.h"
#include "tgi/routes.h"
#include "ui/page.h"

namespace lmtp::server {
namespace {

using enum Right;

// ServerOptions::max_message_bytes, a small body, and the code of a controller.
constexpr std::size_t kMessage = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kSmall = std::size_t{64} << 10;
constexpr std::size_t kModule = wasm::kModuleBytesMax;

constexpr Api kOwn{"lmtp-serve", kOwnTypes};
constexpr Api kPage{"Page", kPageTypes};
constexpr Api kProbes{"Probes", "", "Health"};
constexpr Api kOpenAi{"OpenAI", kOpenAiTypes, "Error", openai_wrong_type};
constexpr Api kResponses{"OpenAI-Responses", kResponsesTypes, "Error", openai_wrong_type};
constexpr Api kAnthropic{"Anthropic", kAnthropicTypes, "AnthropicError", anthropic_wrong_type};
constexpr Api kSystemOne{"SystemOne", kSystemOneTypes, "Error", openai_wrong_type};
constexpr Api kTgi{"TGI", kTgiTypes, "TgiError", tgi_wrong_type};
constexpr Api kEither{"TGI-OpenAI", "", "TgiError|Error", tgi_wrong_type};
constexpr Api kAici{"AICI", kAiciTypes, "", aici_wrong_type};

constexpr auto kLora = &ServerOptions::allow_runtime_lora;
constexpr auto kUi = &ServerOptions::ui;

// clang-format off
constexpr Route kRoutes[] = {
    // method, path, right, limit of the body, handler, API, types of body, answer and events, docs
    {"", "/", kKey, 0, start_session, &kOwn, "", "", "", "lmtp.md#transport"},
    {"GET", "/", kKey, 0, answer_page, &kOwn, "", "text/html", "", "http.md#http"},
    {"GET", "/openapi.json", kKey, 0, answer_openapi, &kOwn,
     "", "object", "", "http.md#openapijson"},
    {"GET", "/health", kNone, 0, answer_health, &kProbes, "", "Health", "", "operations.md#watch"},
    {"GET", "/metrics", kAdmin, 0, answer_metrics, &kOwn,
     "", "text/plain", "", "metrics.md#metrics"},
    {"GET", "/ui", kNone, 0, answer_ui, &kPage, "", "text/html", "", "ui.md#the-page", kUi},
    {"GET", "/ui/app.css", kNone, 0, answer_ui_css, &kPage,
     "", "text/css", "", "ui.md#the-page", kUi},
    {"GET", "/ui/app.js", kNone, 0, answer_ui_js, &kPage,
     "", "text/javascript", "", "ui.md#the-page", kUi},
    {"POST", "/ui/ticket", kKey, 0, answer_ui_ticket, &kPage,
     "", "Ticket", "", "ui.md#keys-and-tickets", kUi},

    {"POST", "/v1/completions", kKey, kMessage, openai_completions, &kOpenAi,
     "CompletionRequest", "Completion", "Completion", "http.md#v1completions"},
    {"POST", "/v1/chat/completions", kKey, kMessage, openai_chat, &kOpenAi,
     "ChatRequest", "Chat", "ChatChunk", "http.md#v1chatcompletions"},
    {"POST", "/v1/decisions", kKey, kMessage, openai_decisions, &kOpenAi,
     "DecisionRequest", "Decision", "", "decisions.md#openai"},
    {"POST", "/generative_scoring", kKey, kMessage, openai_generative_scoring, &kOpenAi,
     "GenerativeScoringRequest", "GenerativeScoring", "", "decisions.md#generative_scoring"},
    {"POST", "/v1/embeddings", kKey, kMessage, openai_embeddings, &kOpenAi,
     "EmbeddingRequest", "EmbeddingList", "", "http.md#v1embeddings"},
    {"POST", "/v1/rerank", kKey, kMessage, openai_rerank, &kOpenAi,
     "RerankRequest", "Reranked", "", "http.md#v1rerank"},
    {"POST", "/rerank", kKey, kMessage, openai_rerank, &kOpenAi,
     "RerankRequest", "Reranked", "", "http.md#v1rerank"},
    {"POST", "/detokenize", kKey, kMessage, openai_detokenize, &kOpenAi,
     "DetokenizeRequest", "Detokenized", "", "http.md#openais-api"},
    {"GET", "/v1/models", kKey, 0, openai_models, &kOpenAi,
     "", "Models", "", "http.md#openais-api"},
    {"GET", "/v1/models/{name}", kKey, 0, openai_model, &kOpenAi,
     "", "Model", "", "http.md#openais-api"},
    {"POST", "/v1/load_lora_adapter", kAdmin, kSmall, load_adapter, &kOpenAi,
     "LoadAdapterRequest", "text/plain", "", "adapters.md#while-serving", kLora},
    {"POST", "/v1/unload_lora_adapter", kAdmin, kSmall, unload_adapter, &kOpenAi,
     "UnloadAdapterRequest", "text/plain", "", "adapters.md#while-serving", kLora},
    {"GET", "/version", kKey, 0, answer_version, &kOpenAi,
     "", "Version", "", "http.md#openais-api"},
    {"GET", "/load", kKey, 0, openai_load, &kOpenAi, "", "ServerLoad", "", "http.md#openais-api"},
    {"GET", "/tokenizer_info", kKey, 0, openai_tokenizer_info, &kOpenAi,
     "", "TokenizerInfo", "", "http.md#openais-api"},
    {"GET", "/ping", kKey, 0, answer_ping, &kProbes, "", "Health", "", "http.md#openais-api"},
    {"POST", "/ping", kKey, 0, answer_ping, &kProbes, "", "Health", "", "http.md#openais-api"},

    {"POST", "/v1/responses", kKey, kMessage, responses_create, &kResponses,
     "ResponseRequest", "Response", "ResponseEvent", "http.md#v1responses"},
    {"GET", "/v1/responses/{id}", kKey, 0, responses_get, &kResponses,
     "", "Response|ItemList", "", "http.md#v1responses"},
    {"DELETE", "/v1/responses/{id}", kKey, 0, responses_delete, &kResponses,
     "", "DeletedResponse", "", "http.md#v1responses"},

    {"POST", "/v1/messages", kKey, kMessage, anthropic_messages, &kAnthropic,
     "MessagesRequest", "AssistantMessage", "MessageEvent", "http.md#anthropics-api"},
    {"POST", "/v1/messages/count_tokens", kKey, kMessage, anthropic_count_tokens, &kAnthropic,
     "CountTokensRequest", "TokenCount", "", "http.md#anthropics-api"},

    {"POST", "/", kKey, kMessage, tgi_generate, &kTgi,
     "GenerateRequest", "Generated[]", "TokenEvent", "http.md#tgis-api"},
    {"POST", "/generate", kKey, kMessage, tgi_generate, &kTgi,
     "GenerateRequest", "Generated", "", "http.md#tgis-api"},
    {"POST", "/generate_stream", kKey, kMessage, tgi_generate, &kTgi,
     "GenerateRequest", "", "TokenEvent", "http.md#tgis-api"},
    {"POST", "/invocations", kKey, kMessage, invocations, &kEither,
     "GenerateRequest|CompletionRequest|ChatRequest", "Generated[]|Completion|Chat",
     "TokenEvent|Completion|ChatChunk", "http.md#tgis-api"},
    {"POST", "/tokenize", kKey, kMessage, tokenize, &kEither,
     "TgiTokenizeRequest|TokenizeRequest", "TgiToken[]|Tokenized", "", "http.md#tgis-api"},
    {"POST", "/chat_tokenize", kKey, kMessage, tgi_chat_tokenize, &kTgi,
     "ChatTokenizeRequest", "ChatTokenized", "", "http.md#tgis-api"},
    {"GET", "/info", kKey, 0, tgi_info, &kTgi, "", "Info", "", "http.md#tgis-api"},

    {"POST", "/v1/systemone", kKey, kMessage, systemone, &kSystemOne,
     "SystemOneRequest", "SystemOneAnswer", "", "decisions.md#system-one"},

    {"POST", "/v1/controllers{?model}", kAdmin, kModule, aici_upload, &kAici,
     "application/octet-stream", "Module", "", "http.md#aicis-api"},
    {"POST", "/v1/controllers/tags{?model}", kKey, kSmall, aici_set_tags, &kAici,
     "TagsRequest", "Tags", "", "http.md#aicis-api"},
    {"GET", "/v1/controllers/tags{?model}", kKey, 0, aici_tags, &kAici,
     "", "Tags", "", "http.md#aicis-api"},
    {"DELETE", "/v1/controllers/tags/{name}", kKey, 0, aici_untag, &kAici,
     "", "Tags", "", "http.md#aicis-api"},
    {"POST", "/v1/run", kKey, kMessage, aici_run, &kAici,
     "RunRequest", "", "InitialRun|Run", "http.md#aicis-api"},
};
// clang-format on

// The bodies of what the server itself refuses on paths that begin so; elsewhere they are text.
constexpr std::pair<std::string_view, ErrorBody> kErrorBodies[] = {
    {"/v1/messages", anthropic_refusal_json}, {"/v1/", openai_refusal_json},
    {"/generate", tgi_refusal_json},          {"/tokenize", tgi_refusal_json},
    {"/chat_tokenize", tgi_refusal_json},     {"/info", tgi_refusal_json},
    {"/invocations", tgi_refusal_json},       {"/rerank", openai_refusal_json},
};

HttpHandler handler_of(Handle* handle, ServerContext& context) {
  return [&context, handle](HttpRequest http, const auto& responder) {
    handle(context, http, responder);
  };
}

HttpHandler handler_of(Read* read, const Api& api, ServerContext& context) {
  return [&context, &api, read](HttpRequest http, const auto& responder) {
    if (!is_json(http)) return responder->send(api.wrong_type());
    read_body(context, std::move(http), responder, [&context, read, responder](HttpRequest whole) {
      return read(context, whole, responder);
    });
  };
}

void add(const Route& route, ServerContext& context) {
  const std::size_t end = route.path.find('{');
  HttpRoute row;
  row.method = route.method;
  row.path = route.path.substr(0, end);
  row.max_body_bytes =
      route.max_body_bytes == kMessage ? context.options.max_message_bytes : route.max_body_bytes;
  row.right = route.right;
  row.takes_below = end != std::string_view::npos && route.path[end + 1] != '?';
  if (Upgrade* const* upgrade = std::get_if<Upgrade*>(&route.handler)) {
    return context.routes.websocket(std::move(row.path), *upgrade);
  }
  if (Handle* const* handle = std::get_if<Handle*>(&route.handler)) {
    row.handler = handler_of(*handle, context);
  } else {
    row.handler = handler_of(std::get<Read*>(route.handler), *route.api, context);
  }
  context.routes.add(std::move(row));
}

}  // namespace

std::span<const Route> route_table() { return kRoutes; }

void add_routes(ServerContext& context) {
  for (const auto& [path, body] : kErrorBodies) {
    const bool is_anthropics = body == anthropic_refusal_json;
    context.routes.error_bodies(std::string(path), body,
                                is_anthropics ? anthropic_refusal_status : nullptr);
  }
  for (const Route& route : kRoutes) {
    if (is_served(route, context.options)) add(route, context);
  }
  context.openapi = openapi_text(context.options, context.keys.is_required());
}

}  // namespace lmtp::server
