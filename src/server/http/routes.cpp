#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/server/http.h"
#include "message.h"
#include "net/mailroom.h"

namespace lmtp::server {
namespace {

bool takes(const HttpRoute& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

bool is_at(const HttpRoute& route, std::string_view path) {
  return route.takes_below ? path.starts_with(route.path) : path == route.path;
}

// Events are delivered on any thread and handled on the connection's strand.
class PostingSink : public EventSink,
                    public Mail,
                    public std::enable_shared_from_this<PostingSink> {
 public:
  using Handle = std::function<void(std::span<StreamEvent>)>;

  PostingSink(std::shared_ptr<HttpResponder> responder, Handle handle)
      : responder_(std::move(responder)), handle_(std::move(handle)) {}

  void deliver(std::span<StreamEvent> events) override {
    const std::shared_ptr<Mailroom> mailroom = responder_->mailroom();
    if (mailroom == nullptr) return;
    add(events);
    mailroom->put(shared_from_this());
  }
  std::shared_ptr<Waker> waker() override { return responder_->mailroom(); }

 private:
  void collect() override {
    responder_->post([self = shared_from_this()] { self->take(self->handle_); });
  }

  const std::shared_ptr<HttpResponder> responder_;
  const Handle handle_;
};

// Paths that clients of other servers ask for, and where to find the same here.
struct Neighbour {
  std::string_view path;
  std::string_view instead;
};
constexpr std::array kNeighbours = {
    Neighbour{"/v1/messages/batches", "there are no batches: chats are at /v1/messages"},
    Neighbour{"/chat/completions", "the base URL ends with /v1: /v1/chat/completions"},
    Neighbour{"/completions", "the base URL ends with /v1: /v1/completions"},
    Neighbour{"/completion", "texts are continued at /v1/completions and /generate"},
    Neighbour{"/models", "the base URL ends with /v1: /v1/models"},
    Neighbour{"/api/chat", "chats are at /v1/chat/completions"},
    Neighbour{"/api/generate", "texts are continued at /v1/completions and /generate"},
    Neighbour{"/api/tags", "the models are listed at /v1/models"},
    Neighbour{"/embeddings", "the base URL ends with /v1: /v1/embeddings"},
    Neighbour{"/v1/v1/", "the base URL has /v1 once"},
};

// A sentence; empty: there is none.
std::string neighbour_of(std::string_view path) {
  const auto* found = std::ranges::find_if(kNeighbours, [&](const Neighbour& row) {
    return path == row.path || (path.starts_with(row.path) && row.path.ends_with('/'));
  });
  return found == kNeighbours.end()
             ? ""
             : "For " + std::string(found->path) + ": " + std::string(found->instead) + ". ";
}

}  // namespace

const std::string* HttpRequest::field(std::string_view name) const {
  const auto found = std::ranges::find_if(
      fields, [&](const HttpField& field) { return equal_names(field.name, name); });
  return found == fields.end() ? nullptr : &found->value;
}

std::shared_ptr<EventSink> make_event_sink(std::shared_ptr<HttpResponder> responder,
                                           std::function<void(std::span<StreamEvent>)> handle) {
  return std::make_shared<PostingSink>(std::move(responder), std::move(handle));
}

void HttpRoutes::add(HttpRoute route) {
  LMTP_CHECK(route.takes_below || find(route.method, route.path) == nullptr, route.path);
  routes_.push_back(std::move(route));
}

void HttpRoutes::websocket(std::string target, UpgradeHandler handler) {
  LMTP_CHECK(find_websocket(target) == nullptr, target);
  websockets_.push_back({std::move(target), std::move(handler)});
}

const HttpRoute* HttpRoutes::find(std::string_view method, std::string_view path) const {
  const HttpRoute* below = nullptr;
  for (const HttpRoute& route : routes_) {
    if (!takes(route, method) || !is_at(route, path)) continue;
    if (!route.takes_below) return &route;
    below = &route;
  }
  return below;
}

const UpgradeHandler* HttpRoutes::find_websocket(std::string_view target) const {
  const auto found = std::ranges::find(websockets_, target, &WebSocketRoute::target);
  return found == websockets_.end() ? nullptr : &found->handler;
}

std::string HttpRoutes::methods(std::string_view path) const {
  std::string list;
  for (const std::string_view method : {"GET", "HEAD", "POST"}) {
    if (find(method, path) != nullptr) list.append(list.empty() ? "" : ", ").append(method);
  }
  return list;
}

HttpResponse HttpRoutes::refusal(std::string_view method, std::string_view path) const {
  const bool has_path =
      std::ranges::any_of(routes_, [&](const HttpRoute& route) { return is_at(route, path); });
  const bool has_method =
      std::ranges::any_of(routes_, [&](const HttpRoute& route) { return takes(route, method); });
  if (!has_path && has_method) {
    return plain_text(404, "There is nothing here. " + neighbour_of(path) +
                               "/ says how to connect, /health whether the model can answer; LMTP "
                               "is spoken over a WebSocket at /.");
  }
  std::vector<std::string_view> allowed;
  for (const std::string_view taken : {"GET", "HEAD", "POST"}) {
    const bool here = std::ranges::any_of(routes_, [&](const HttpRoute& route) {
      return takes(route, taken) && (!has_path || is_at(route, path));
    });
    if (here) allowed.push_back(taken);
  }
  std::string field;
  std::string sentence = allowed.size() == 1 ? "Allowed is " : "Allowed are ";
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (i > 0) field += ", ";
    field += allowed[i];
    if (i > 0) sentence += i + 1 == allowed.size() ? " and " : ", ";
    sentence += allowed[i];
  }
  HttpResponse response = plain_text(405, sentence + "; LMTP is spoken over a WebSocket at /.");
  response.fields.push_back({"Allow", field});
  return response;
}

void HttpRoutes::error_bodies(std::string path, ErrorBody body, ErrorStatus status) {
  error_bodies_.push_back({std::move(path), body, status});
}

HttpResponse HttpRoutes::with_error_body(std::string_view path, HttpResponse refusal) const {
  const auto found = std::ranges::find_if(
      error_bodies_, [&](const ErrorBodies& row) { return path.starts_with(row.path); });
  if (found == error_bodies_.end() || !refusal.type.starts_with("text/plain")) return refusal;
  const std::string_view sentence =
      std::string_view(refusal.body).substr(0, refusal.body.find('\n'));
  if (found->status != nullptr) refusal.status = found->status(refusal.status, sentence);
  refusal.body = found->body(refusal.status, sentence);
  refusal.type = "application/json";
  return refusal;
}

}  // namespace lmtp::server
