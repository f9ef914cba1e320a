#include "pages.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

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

// $NAME in the page stands for what the request and the model say.
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
</body></html>
)";

std::string code(std::string_view text) { return "<code>" + escape_html(text) + "</code>"; }

// What is served, as a sentence.
std::string models_sentence(const registry::Models& models) {
  const std::vector<registry::ModelStatus> all = models.list();
  if (!models.is_auto()) {
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

// The model for the examples.
registry::ModelDescription example_model(const registry::Models& models) {
  const std::vector<registry::ModelStatus> all = models.list();
  if (!all.empty()) return all.front().description;
  if (!models.default_model().name.empty()) return models.default_model();
  registry::ModelDescription unknown;
  unknown.name = "MODEL";
  unknown.tokenizer = "FOLDER OR NAME OF ITS TOKENIZER";
  return unknown;
}

std::string fill_page(std::string_view host, bool is_tls, const registry::Models& models,
                      std::string_view version) {
  const registry::ModelDescription example = example_model(models);
  const std::string address = escape_html(host.empty() ? "HOST:PORT" : host);
  const std::pair<std::string_view, std::string> values[] = {
      {"$VERSION", escape_html(version)},
      {"$URL", (is_tls ? "wss://" : "ws://") + address + "/"},
      {"$ENDPOINT", is_tls ? "https://" + address + "/" : address},
      {"$MODELS", models_sentence(models)},
      {"$MODEL", escape_html(example.name)},
      {"$TOKENIZER", escape_html(example.tokenizer)},
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

HttpResponse landing_page(std::string_view host, bool is_tls, const registry::Models& models,
                          std::string_view version) {
  return {200,
          "text/html; charset=utf-8",
          fill_page(host, is_tls, models, version),
          {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}}};
}

// "model" and "status" of a static server; of an auto server the models that are ready.
HttpResponse health(const registry::Models& models, bool names_models) {
  const bool healthy = models.healthy();
  OrderedJson said;
  if (models.is_auto()) {
    OrderedJson loaded = OrderedJson::array();
    for (const registry::ModelStatus& model : models.list()) {
      if (model.state == registry::ModelState::kReady) loaded.push_back(model.description.name);
    }
    said = {{"status", healthy ? "ready" : "stopping"}, {"model", "auto"}, {"loaded", loaded}};
  } else {
    const auto status = models.status("");
    const bool known = status && status->ok();
    said = {{"status", known ? state_name((*status)->state) : "unavailable"},
            {"model", known ? (*status)->description.name : ""}};
  }
  if (!names_models) said = {{"status", said["status"]}};
  if (!healthy) {  // in TGI's words, too
    said["error"] = "unhealthy";
    said["error_type"] = "healthcheck";
  }
  return {healthy ? 200 : 503, "application/json", json_text(said) + "\n"};
}

void add_pages(HttpRoutes& routes, bool is_tls, const registry::Models& models,
               std::string_view version, bool needs_key) {
  routes.get("/", [is_tls, &models, version = std::string(version)](const HttpRequest& request,
                                                                    const auto& responder) {
    const std::string* const host = request.field("Host");
    responder->send(landing_page(host != nullptr ? *host : "", is_tls, models, version));
  });
  routes.get(
      "/health",
      [&models, needs_key](const HttpRequest& /*request*/, const auto& responder) {
        responder->send(health(models, !needs_key || responder->caller()->account != nullptr));
      },
      Right::kNone);
}

}  // namespace lmtp::server
