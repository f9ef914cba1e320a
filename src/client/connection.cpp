#include "connection.h"

#include <openssl/ssl.h>
#include <sys/eventfd.h>
#include <sys/un.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/base/text.h"

namespace lmtp::client {
namespace {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;
using asio::ip::tcp;

constexpr const char* kInterrupted = "interrupted";
constexpr std::size_t kAnswerBytesMax = 300;  // of a refusal, for an error's sentence
// A larger read buffer is freed after its message.
constexpr std::size_t kReadBufferKeptBytes = std::size_t{1} << 20;

}  // namespace

Connection::Connection() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), wake_(io_) {
  LMTP_CHECK(wake_fd_ >= 0, "eventfd: no descriptor left");
  wake_.assign(wake_fd_);
  watch_wake_fd();
}

Connection::~Connection() { close(); }

void Connection::watch_wake_fd() {
  asio::async_read(wake_, asio::buffer(&wake_value_, sizeof(wake_value_)),
                   [this](ErrorCode error, std::size_t) {
                     if (error) return;
                     interrupted_ = true;
                     watch_wake_fd();
                   });
}

Connection::Wait Connection::run_until(const std::function<bool()>& done, int timeout_ms,
                                       bool interruptible) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (done()) return Wait::kDone;
    if (interruptible && interrupted_) {
      interrupted_ = false;
      return Wait::kInterrupted;
    }
    io_.restart();
    std::size_t num_run = 0;
    if (timeout_ms < 0) {
      num_run = io_.run_one();
    } else if (Clock::now() < deadline) {
      num_run = io_.run_one_until(deadline);
    } else {
      num_run = io_.poll_one();  // even with a timeout of 0, ready handlers run
    }
    if (num_run == 0) return done() ? Wait::kDone : Wait::kTimedOut;
  }
}

std::string Connection::wait_for(std::optional<ErrorCode>& result, int timeout_ms) {
  switch (run_until([&result] { return result.has_value(); }, timeout_ms, true)) {
    case Wait::kDone:
      return *result ? result->message() : "";
    case Wait::kTimedOut:
      return "no answer within " + std::to_string(timeout_ms) + " ms";
    case Wait::kInterrupted:
      break;
  }
  return kInterrupted;
}

Result<void> Connection::connect(const std::string& host, std::uint16_t port, int timeout_ms,
                                 const Security& security) {
  close();
  io_.restart();
  io_.poll();  // discards an earlier wake
  interrupted_ = false;
  end_reason_.clear();
  messages_.clear();
  held_bytes_ = 0;
  read_buffer_.clear();
  const auto began = Clock::now();
  const bool is_unix = host.starts_with(kUnixScheme);
  const std::string where = address_text(host, port);
  socket_.emplace(Protocol::socket(io_));
  std::string error = is_unix ? connect_to_unix(host.substr(kUnixScheme.size()), timeout_ms)
                              : resolve_and_connect(host, port, timeout_ms);
  const auto code = [&error] {
    return error == kInterrupted ? lmtp::ErrorCode::kCancelled : lmtp::ErrorCode::kUnavailable;
  };
  if (!error.empty()) {
    drop_socket();
    return Error{code(), "cannot connect to " + where + ": " + error +
                             "; is a server running there (lmtp-serve)?"};
  }
  const auto left_ms = [&] {
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
    return std::max(0, timeout_ms - static_cast<int>(spent.count()));
  };
  if (security.tls && !is_unix) {
    error = start_tls(host, *security.tls, left_ms());
    if (!error.empty()) {
      drop_socket();
      return Error{code(), "no TLS connection to " + where + ": " + error};
    }
  }
  error = upgrade(is_unix ? "localhost" : where, security, left_ms());
  if (!error.empty()) {
    drop_socket();
    return Error{code(), where + " does not answer as an LMTP server (WebSocket at /): " + error};
  }
  return {};
}

