#include "http_session.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "http_responder.h"
#include "lmtp/base/log.h"
#include "net/accept_tls.h"
#include "net/address.h"
#include "origin.h"

namespace lmtp::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kMaxHeaderBytes = 16 * 1024;
constexpr std::size_t kBodyPieceBytes = std::size_t{64} << 10;
// Of a body with its chunk framing: in chunks of one byte, each byte takes six.
constexpr std::size_t raw_bytes_max(std::size_t limit) { return 8 * limit + kBodyPieceBytes; }
// After an answer that ends the connection, at most so much is read and dropped.
constexpr std::size_t kDrainedBytesMax = std::size_t{1} << 30;
constexpr std::chrono::milliseconds kCancelAgain{10};

// Whether the error is about the bytes that came, not about the connection.
bool is_not_http(beast::error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

HttpResponse body_too_long(std::size_t limit) {
  return plain_text(
      413, "The body is longer than the " + std::to_string(limit) + " bytes that are read here.");
}

void free_memory(std::string& text) { std::string().swap(text); }

}  // namespace

HttpSession::HttpSession(std::shared_ptr<ServerContext> context, Socket socket,
                         std::shared_ptr<tls::Context> tls, AddressLimits::Seat seat,
                         std::optional<HttpResponse> refusal)
    : context_(std::move(context)),
      place_(context_->registry, std::move(seat)),
      tls_(std::move(tls)),
      refusal_(std::move(refusal)),
      address_(address_of(socket)),
      stream_(TcpStream(std::move(socket))),
      strand_(std::make_shared<Strand>(Strand{context_, stream_.get_executor()})),
      buffer_(kMaxHeaderBytes),
      body_part_(context_->read_buffers),
      read_timer_(stream_.get_executor()),
      pace_timer_(stream_.get_executor()),
      silence_timer_(stream_.get_executor()),
      write_queue_(context_->registry, context_->write_queues,
                   context_->options.max_write_queue_bytes, place_.id(),
                   context_->options.trace.get()),
      close_timer_(stream_.get_executor()) {}

HttpSession::~HttpSession() { finish(); }

void HttpSession::start() {
  beast::error_code ignored;
  tcp().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  if (!place_.fill(weak_from_this())) return;
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    self->guard([&] { self->tls_ != nullptr ? self->shake_hands() : self->read_header(); });
  });
}

void HttpSession::drop() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->finish(); });
}

// An answer under way may still be completed.
void HttpSession::shut_down() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    if (self->state_ != State::kAnswering && self->state_ != State::kFinishing) {
      return self->finish();
    }
    self->stopping_ = true;
    self->close_timer_.expires_after(self->context_->options.timeouts.close);
    self->close_timer_.async_wait([self](beast::error_code error) {
      if (!error) self->finish();
    });
  });
}

Holding HttpSession::holding(Held what) const {
  if (what == Held::kWriteQueue) return {write_queue_.num_bytes(), {}};
  return {body_part_.bytes(), body_since_};
}

// Memory is short: a client whose body is dropped gets an answer, one that does not read does not.
void HttpSession::give_up(Held what) {
  what == Held::kWriteQueue ? write_queue_.give_up() : static_cast<void>(body_part_.set(0));
  asio::post(stream_.get_executor(), [self = shared_from_this(), what] {
    self->guard([&] {
      const bool is_write = what == Held::kWriteQueue;
      if (is_write ? self->write_queue_.empty() : self->state_ != State::kBody) return;
      self->context_->registry.log_closed(self->place_.id(), why_given_up(what));
      if (is_write) return self->finish();
      self->stop_body(plain_text(503, why_given_up(what) + "; try again later."));
    });
  });
}

// --- a request ---

// One that speaks plain HTTP is told so by refuse_header().
void HttpSession::shake_hands() {
  tcp().expires_after(context_->options.timeouts.handshake);
  accept_tls(stream_, *tls_, buffer_, [self = shared_from_this()](beast::error_code error) {
    self->guard([&] {
      if (self->state_ != State::kHeader) return;
      error ? self->finish() : self->read_header();
    });
  });
}

void HttpSession::read_header() {
  state_ = State::kHeader;
  request_ = {};
  route_ = nullptr;
  caller_.reset();
  fields_.clear();
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(boost::none);  // the routes'
  tcp().expires_after(context_->options.timeouts.http);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](beast::error_code error, std::size_t) {
                            self->guard([&] { self->on_header(error); });
                          });
}

