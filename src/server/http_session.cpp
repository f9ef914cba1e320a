#include "http_session.h"

#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <chrono>
#include <utility>

#include "origin.h"
#include "session.h"

namespace lmtp::server {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

// For one request's header, the idle time between two, and one answer.
constexpr std::chrono::seconds kHttpTimeout{10};
constexpr std::uint32_t kMaxHeaderBytes = 16 * 1024;
// How long, and how often kMaxHeaderBytes, is read of what follows a request that was answered.
constexpr std::chrono::seconds kDrainTimeout{2};
constexpr int kMaxDrained = 64;

}  // namespace

HttpSession::HttpSession(std::shared_ptr<ServerContext> context,
                         boost::asio::ip::tcp::socket socket, bool refuse)
    : context_(std::move(context)),
      place_(context_->registry),
      refuse_(refuse),
      stream_(std::move(socket)),
      buffer_(kMaxHeaderBytes) {}

HttpSession::~HttpSession() = default;

void HttpSession::start() {
  if (!place_.fill(weak_from_this())) return;
  boost::asio::post(stream_.get_executor(), [self = shared_from_this()] { self->read(); });
}

void HttpSession::drop() {
  boost::asio::post(stream_.get_executor(), [self = shared_from_this()] { self->stream_.close(); });
}

void HttpSession::read() {
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  stream_.expires_after(kHttpTimeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, std::size_t) { self->on_read(error); });
}

void HttpSession::on_read(beast::error_code error) {
  const std::string_view version = context_->options.version;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return respond(refuse_http(http::status::request_header_fields_too_large,
                               "The header is longer than 16 KiB.", version));
  }
  const bool not_http =
      error.category() == http::make_error_code(http::error::bad_method).category();
  if (not_http && error != http::error::end_of_stream && error != http::error::partial_message) {
    return respond(refuse_http(http::status::bad_request, "This is not HTTP.", version));
  }
  if (error) return;  // gone, or silent for too long
  if (refuse_) {
    return respond(refuse_http(http::status::service_unavailable,
                               "Too many connections; try again later.", version));
  }
  HttpRequest request = parser_->release();
  if (auto refusal = refuse_foreign(request, context_->options, context_->on_loopback)) {
    return respond(*std::move(refusal));
  }
  if (beast::websocket::is_upgrade(request) && request.target() == "/") {
    stream_.expires_never();  // the WebSocket has limits of its own
    return start_session(context_, {std::move(stream_), std::move(buffer_), std::move(place_)},
                         std::move(request));
  }
  respond(answer_http(request, context_->models, version));
}

void HttpSession::respond(HttpResponse response) {
  const auto kept = std::make_shared<HttpResponse>(std::move(response));
  stream_.expires_after(kHttpTimeout);
  http::async_write(stream_, *kept,
                    [self = shared_from_this(), kept](beast::error_code error, std::size_t) {
                      self->on_written(error, kept->keep_alive());
                    });
}

void HttpSession::on_written(beast::error_code error, bool keep_alive) {
  if (error) return;
  if (keep_alive) return read();
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
  stream_.expires_after(kDrainTimeout);
  drain();
}

// Closing a socket while bytes of the request are unread would reset the connection and might take
// the answer with it: so they are read for a while.
void HttpSession::drain() {
  if (++num_drained_ > kMaxDrained) return;
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kMaxHeaderBytes),
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                            if (!error) self->drain();
                          });
}

}  // namespace lmtp::server