std::string Connection::resolve_and_connect(const std::string& host, std::uint16_t port,
                                            int timeout_ms) {
  // Shared, since after a timeout the handlers outlive this call.
  struct State {
    explicit State(asio::io_context& io) : resolver(io) {}
    tcp::resolver resolver;
    std::optional<ErrorCode> result;
  };
  const auto state = std::make_shared<State>(io_);
  state->resolver.async_resolve(
      host, std::to_string(port),
      [this, state](ErrorCode error, const tcp::resolver::results_type& found) {
        if (error || !socket_) {
          state->result = error;
          return;
        }
        std::vector<Protocol::endpoint> endpoints;
        for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
        asio::async_connect(tcp(), endpoints, [state](ErrorCode failed, const auto& /*endpoint*/) {
          state->result = failed;
        });
      });
  std::string error = wait_for(state->result, timeout_ms);
  if (!error.empty()) state->resolver.cancel();
  return error;
}

std::string Connection::connect_to_unix(const std::string& path, int timeout_ms) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return "the path is empty or longer than a Unix socket's may be";
  }
  const auto result = std::make_shared<std::optional<ErrorCode>>();
  tcp().async_connect(asio::local::stream_protocol::endpoint(path),
                      [result](ErrorCode error) { *result = error; });
  return wait_for(*result, timeout_ms);
}

// The certificate must be the host's, and its chain one that the context trusts.
std::string Connection::start_tls(const std::string& host, tls::Context& context, int timeout_ms) {
  auto& stream = socket_->next_layer().start_tls(context);
  SSL* const native = stream.native_handle();
  ErrorCode no_address;
  asio::ip::make_address(host, no_address);
  if (no_address) SSL_set_tlsext_host_name(native, host.c_str());
  SSL_set1_host(native, host.c_str());
  const auto result = std::make_shared<std::optional<ErrorCode>>();
  stream.async_handshake(asio::ssl::stream_base::client,
                         [result](ErrorCode error) { *result = error; });
  std::string error = wait_for(*result, timeout_ms);
  if (error.empty() || error == kInterrupted) return error;
  if (const long why = SSL_get_verify_result(native); why != X509_V_OK) {
    return std::string("its certificate is not trusted: ") + X509_verify_cert_error_string(why) +
           "; --cacert FILE names the authority that signed it, --insecure takes any";
  }
  return error + "; does it speak TLS there?";
}

std::string Connection::upgrade(const std::string& authority, const Security& security,
                                int timeout_ms) {
  ErrorCode ignored;
  tcp().set_option(tcp::no_delay(true), ignored);
  socket_->read_message_max(security.message_bytes_max);
  socket_->set_option(websocket::stream_base::decorator(
      [api_key = security.api_key](websocket::request_type& request) {
        request.set(boost::beast::http::field::user_agent, "lmtp-client");
        if (api_key.empty()) return;
        request.set(boost::beast::http::field::authorization, "Bearer " + api_key);
      }));
  const auto response = std::make_shared<websocket::response_type>();
  const auto result = std::make_shared<std::optional<ErrorCode>>();
  socket_->async_handshake(*response, authority, "/",
                           [response, result](ErrorCode error) { *result = error; });
  std::string error = wait_for(*result, timeout_ms);
  if (*result == websocket::error::upgrade_declined) {
    error =
        "HTTP " + std::to_string(response->result_int()) + " " + std::string(response->reason());
    const std::string& said = response->body();
    if (!said.empty()) error += ": " + shortened(said.substr(0, said.find('\n')), kAnswerBytesMax);
  }
  if (error.empty()) socket_->text(true);
  return error;
}