void HttpSession::on_header(beast::error_code error) {
  if (state_ != State::kHeader) return;  // the server stopped as it came
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(plain_text(431, "The header is longer than 16 KiB."));
  }
  if (is_not_http(error)) return refuse(plain_text(400, "This is not HTTP."));
  if (error) return finish();  // gone, or silent for too long
  const auto& header = parser_->get();
  request_ = plain_request(header);
  begin_caller();
  is_head_ = request_.method == "HEAD";
  route_ = context_->routes.find(request_.method, request_.path);
  if (auto refusal = refuse_header()) return refuse(*std::move(refusal));
  if (auto refusal = refuse_address()) return refuse(*std::move(refusal));
  if (!is_local()) {
    for (HttpField& field : cors_fields(request_, context_->options)) {
      fields_.push_back(std::move(field));
    }
  }
  const UpgradeHandler* const websocket =
      beast::websocket::is_upgrade(header) ? find_websocket() : nullptr;
  if (auto refusal = identify(websocket != nullptr)) return refuse(*std::move(refusal));
  if (websocket != nullptr) return upgrade(*websocket);
  // A body that a route does not read leaves unknown where the next request begins; so does a
  // transfer coding in HTTP/1.0, which proxies may not know.
  const bool is_read = reads_body();
  const bool is_coded = header.count(http::field::transfer_encoding) > 0;
  const bool is_end_known =
      is_read ? !is_coded || header.version() >= 11 : !is_coded && !header.has_content_length();
  keep_alive_ = header.keep_alive() && is_end_known;
  if (is_read) return begin_body();
  if (route_ != nullptr) return handle();
  state_ = State::kAnswering;
  std::string methods = is_preflight(request_) ? context_->routes.methods(request_.path) : "";
  if (!methods.empty()) return send(preflight_answer(request_, std::move(methods)));
  HttpResponse refusal = context_->routes.refusal(request_.method, request_.path);
  keep_alive_ = keep_alive_ && refusal.status == 404;  // else a body may follow
  log_refused(refusal, false);
  send(context_->routes.with_error_body(request_.path, std::move(refusal)));
}

void HttpSession::begin_body() {
  const auto& header = parser_->get();
  const std::size_t limit = route_->max_body_bytes;
  if (parser_->content_length().value_or(0) > limit) return refuse(body_too_long(limit));
  const auto coding = header.find(http::field::transfer_encoding);
  if (coding != header.end() && !beast::iequals(coding->value(), "chunked")) {
    return refuse(plain_text(501, "Of transfer codings, chunked alone is read."));
  }
  if (parser_->is_done()) return handle();
  parser_->body_limit(limit);
  state_ = State::kBody;
  const bool asks_first = beast::iequals(header[http::field::expect], "100-continue");
  body_since_ = Clock::now();
  num_raw_bytes_ = 0;
  body_piece_.resize(kBodyPieceBytes);
  count_body();
  // Behind the time that says which body is the oldest: who is told to go on has begun.
  if (asks_first && header.version() >= 11) enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  watch_body();
  read_body();
}

// Counts this body's buffers towards the limit that all connections share.
void HttpSession::count_body() {
  if (!body_part_.set(request_.body.capacity() + body_piece_.capacity())) {
    context_->registry.reclaim(Held::kUnfinishedMessage);
  }
}

void HttpSession::watch_body() {
  const auto due = [this] { return body_since_.load() + context_->options.timeouts.message; };
  read_timer_.expires_at(due());
  read_timer_.async_wait([self = shared_from_this(), due](beast::error_code error) {
    if (error || self->state_ != State::kBody) return;
    self->guard([&] {
      if (Clock::now() < due()) return self->watch_body();
      self->stop_body(plain_text(408, "The body took too long from its first byte to its last."));
    });
  });
}

void HttpSession::read_body() {
  parser_->get().body().data = body_piece_.data();
  parser_->get().body().size = body_piece_.size();
  tcp().expires_never();  // read_timer_ is for the whole
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](beast::error_code error, std::size_t num_raw) {
                          self->guard([&] { self->on_body(error, num_raw); });
                        });
}

