#include "lmtp/server/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "http/http_session.h"
#include "http/message.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/line_session.h"
#include "net/listener.h"
#include "route_table.h"

namespace lmtp::server {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kStopPoll{5};
// Over --max-connections so many more get an answer, 503; beyond that they are closed without one.
constexpr std::size_t kNumRefusedWithAnswer = 64;

// A handler that throws (no memory left, as a rule) costs its own connection: what it held is
// destroyed, and the other handlers go on.
void run_io(asio::io_context& io) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& e) {
      log::error(std::string("a connection failed: ") + e.what());
    }
  }
}

Result<void> check(const Timeouts& timeouts) {
  constexpr Timeouts::Time kMax = std::chrono::hours(24 * 365);
  const std::pair<const char*, Timeouts::Time> all[] = {{"handshake", timeouts.handshake},
                                                        {"http", timeouts.http},
                                                        {"stream_write", timeouts.stream_write},
                                                        {"drain", timeouts.drain},
                                                        {"idle", timeouts.idle},
                                                        {"close", timeouts.close},
                                                        {"slow_reader", timeouts.slow_reader},
                                                        {"message", timeouts.message},
                                                        {"keep_alive", timeouts.keep_alive}};
  for (const auto& [name, time] : all) {
    if (time > Timeouts::Time(0) && time <= kMax) continue;
    return Error{ErrorCode::kInvalid, "Timeouts::" + std::string(name) + ": " +
                                          std::to_string(time.count()) +
                                          " ms; allowed are 1 ms to a year"};
  }
  return {};
}

void serve_socket(const std::shared_ptr<ServerContext>& context, Socket socket,
                  std::shared_ptr<tls::Context> tls) {
  const std::size_t num_open = context->registry.size();
  const auto limit = static_cast<std::size_t>(context->options.max_connections);
  if (num_open >= limit + kNumRefusedWithAnswer) return;
  boost::system::error_code gone;
  const auto peer = socket.remote_endpoint(gone);
  if (gone) return;
  AddressLimits::Admission admission = context->address_limits.admit(address_key(peer));
  if (!admission.is_answered) return;
  std::optional<HttpResponse> refusal;
  if (num_open >= limit) {
    refusal = plain_text(503, "Too many connections; try again later.");
  } else if (admission.retry_after_s > 0) {
    refusal =
        too_many_requests(admission.retry_after_s,
                          "Too many connections of this address (--max-connections-per-address, "
                          "--max-request-rate-per-address).");
  }
  std::make_shared<HttpSession>(context, std::move(socket), std::move(tls),
                                std::move(admission.seat), std::move(refusal))
      ->start();
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options, registry::Models& models)
      : context(std::make_shared<ServerContext>(std::move(options), models)),
        tcp(std::make_shared<Listener>(context->io,
                                       [context = context](Socket socket) {
                                         serve_socket(context, std::move(socket),
                                                      context->tls.context());
                                       })),
        local(std::make_shared<Listener>(context->io, [context = context](Socket socket) {
          serve_socket(context, std::move(socket), nullptr);
        })) {
    add_routes(*context);
  }

  Result<void> open() {
    const ServerOptions& options = context->options;
    if (auto sane = check(options.timeouts); !sane) return sane;
    if (context->tls.enabled()) {
      if (auto loaded = context->tls.load(); !loaded) return loaded;
    }
    if (auto read = context->keys.load(); !read) return read;
    if (options.on_tcp) {
      auto opened =
          options.tcp_fd >= 0 ? tcp->adopt(options.tcp_fd) : tcp->open(options.host, options.port);
      if (!opened) return opened;
      context->on_loopback = tcp->on_loopback();
      context->controllers.takes_uploads = context->on_loopback || options.aici_upload;
      if (auto safe = check_exposure(); !safe) return safe;
    }
    if (!options.unix_path.empty()) {
      auto opened = options.unix_fd >= 0 ? local->adopt(options.unix_fd)
                                         : local->open_unix(options.unix_path);
      if (!opened) return opened;
    }
    is_open = true;
    return {};
  }

  // What is open, and lines.
  void accept() {
    const ServerOptions& options = context->options;
    if (!options.unix_path.empty()) local->start();
    if (options.on_tcp) tcp->start();
    if (!options.lines) return;
    lines
        .emplace(*context, *options.lines,
                 make_line_descriptors(options.lines->in_fd, options.lines->out_fd))
        .start();
  }

  // Who reaches the port may use it, and reads what others send.
  Result<void> check_exposure() const {
    const ServerOptions& options = context->options;
    const bool takes_any_page = std::ranges::any_of(
        options.allowed_origins,
        [](const std::string& origin) { return origin == "*" || origin == "null"; });
    if (takes_any_page && !context->keys.is_required()) {
      log::warning(
          "--allow-origin * or null, without keys: any page that is open in a browser which "
          "reaches this server may use it");
    }
    if (context->on_loopback) return {};
    if (!context->keys.is_required() && !options.insecure) {
      return Error{ErrorCode::kInvalid,
                   "refused to listen on " + options.host +
                       ", which other machines reach, without a key: give --api-key-file FILE or "
                       "--api-key KEY, and TLS (--ssl-certfile) so that nobody reads them on their "
                       "way; or --insecure, and whoever reaches the port may use it"};
    }
    if (context->keys.is_required() && !context->tls.enabled()) {
      log::warning("keys are sent unencrypted to " + options.host +
                   ", and can be read on their way; --ssl-certfile turns TLS on");
    }
    return {};
  }

  std::shared_ptr<ServerContext> context;
  std::shared_ptr<Listener> tcp;
  std::shared_ptr<Listener> local;  // a Unix socket
  bool is_open = false;
  std::optional<LineSession> lines;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::vector<runtime::Thread> threads;
};

