#include "http.h"

#include <boost/beast/http/verb.hpp>
#include <boost/beast/version.hpp>
#include <utility>
#include <vector>

#include "lmtp/protocol/codec.h"
#include "model_info.h"

namespace lmtp::server {
namespace {

namespace http = boost::beast::http;

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
out, over a WebSocket at <code>ws://$HOST/</code>.</p>
<p>$MODELS A monitor finds this under <a href="/health">/health</a>.</p>
<h2>From LMQL</h2>
<pre>import lmql
model = lmql.model("$MODEL", endpoint="$HOST", tokenizer="$TOKENIZER")
print(model.generate_sync("Once upon a time", max_tokens=20))</pre>
<h2>From a terminal</h2>
<pre>lmtp-client "$MODEL" --tokenizer "$TOKENIZER" --host $HOST</pre>
<h2>From any WebSocket client</h2>
<pre>GENERATE {"stream_id": 1, "model": "$MODEL", "prompt": [40, 41], "max_tokens": 8}
SCORE {"stream_id": 2, "model": "$MODEL", "prompt": [40], "scored": [41]}
MODEL_INFO {"stream_id": 3, "model": "$MODEL"}
CANCEL {"stream_id": 1}</pre>
</body></html>
)";

std::string code(std::string_view text) { return "<code>" + escape_html(text) + "</code>"; }

// What is served, as a sentence.
std::string models_sentence(const engine::ModelManager& models) {
  const std::vector<engine::ModelStatus> all = models.list();
  if (!models.is_auto()) {
    if (all.empty()) return "The model is not there yet.";
    const engine::ModelStatus& only = all.front();
    return "Model: " + code(only.description.name) + ", " + std::string(state_name(only.state)) +
           " on " + escape_html(only.description.device) + ".";
  }
  std::string sentence = "Models are loaded when a request names them. Now: ";
  for (const engine::ModelStatus& model : all) {
    if (&model != &all.front()) sentence += ", ";
    sentence += code(model.description.name) + " " + std::string(state_name(model.state));
  }
  return sentence + (all.empty() ? "none." : ".");
}

// The model for the examples.
engine::ModelDescription example_model(const engine::ModelManager& models) {
  const std::vector<engine::ModelStatus> all = models.list();
  if (!all.empty()) return all.front().description;
  if (!models.default_model().name.empty()) return models.default_model();
  engine::ModelDescription unknown;
  unknown.name = "MODEL";
  unknown.tokenizer = "FOLDER OR NAME OF ITS TOKENIZER";
  return unknown;
}

std::string fill_page(std::string_view host, const engine::ModelManager& models,
                      std::string_view version) {
  const engine::ModelDescription example = example_model(models);
  const std::pair<std::string_view, std::string> values[] = {
      {"$VERSION", escape_html(version)},
      {"$HOST", escape_html(host.empty() ? "HOST:PORT" : host)},
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

HttpResponse make_response(http::status status, std::string_view type, std::string body,
                           std::string_view version) {
  HttpResponse response(status, 11);
  response.set(http::field::server, "lmtp-serve/" + std::string(version));
  response.set(http::field::content_type, type);
  response.set(http::field::cache_control, "no-store");
  response.body() = std::move(body);
  return response;
}

// "model" and "status" of a static server; of an auto server the models that are ready.
HttpResponse answer_health(const engine::ModelManager& models, std::string_view version) {
  const bool healthy = models.healthy();
  std::string body = R"({"status": ")";
  if (models.is_auto()) {
    body += healthy ? R"(ready", "model": "auto", "loaded": [)"
                    : R"(stopping", "model": "auto", "loaded": [)";
    for (const engine::ModelStatus& model : models.list()) {
      if (model.state != engine::ModelState::kReady) continue;
      if (body.back() != '[') body += ", ";
      protocol::append_json_string(model.description.name, body);
    }
    body += "]}\n";
  } else {
    const auto status = models.status("");
    const bool known = status && status->ok();
    body += known ? state_name((*status)->state) : "unavailable";
    body += R"(", "model": )";
    protocol::append_json_string(known ? (*status)->description.name : "", body);
    body += "}\n";
  }
  return make_response(healthy ? http::status::ok : http::status::service_unavailable,
                       "application/json", std::move(body), version);
}

HttpResponse answer_page(const HttpRequest& request, const engine::ModelManager& models,
                         std::string_view version) {
  const auto host = request[http::field::host];
  HttpResponse response =
      make_response(http::status::ok, "text/html; charset=utf-8",
                    fill_page({host.data(), host.size()}, models, version), version);
  response.set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
  return response;
}

HttpResponse answer_get(const HttpRequest& request, const engine::ModelManager& models,
                        std::string_view version) {
  const auto target = request.target();
  const std::string_view path =
      std::string_view(target.data(), target.size()).substr(0, target.find('?'));
  if (path == "/") return answer_page(request, models, version);
  if (path == "/health") return answer_health(models, version);
  return make_response(http::status::not_found, "text/plain; charset=utf-8",
                       "There is nothing here. / says how to connect, /health whether the model "
                       "can answer; LMTP is spoken over a WebSocket at /.\n",
                       version);
}

}  // namespace

HttpResponse answer_http(const HttpRequest& request, const engine::ModelManager& models,
                         std::string_view version) {
  const bool is_head = request.method() == http::verb::head;
  if (!is_head && request.method() != http::verb::get) {
    HttpResponse response =
        make_response(http::status::method_not_allowed, "text/plain; charset=utf-8",
                      "Allowed are GET and HEAD; LMTP is spoken over a WebSocket at /.\n", version);
    response.set(http::field::allow, "GET, HEAD");
    response.keep_alive(false);  // a body may follow, which nobody reads
    response.prepare_payload();
    return response;
  }
  HttpResponse response = answer_get(request, models, version);
  // A body is legal but nobody reads it, so what follows it could not be told from it.
  const bool has_body = request.has_content_length() || request.chunked();
  response.keep_alive(request.keep_alive() && !has_body);
  response.prepare_payload();
  if (is_head) response.body().clear();  // the length stays
  return response;
}

HttpResponse refuse_http(http::status status, std::string_view text, std::string_view version) {
  HttpResponse response =
      make_response(status, "text/plain; charset=utf-8", std::string(text) + "\n", version);
  response.keep_alive(false);
  response.prepare_payload();
  return response;
}

}  // namespace lmtp::server