// `num_raw`: bytes read from the socket for it, chunk framing included.
void HttpSession::on_body(beast::error_code error, std::size_t num_raw) {
  if (state_ != State::kBody) return;
  if (body_refusal_) return refuse(*std::exchange(body_refusal_, std::nullopt));
  if (error == http::error::body_limit) return refuse(body_too_long(route_->max_body_bytes));
  if (error == http::error::need_buffer) error = {};  // body_piece_ is full
  if (is_not_http(error)) return refuse(plain_text(400, "This is not HTTP."));
  if (error) return finish();
  num_raw_bytes_ += num_raw;
  if (num_raw_bytes_ > raw_bytes_max(route_->max_body_bytes)) {
    return refuse(plain_text(413, "The body's chunks have too much beside the body."));
  }
  request_.body.append(body_piece_, 0, body_piece_.size() - parser_->get().body().size);
  count_body();
  if (parser_->is_done()) return handle();
  if (num_raw_bytes_ <= kUnpacedBytes) return read_body();
  // Reading long bodies takes processor time from the models, so it is paced.
  const Clock::time_point due = context_->read_pace.after(num_raw);
  body_since_ = body_since_.load() + (due - Clock::now());
  pace_timer_.expires_at(due);
  pace_timer_.async_wait([self = shared_from_this(), due](beast::error_code) {
    if (self->state_ != State::kBody) return;
    self->body_since_ = self->body_since_.load() + (Clock::now() - due);
    self->guard([&] { self->body_refusal_ ? self->on_body({}, 0) : self->read_body(); });
  });
}

// Ends the read under way, or the wait before the next one, which then sends the refusal.
void HttpSession::stop_body(HttpResponse refusal) {
  body_refusal_ = std::move(refusal);
  free_memory(request_.body);
  cancel_read(Clock::now() + context_->options.timeouts.http);
  pace_timer_.cancel();
}

void HttpSession::handle() {
  read_timer_.cancel();
  state_ = State::kAnswering;
  framing_.reset();
  ++request_number_;
  {
    const auto responder =
        std::make_shared<Responder>(shared_from_this(), context_->registry.next_id());
    route_->handler(std::move(request_), responder);
  }
  request_ = {};
  free_memory(body_piece_);
  body_part_.set(0);
  if (state_ == State::kAnswering) watch();
}

// --- its answer ---

void HttpSession::send(const HttpResponse& response) {
  if (framing_) return cut("answers what it began to answer");
  state_ = State::kFinishing;
  std::string text =
      head_text(response, fields_, context_->options.version, Framing::kLength, keep_alive_);
  if (!is_head_) text += response.body;
  enqueue(std::move(text));
}

// Answers without a handler. The rest of the request is not read, so the connection ends.
void HttpSession::refuse(const HttpResponse& response) {
  read_timer_.cancel();
  free_memory(request_.body);
  free_memory(body_piece_);
  body_part_.set(0);
  keep_alive_ = false;
  state_ = State::kAnswering;
  framing_.reset();
  is_head_ = false;
  if (caller_ == nullptr) begin_caller();
  log_refused(response, false);
  send(context_->routes.with_error_body(request_.path, response));
}

void HttpSession::begin(const HttpResponse& head) {
  if (framing_) return cut("begins twice");
  const bool has_chunks = parser_->get().version() >= 11;
  framing_ = has_chunks ? Framing::kChunks : Framing::kClose;
  keep_alive_ = keep_alive_ && has_chunks;
  enqueue(head_text(head, fields_, context_->options.version, *framing_, keep_alive_));
}

void HttpSession::write(std::string_view piece) {
  if (!framing_) return cut("writes before it begins");
  if (is_head_ || piece.empty()) return;
  enqueue(*framing_ == Framing::kChunks ? chunk_text(piece) : std::string(piece));
}

void HttpSession::end() {
  if (!framing_) return cut("ends before it begins");
  state_ = State::kFinishing;
  if (*framing_ == Framing::kChunks && !is_head_) return enqueue("0\r\n\r\n");
  if (write_queue_.empty()) next_request();
}

// After a handler's mistake: only this connection ends, since a client may be able to provoke it.
void HttpSession::cut(const char* mistake) {
  log::error("connection " + std::to_string(place_.id()) + " is cut: its handler " + mistake);
  finish();
}

void HttpSession::on_unanswered() {
  if (framing_) {  // what is there is sent; a client sees by the missing end that it is not whole
    state_ = State::kFinishing;
    keep_alive_ = false;
    if (write_queue_.empty()) next_request();
    return;
  }
  log::error("connection " + std::to_string(place_.id()) + ": a request was left unanswered");
  send(plain_text(500, "This request was not answered; the server's log may say why."));
}

bool HttpSession::others_connected() {
  if (!std::exchange(is_counted_, true)) {
    context_->registry.add_client(share_of(caller_.get(), place_.id()));
  }
  return context_->registry.num_clients() > 1;
}

void HttpSession::uncount() {
  if (!std::exchange(is_counted_, false)) return;
  context_->registry.remove_client(share_of(caller_.get(), place_.id()));
}