Result<void> Connection::send(const std::string& text) {
  if (!open()) {
    return Error{lmtp::ErrorCode::kUnavailable,
                 end_reason_.empty() ? "not connected" : end_reason_};
  }
  std::optional<ErrorCode> result;
  sending_ = true;
  start_read();
  socket_->async_write(asio::buffer(text),
                       [&result](ErrorCode error, std::size_t) { result = error; });
  const Wait wait = run_until([&result] { return result.has_value(); }, kSendTimeoutMs, false);
  sending_ = false;
  if (wait == Wait::kDone && !*result) return {};
  if (wait == Wait::kTimedOut) {
    end("the server has not read for " + std::to_string(kSendTimeoutMs / 1000) + " s");
    ErrorCode ignored;
    tcp().close(ignored);
    run_until([&result] { return result.has_value(); }, -1, false);  // it refers to `text`
  } else {
    // The server's close reason, if any, is a better message than "broken pipe".
    run_until([this] { return !reading_; }, kCloseTimeoutMs, false);
    end(describe(*result));
  }
  return Error{lmtp::ErrorCode::kUnavailable, end_reason_};
}

Result<bool> Connection::receive(ReceivedMessage& message, int timeout_ms) {
  const auto has_news = [this] { return !messages_.empty() || !open(); };
  const auto read_on = [&] {
    if (has_news()) return true;
    start_read();
    return false;
  };
  if (run_until(read_on, timeout_ms, true) != Wait::kDone) return false;
  if (messages_.empty()) {
    return Error{lmtp::ErrorCode::kUnavailable,
                 end_reason_.empty() ? "not connected" : end_reason_};
  }
  message = std::move(messages_.front());
  messages_.pop_front();
  held_bytes_ -= message.text.size();
  return true;
}

bool Connection::pause(int duration_ms) {
  return run_until([] { return false; }, duration_ms, true) == Wait::kTimedOut;
}

void Connection::start_read() {
  if (reading_ || !open()) return;
  reading_ = true;
  socket_->async_read(read_buffer_, [this](ErrorCode error, std::size_t) {
    reading_ = false;
    if (error == asio::error::operation_aborted) return;
    if (error) return end(describe(error));
    take_message();
    // A server may not read until the client has read.
    if (sending_ && held_bytes_ < kHeldBytesMax) start_read();
  });
}

void Connection::take_message() {
  const auto data = read_buffer_.cdata();
  messages_.push_back({{static_cast<const char*>(data.data()), data.size()}, Clock::now()});
  held_bytes_ += data.size();
  read_buffer_.clear();
  if (read_buffer_.capacity() > kReadBufferKeptBytes) read_buffer_.shrink_to_fit();
}

void Connection::fail(std::string reason) {
  messages_.clear();
  held_bytes_ = 0;
  end(std::move(reason));
}

void Connection::end(std::string reason) {
  if (end_reason_.empty()) end_reason_ = std::move(reason);
}

std::string Connection::describe(ErrorCode error) const {
  if (error == websocket::error::closed) {
    const auto& reason = socket_->reason();
    std::string text = "the server closed the connection (code " + std::to_string(reason.code);
    if (!reason.reason.empty()) text.append(": ").append(reason.reason.c_str());
    return text + ")";
  }
  if (error == asio::error::eof || error == asio::error::connection_reset ||
      error == asio::error::broken_pipe) {
    return "the server went away";
  }
  return "the connection broke: " + error.message();
}

void Connection::close() {
  if (socket_ && open()) {
    const auto closed = std::make_shared<bool>(false);
    socket_->async_close(websocket::close_code::normal, [closed](ErrorCode) { *closed = true; });
    run_until([&closed] { return *closed; }, kCloseTimeoutMs, false);
    end("the connection was closed");
  }
  drop_socket();
}

void Connection::drop_socket() {
  if (!socket_) return;
  ErrorCode ignored;
  tcp().close(ignored);
  // Handlers that refer to the socket now run, all with an error.
  run_until([this] { return !reading_; }, -1, false);
  io_.restart();
  io_.poll();
  socket_.reset();
}

}  // namespace lmtp::client