Server::Server(ServerOptions options, registry::Models& models)
    : impl_(std::make_unique<Impl>(std::move(options), models)) {
  const ServerOptions& checked = impl_->context->options;
  LMTP_CHECK(checked.num_io_threads >= 1 && checked.num_io_threads <= 4, checked.num_io_threads);
}

Server::~Server() { stop(runtime::Clock::now()); }

Result<void> Server::open() { return impl_->open(); }

Result<void> Server::start() {
  LMTP_CHECK(impl_->threads.empty(), "started twice");
  if (!impl_->is_open) {
    if (auto opened = impl_->open(); !opened) return opened;
  }
  impl_->context->dispatcher.encoder().start();
  impl_->accept();
  impl_->work.emplace(impl_->context->io.get_executor());
  for (int i = 0; i < impl_->context->options.num_io_threads; ++i) {
    impl_->threads.emplace_back([context = impl_->context] { run_io(context->io); });
  }
  return {};
}

Result<void> Server::reload() {
  if (const Result<void> read = impl_->context->keys.load(); !read) return read;
  impl_->context->registry.drop_revoked();
  return impl_->context->tls.enabled() ? impl_->context->tls.load() : Result<void>();
}

void Server::post(std::function<void()> task) { asio::post(impl_->context->io, std::move(task)); }

HttpRoutes& Server::routes() { return impl_->context->routes; }

std::uint16_t Server::port() const { return impl_->tcp->port(); }

void Server::stop_accepting() {
  if (impl_->threads.empty()) return;
  impl_->tcp->stop();
  impl_->local->stop();
  if (impl_->lines) impl_->lines->stop_reading();
}

void Server::stop(runtime::Clock::time_point deadline) {
  if (!impl_->work) return;
  stop_accepting();
  ConnectionRegistry& registry = impl_->context->registry;
  registry.shut_down_all();
  if (impl_->lines) impl_->lines->stop(deadline);
  while (registry.size() > 0 && runtime::Clock::now() < deadline) runtime::sleep_for(kStopPoll);
  registry.drop_all();
  // Without connections no work is left, and the threads return.
  impl_->work.reset();
  for (runtime::Thread& thread : impl_->threads) thread.join();
  impl_->context->dispatcher.encoder().stop();
  impl_->threads.clear();
}

}  // namespace lmtp::server