// Reads on while the answer is not complete: a pipelined request, up to a limit, or the end of the
// connection.
void HttpSession::watch() {
  watching_ = true;
  auto on_event = [self = shared_from_this()](beast::error_code error, std::size_t num_bytes) {
    self->guard([&] { self->on_watched(error, num_bytes); });
  };
  if (buffer_.size() == buffer_.max_size()) {
    return tcp().socket().async_wait(asio::socket_base::wait_error,
                                     [on_event](beast::error_code error) { on_event(error, 0); });
  }
  tcp().expires_never();
  stream_.async_read_some(buffer_.prepare(buffer_.max_size() - buffer_.size()),
                          std::move(on_event));
}

void HttpSession::on_watched(beast::error_code error, std::size_t num_bytes) {
  watching_ = false;
  read_timer_.cancel();
  buffer_.commit(num_bytes);
  if (state_ == State::kFinishing && write_queue_.empty()) return next_request();
  if (state_ != State::kAnswering) return;  // on_written goes on
  if (error || num_bytes == 0) return finish();
  watch();
}

// --- writing ---

void HttpSession::enqueue(std::string text) {
  if (!write_queue_.add(std::move(text))) return finish();
  enqueued_ = Clock::now();
  if (!write_queue_.writing()) write_next();
}

void HttpSession::write_next() {
  const Timeouts& timeouts = context_->options.timeouts;
  tcp().expires_after(framing_ ? timeouts.stream_write : timeouts.http);
  asio::async_write(stream_, asio::buffer(write_queue_.begin_write()),
                    [self = shared_from_this()](beast::error_code error, std::size_t) {
                      self->guard([&] { self->on_written(error); });
                    });
}

void HttpSession::on_written(beast::error_code error) {
  write_queue_.written();
  if (error || state_ == State::kClosed) return finish();
  if (!write_queue_.empty()) return write_next();
  if (state_ == State::kFinishing) next_request();
}

// The whole answer has been written.
void HttpSession::next_request() {
  uncount();
  on_gone_ = nullptr;
  on_silence_ = nullptr;
  silence_timer_.cancel();
  if (watching_) {  // on_watched comes back here
    return cancel_read(Clock::now() + context_->options.timeouts.http);
  }
  framing_.reset();
  if (stopping_) return finish();
  if (keep_alive_) return read_header();
  state_ = State::kDraining;
  tcp().expires_after(context_->options.timeouts.drain);
  if (!stream_.is_tls()) return say_goodbye();
  stream_.tls().async_shutdown([self = shared_from_this()](beast::error_code) {
    self->guard([&] { self->say_goodbye(); });
  });
}

// Ends the read under way, which then cancels the timer. A read of TLS is several, and a cancel
// between two of them is lost: so it is asked again, but not for ever.
void HttpSession::cancel_read(Clock::time_point give_up) {
  beast::error_code ignored;
  tcp().socket().cancel(ignored);
  read_timer_.expires_after(kCancelAgain);
  read_timer_.async_wait([self = shared_from_this(), give_up](beast::error_code error) {
    const bool is_meant =
        self->body_refusal_ || (self->watching_ && self->state_ == State::kFinishing);
    if (error || !is_meant) return;
    if (Clock::now() >= give_up) return self->finish();
    self->cancel_read(give_up);
  });
}

void HttpSession::say_goodbye() {
  beast::error_code error;
  tcp().socket().shutdown(asio::socket_base::shutdown_send, error);
  drain();
}

// Closing a socket while bytes of the request are unread would reset the connection and might take
// the answer with it: so they are read for a while. Many clients look for an answer only when they
// have sent a body whole.
void HttpSession::drain() {
  if (num_drained_ > kDrainedBytesMax) return;
  body_piece_.resize(kBodyPieceBytes);
  tcp().async_read_some(asio::buffer(body_piece_),
                        [self = shared_from_this()](beast::error_code error, std::size_t read) {
                          self->num_drained_ += read;
                          if (!error) self->drain();
                        });
}

// Closes the connection, whichever side ended it. Operations under way end with an error, and the
// session ends with the last of them. May be called more than once.
void HttpSession::finish() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  read_timer_.cancel();
  pace_timer_.cancel();
  close_timer_.cancel();
  silence_timer_.cancel();
  write_queue_.clear();
  body_part_.set(0);
  uncount();
  tcp().close();
  const auto on_gone = std::exchange(on_gone_, nullptr);
  if (!on_gone) return;
  try {  // finish() may have been called for an exception
    on_gone();
  } catch (const std::exception& e) {
    log::error("connection " + std::to_string(place_.id()) + " was not cleaned up: " + e.what());
  }
}

}  // namespace lmtp::server
