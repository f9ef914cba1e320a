#include "pages.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "lmtp/base/json.h"
#include "lmtp/model_info.h"

namespace lmtp::server {
namespace {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Each $NAME is replaced by a value of the request or of the model.
constexpr std::string_view kPage = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>lmtp-serve</title>
<style>body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}
pre{background:#eee;padding:.7em;overflow:auto}</style></head><body>
<h1>lmtp-serve $VERSION</h1>
<p>This port speaks LMTP, the Language Model Transport Protocol of
<a href="https://lmql.ai">LMQL</a>: token ids go in and tokens with their log probabilities stream
out, over a WebSocket at <code>$URL</code>.</p>
<p>$MODELS A monitor finds this under <a href="/health">/health</a>.</p>
<h2>From LMQL</h2>
<pre>import lmql
model = lmql.model("$MODEL", endpoint="$ENDPOINT", tokenizer="$TOKENIZER")
print(model.generate_sync("Once upon a time", max_tokens=20))</pre>
<h2>From a terminal</h2>
<pre>lmtp-client "$MODEL" --tokenizer "$TOKENIZER" --host $ENDPOINT</pre>
<h2>From any WebSocket client</h2>
<pre>GENERATE {"stream_id": 1, "model": "$MODEL", "prompt": [40, 41], "max_tokens": 8}
SCORE {"stream_id": 2, "model": "$MODEL", "prompt": [40], "scored": [41]}
MODEL_INFO {"stream_id": 3, "model": "$MODEL"}
CANCEL {"stream_id": 1}</pre>
$UI<h2>Over HTTP</h2>
<p>Described for programs by <a href="/openapi.json">/openapi.json</a>.</p>
<table>
$ROUTES</table>
</body></html>
)";

constexpr std::string_view kUiSentence = R"(<h2>In a browser</h2>
<p><a href="ui">/ui</a> writes with the model, and shows what else it could have said.</p>
)";

std::string code(std::string_view text) { return "<code>" + escape_html(text) + "</code>"; }

// A sentence that names the served models and their states.
std::string models_sentence(const CallerModels& models) {
  const std::vector<registry::ModelStatus> all = models.list();
  if (!models.is_auto()) {
    if (!models.check("")) return "No model is served with this key.";
    if (all.empty()) return "The model is not there yet.";
    const registry::ModelStatus& only = all.front();
    return "Model: " + code(only.description.name) + ", " + std::string(state_name(only.state)) +
           " on " + escape_html(only.description.device) + ".";
  }
  std::string sentence = "Models are loaded when a request names them. Now: ";
  for (const registry::ModelStatus& model : all) {
    if (&model != &all.front()) sentence += ", ";
    sentence += code(model.description.name) + " " + std::string(state_name(model.state));
  }
  return sentence + (all.empty() ? "none." : ".");
}

// The model that the page's examples name.
registry::ModelDescription example_model(const CallerModels& models) {
  const std::vector<registry::ModelStatus> all = models.list();
  if (!all.empty()) return all.front().description;
  if (registry::ModelDescription own = models.default_model(); !own.name.empty()) return own;
  registry::ModelDescription unknown;
  unknown.name = "MODEL";
  unknown.tokenizer = "FOLDER OR NAME OF ITS TOKENIZER";
  return unknown;
}

// The rows of the table of routes.
std::string route_rows(const ServerOptions& options) {
  std::string rows;
  for (const Route& route : route_table()) {
    if (route.method.empty() || !is_served(route, options)) continue;
    const std::string_view path = route.path.substr(0, route.path.find("{?"));
    rows.append("<tr><td>").append(route.method).append("<td>").append(code(path));
    rows.append("<td>").append(route.api->name).append("<td>docs/").append(route.docs) += '\n';
  }
  return rows;
}

std::string fill_page(std::string_view host, bool is_tls, const CallerModels& models,
                      const ServerOptions& options) {
  const registry::ModelDescription example = example_model(models);
  const std::string address = escape_html(host.empty() ? "HOST:PORT" : host);
  const std::pair<std::string_view, std::string> values[] = {
      {"$VERSION", escape_html(options.version)},
      {"$URL", (is_tls ? "wss://" : "ws://") + address + "/"},
      {"$ENDPOINT", is_tls ? "https://" + address + "/" : address},
      {"$MODELS", models_sentence(models)},
      {"$MODEL", escape_html(example.name)},
      {"$TOKENIZER", escape_html(example.tokenizer)},
      {"$ROUTES", route_rows(options)},
      {"$UI", options.ui ? std::string(kUiSentence) : ""},
  };
  std::string page;
  std::string_view rest = kPage;
  for (std::size_t at = rest.find('$'); at != std::string_view::npos; at = rest.find('$')) {
    page.append(rest.substr(0, at));
    rest.remove_prefix(at);
    std::size_t num_read = 0;
    for (const auto& [name, value] : values) {
      if (num_read > 0 || !rest.starts_with(name)) continue;
      page.append(value);
      num_read = name.size();
    }
    if (num_read == 0) page.push_back(rest[num_read++]);
    rest.remove_prefix(num_read);
  }
  return page.append(rest);
}

}  // namespace

HttpResponse landing_page(std::string_view host, bool is_tls, const CallerModels& models,
                          const ServerOptions& options) {
  return {200,
          "text/html; charset=utf-8",
          fill_page(host, is_tls, models, options),
          {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}}};
}

// "model" and "status" of a static server; of an auto server the models that are ready.
HttpResponse health(const CallerModels& models, bool names_models) {
  const bool healthy = models.healthy();
  OrderedJson said;
  if (models.is_auto()) {
    OrderedJson loaded = OrderedJson::array();
    for (const registry::ModelStatus& model : models.list()) {
      if (model.state == registry::ModelState::kReady) loaded.push_back(model.description.name);
    }
    said = {{"status", healthy ? "ready" : "stopping"}, {"model", "auto"}, {"loaded", loaded}};
  } else {
    const auto state = models.only_state();
    const auto status = models.status("");
    const bool known = status && status->ok();
    said = {{"status", state ? state_name(*state) : "unavailable"},
            {"model", known ? (*status)->description.name : ""}};
  }
  if (!names_models) said = {{"status", said["status"]}};
  if (!healthy) {  // in TGI's words, too
    said["error"] = "unhealthy";
    said["error_type"] = "healthcheck";
  }
  return {healthy ? 200 : 503, "application/json", json_text(said) + "\n"};
}

void answer_page(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const std::string* const host = http.field("Host");
  responder->send(landing_page(host != nullptr ? *host : "", context.tls.enabled(),
                               context.generation.models.of(responder->caller()), context.options));
}

void answer_health(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  const bool may_see = !context.keys.is_required() || responder->caller()->account != nullptr;
  responder->send(health(context.generation.models.of(responder->caller()), may_see));
}

void answer_ping(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  responder->send(health(context.generation.models.of(responder->caller())));
}

void answer_version(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  responder->send(
      {200, "application/json", json_text({{"version", context.options.version}}) + "\n"});
}

}  // namespace lmtp::server
