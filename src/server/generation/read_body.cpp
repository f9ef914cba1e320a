#include "read_body.h"

#include <string>
#include <utility>

#include "http/message.h"
#include "lmtp/base/guarded.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::server {
namespace {

void refuse(ServerContext& context, const std::string& path, const Error& error,
            HttpResponder& responder) {
  context.generation.models.refusals().add(error.code);
  HttpResponse response = context.routes.with_error_body(
      path, plain_text(error_kind(error.code).http_status, error.message));
  set_retry_after(retry_after_ms(error), response);
  responder.send(std::move(response));
}

}  // namespace

void work_on_bytes(ServerContext& context, std::size_t num_bytes, const std::string& path,
                   const std::shared_ptr<HttpResponder>& responder,
                   std::function<std::function<void()>()> work) {
  if (num_bytes <= kEncodedAtOnceMax) return work()();
  const auto part = std::make_shared<MemoryLimit::Part>(context.generation.waiting);
  const bool has_room = part->set(num_bytes);
  auto job = [&context, path, part, responder, work = std::move(work)]() mutable {
    auto answer = guarded([&] { return Result<std::function<void()>>(work()); }, "body: ");
    work = nullptr;
    part->set(0);
    if (answer) return responder->post(std::move(*answer));
    responder->post([&context, path, responder, error = answer.error()] {
      refuse(context, path, error, *responder);
    });
  };
  const ConnectionId share = share_of(responder->caller().get(), responder->id());
  if (has_room && context.generation.encoder.submit(share, std::move(job))) return;
  refuse(context, path,
         {ErrorCode::kOverloaded, "overloaded: long bodies wait to be read; retry later"},
         *responder);
}

void read_body(ServerContext& context, HttpRequest request,
               const std::shared_ptr<HttpResponder>& responder,
               std::function<std::function<void()>(HttpRequest)> read) {
  if (request.body.size() <= kEncodedAtOnceMax) return read(std::move(request))();
  const std::size_t num_bytes = request.body.size();
  const std::string path = request.path;
  const auto held = std::make_shared<HttpRequest>(std::move(request));
  work_on_bytes(context, num_bytes, path, responder,
                [held, read = std::move(read)] { return read(std::move(*held)); });
}

void make_answer(Encoder& encoder, std::size_t num_bytes,
                 const std::shared_ptr<HttpResponder>& responder,
                 std::function<Result<std::string>()> make,
                 const std::function<void(Result<std::string>)>& send) {
  const auto made = [make = std::move(make)] { return guarded(make, "answer: "); };
  if (num_bytes > kEncodedAtOnceMax) {
    const ConnectionId share = share_of(responder->caller().get(), responder->id());
    auto job = [responder, made, send] {
      responder->post([send, body = made()]() mutable { send(std::move(body)); });
    };
    if (encoder.submit(share, std::move(job))) return;
  }
  send(made());
}

}  // namespace lmtp::server
