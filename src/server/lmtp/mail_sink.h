// What engines hold of a connection: its mail, and the context.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "context.h"
#include "lmtp/request/event.h"
#include "net/mailroom.h"

namespace lmtp::server {

// It neither keeps the connection's session alive nor can be the one that ends its life; the
// context keeps the strand's io_context alive.
class MailSink final : public EventSink {
 public:
  MailSink(std::shared_ptr<ServerContext> context, std::shared_ptr<Mail> mail)
      : context_(std::move(context)), mail_(std::move(mail)) {}

  void deliver(std::span<StreamEvent> events) override {
    mail_->add(events);
    context_->mailroom.put(mail_);
  }
  std::shared_ptr<Waker> waker() override { return {context_, &context_->mailroom}; }

 private:
  const std::shared_ptr<ServerContext> context_;
  const std::shared_ptr<Mail> mail_;
};

}  // namespace lmtp::server
