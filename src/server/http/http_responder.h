// What a handler answers an HttpSession through.
#pragma once

#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "context.h"
#include "generation/fresh.h"
#include "http_session.h"
#include "lmtp/base/log.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Holds only weak references: work posted to an io_context that has stopped may hold the responder,
// and must not keep the session or the context alive.
class HttpSession::Responder : public HttpResponder {
 public:
  Responder(const std::shared_ptr<HttpSession>& session, ConnectionId id)
      : session_(session),
        strand_(session->strand_),
        caller_(session->caller_),
        number_(session->request_number_),
        id_(id) {}
  ~Responder() override {
    try {
      on_strand([](HttpSession& session) { session.on_unanswered(); });
    } catch (const std::exception& e) {
      log::error(std::string("a request was left unanswered: ") + e.what());
    }
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  void send(HttpResponse response) override {
    const auto session = answering();
    if (!session) return;
    session->log_refused(response, true);
    session->send(response);
  }
  void begin(HttpResponse head) override {
    const auto session = answering();
    if (!session) return;
    session->log_refused(head, true);
    session->begin(head);
  }
  void write(std::string_view piece) override {
    if (const auto session = answering()) session->write(piece);
  }
  void end() override {
    if (const auto session = answering()) session->end();
  }
  void on_gone(std::function<void()> callback) override {
    const auto session = session_.lock();
    if (session && session->is_answering(number_)) {
      session->on_gone_ = std::move(callback);
    } else if (!session || session->state_ == State::kClosed) {
      callback();
    }
  }
  void on_silence(std::chrono::milliseconds interval, std::function<void()> callback) override {
    if (const auto session = answering()) session->on_silence(interval, std::move(callback));
  }
  void post(std::function<void()> work) override {
    on_strand([work = std::move(work)](HttpSession& /*session*/) { work(); });
  }
  std::shared_ptr<Mailroom> mailroom() override {
    const auto strand = strand_.lock();
    if (!strand) return nullptr;
    return {strand->context, &strand->context->mailroom};
  }
  ConnectionId id() const override { return id_; }
  std::string begin_id(std::string_view prefix) override {
    std::string id = fresh_id(prefix);
    if (const auto session = answering()) session->begin_id(id);
    return id;
  }
  std::shared_ptr<const Caller> caller() const override { return caller_; }
  bool others_connected() override {
    const auto session = answering();
    return session && session->others_connected();
  }

 private:
  std::shared_ptr<HttpSession> answering() const {
    auto session = session_.lock();
    return session && session->is_answering(number_) ? session : nullptr;
  }

  // The session must not be destroyed here, on an engine's thread, so the weak reference is locked
  // on the strand only.
  template <typename Work>
  void on_strand(Work work) const {
    const auto strand = strand_.lock();
    if (!strand) return;
    boost::asio::post(strand->executor,
                      [weak = session_, number = number_, work = std::move(work)] {
                        const auto session = weak.lock();
                        if (!session || !session->is_answering(number)) return;
                        session->guard([&] { work(*session); });
                      });
  }

  const std::weak_ptr<HttpSession> session_;
  const std::weak_ptr<Strand> strand_;
  const std::shared_ptr<const Caller> caller_;
  const std::uint64_t number_;
  const ConnectionId id_;
};

}  // namespace lmtp::server
