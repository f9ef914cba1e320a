// The HTTP routes of the server: route_table.cpp has all of them on one screen. The routing itself,
// GET / and GET /openapi.json are made from that table.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "lmtp/server/http.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

struct ServerContext;

using ResponderPtr = std::shared_ptr<HttpResponder>;
using Then = std::function<void()>;

// Answers a request. May move from it. Thread: the strand of the responder.
using Handle = void(ServerContext&, HttpRequest&, const ResponderPtr&);
// Reads a request whose body was sent as JSON, and returns what answers it: read_body() says on
// which threads. May move from the request.
using Read = Then(ServerContext&, HttpRequest&, const ResponderPtr&);
using Upgrade = void(WebSocketUpgrade&);

// The API that a route belongs to.
struct Api {
  std::string_view name;
  std::string_view types;                  // its tables of fields (http/schemas.h)
  std::string_view error = {};             // the type of its error bodies; empty: text/plain
  HttpResponse (*wrong_type)() = nullptr;  // where the body was not sent as JSON
};

struct Route {
  std::string_view method;  // empty: the handler takes WebSockets
  // "{name}" at the end: all paths that begin with what is before it. "{?name}": the query may have
  // that parameter.
  std::string_view path;
  Right right = Right::kKey;
  std::size_t max_body_bytes = 0;  // 0: a body is not read
  std::variant<Handle*, Read*, Upgrade*> handler;
  const Api* api = nullptr;
  // The types of the body, of the answer to it and of the events of a streamed answer, as in the
  // tables of fields (http/schemas.h); or a media type.
  std::string_view body;
  std::string_view answer;
  std::string_view event;
  std::string_view docs;                        // file and anchor in docs/
  bool ServerOptions::*needs_option = nullptr;  // null: always served
};

std::span<const Route> route_table();

inline bool is_served(const Route& route, const ServerOptions& options) {
  return route.needs_option == nullptr || options.*route.needs_option;
}

// Adds the routes of the table that are served with the context's options. Before the server
// starts; `context` outlives the connections.
void add_routes(ServerContext& context);

}  // namespace lmtp::server
