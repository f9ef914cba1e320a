// HTTP endpoints: what a handler is given and how it answers. Sockets, limits, chunks and
// keep-alive are the server's; a handler sees none of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/caller.h"
#include "lmtp/request/event.h"

namespace lmtp::server {

class Mailroom;  // src/server/net/mailroom.h

struct HttpField {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;             // as sent; the handler of GET gets HEAD too
  std::string path;               // of the target, up to the '?'
  std::string query;              // after the '?', without a key
  std::vector<HttpField> fields;  // of the header, in their order, without keys
  std::string body;               // empty where the route takes none

  // The first field of this name, upper or lower case; null: there is none.
  const std::string* field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type;  // Content-Type
  std::string body;
  std::vector<HttpField> fields = {};  // more of the header; no line breaks within
};

// Where the answer to one request goes: either send(), or begin(), write() as often as need be, and
// end(); what comes out of that order is logged and cuts the connection. Once the client is gone,
// or the answer whole, nothing happens any more. Shared by the code that answers; when the
// last reference goes without an answer the client gets 500, or one that was begun is cut. Thread:
// the connection's strand, which is where the handler and the work of post() run; post() and the
// destructor: any.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void send(HttpResponse response) = 0;

  // A streamed answer: the header now (no body in it), then the body piece by piece. What waits to
  // be written has a limit (ServerOptions::max_write_queue_bytes): a client that does not read
  // loses its connection, and on_gone's callback is called within the write.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string_view piece) = 0;
  virtual void end() = 0;

  // Called once where the client goes before the answer is whole: it has closed its side, does not
  // read, or the server stops. For cancelling what is computed for it. The last one given counts.
  virtual void on_gone(std::function<void()> callback) = 0;

  // Calls `callback` each time that nothing has been written for so long, until the answer is
  // whole. The last one given counts.
  virtual void on_silence(std::chrono::milliseconds interval, std::function<void()> callback) = 0;

  // Runs `work` on the strand, after what was posted before; never within the call. Dropped where
  // the client is gone or the answer whole.
  virtual void post(std::function<void()> work) = 0;

  // Where what models deliver to a sink of this request waits for the strand; for
  // make_event_sink(). Null where the client is gone. Any thread.
  virtual std::shared_ptr<Mailroom> mailroom() = 0;

  // By what the streams of this request are known (StreamKey::connection): no other request and no
  // other connection has it.
  virtual ConnectionId id() const = 0;
  // A fresh id for the answer, `prefix` and random digits: it is the request's too, in the header
  // and in the log, where its client has sent none. Call before anything is submitted.
  virtual std::string begin_id(std::string_view prefix) = 0;
  // Request::caller. Never null.
  virtual std::shared_ptr<const Caller> caller() const = 0;
  // Request::others_connected. From the first call to the answer's end this one counts for others.
  virtual bool others_connected() = 0;
};

// Gives the events of a request's streams to `handle`, which may move from them, on the strand of
// `responder`.
std::shared_ptr<EventSink> make_event_sink(std::shared_ptr<HttpResponder> responder,
                                           std::function<void(std::span<StreamEvent>)> handle);

using HttpHandler = std::function<void(HttpRequest, const std::shared_ptr<HttpResponder>&)>;

// What a request needs where the server asks for keys.
enum class Right { kNone, kKey, kAdmin };

struct HttpRoute {
  std::string method;  // "GET" is HEAD, too: the same without the body
  std::string path;
  std::size_t max_body_bytes = 0;  // longer ones are refused with 413; 0: a body is not read
  HttpHandler handler;
  Right right = Right::kKey;
  bool takes_below = false;  // all paths that begin with `path` and have no route of their own
};

// The body of a refusal, as JSON.
using ErrorBody = std::string (*)(int status, std::string_view sentence);
// Its status, where an API has others.
using ErrorStatus = int (*)(int status, std::string_view sentence);

struct WebSocketUpgrade;  // src/server/http/upgrade.h
using UpgradeHandler = std::function<void(WebSocketUpgrade&)>;

// The routes of a server. Owner: the server. Filled before it starts and not changed from then on;
// handlers run on any io thread, several at a time.
class HttpRoutes {
 public:
  // REQUIRES: no other route has its method and path.
  void add(HttpRoute route);
  // `target` is compared whole, with its query; a key in it left out.
  void websocket(std::string target, UpgradeHandler handler);

  // Null: there is no such route.
  const HttpRoute* find(std::string_view method, std::string_view path) const;
  const UpgradeHandler* find_websocket(std::string_view target) const;
  // The methods that the path takes, as "GET, HEAD, POST"; empty: it has no route.
  std::string methods(std::string_view path) const;
  // The answer where find() gives none: 404, or 405 where the path takes other methods or no path
  // takes this method.
  HttpResponse refusal(std::string_view method, std::string_view path) const;

  // The body of the server's own refusals on paths that begin with `path`, and their status; null:
  // that which they have.
  void error_bodies(std::string path, ErrorBody body, ErrorStatus status = nullptr);
  HttpResponse with_error_body(std::string_view path, HttpResponse refusal) const;

 private:
  struct WebSocketRoute {
    std::string target;
    UpgradeHandler handler;
  };

  struct ErrorBodies {
    std::string path;
    ErrorBody body;
    ErrorStatus status;
  };

  std::vector<HttpRoute> routes_;
  std::vector<ErrorBodies> error_bodies_;
  std::vector<WebSocketRoute> websockets_;
};

}  // namespace lmtp::server
