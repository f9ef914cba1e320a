// What the dispatcher does with CONTROLLER.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "dispatcher.h"
#include "generation/controllers.h"
#include "lmtp/base/json.h"
#include "lmtp/protocol/codec.h"
#include "operations.h"
#include "resolve.h"

namespace lmtp::server {
namespace {

using protocol::ControllerMessage;

using Tags = std::vector<aici::TagInfo>;

aici::Auth auth_from(const Peer& peer) {
  return auth_of(peer.caller.get(), peer.streams.connection());
}

// Answers with a ModuleInfo or tags, on the runtime's thread.
template <typename T>
aici::Runtime::Done<Result<T>> answer_later(StreamId id, const Peer& peer) {
  return [id, auth = auth_from(peer), send = peer.send_later, under_way = peer.controllers,
          bytes_max = peer.limits.max_answer_bytes](Result<T> done) {
    std::string text;
    if (done) {
      protocol::serialize_controller_answer({id, json_text(answer_json(std::move(*done), auth))},
                                            text);
      if (text.size() > bytes_max) done = too_much("controller", bytes_max);
    }
    if (!done) {
      text.clear();
      protocol::serialize_msg_error(error_entry(id, about_module(done.error())), text);
    }
    send(std::move(text));
  };
}

}  // namespace

Result<void> Dispatcher::check_controller(const ControllerMessage& message,
                                          const Peer& peer) const {
  if (peer.streams.contains(message.stream_id)) {
    return Error{ErrorCode::kInvalid, id_in_use(message.stream_id)};
  }
  if (message.op == ControllerMessage::Op::kUpload && !auth_from(peer).is_admin) {
    return Error{ErrorCode::kInvalid, "op: upload is for API keys with the right admin"};
  }
  if (message.op != ControllerMessage::Op::kList) {
    if (const Result<void> taken = check_uploads(controllers_); !taken) {
      return Error{taken.error().code, "op: " + taken.error().message};
    }
  }
  if (peer.controllers.use_count() > kControllersMax) {
    return Error{ErrorCode::kOverloaded, "overloaded: " + std::to_string(kControllersMax) +
                                             " CONTROLLERs of this connection are under way; "
                                             "retry later"};
  }
  return {};
}

void Dispatcher::handle(ControllerMessage& message, Peer& peer, Answers& answers) {
  const StreamId id = message.stream_id;
  if (const Result<void> taken = check_controller(message, peer); !taken) {
    return answer_msg_error(error_entry(id, taken.error()), answers);
  }
  const auto runtime = runtime_for(models_.of(peer.caller), message.model);
  if (!runtime) return answer_msg_error(error_entry(id, runtime.error()), answers);
  aici::Auth auth = auth_from(peer);
  switch (message.op) {
    case ControllerMessage::Op::kUpload:
      return (*runtime)->upload(std::move(message.binary), std::move(auth),
                                answer_later<aici::ModuleInfo>(id, peer));
    case ControllerMessage::Op::kTag:
      return (*runtime)->set_tags(std::move(message.module_id), std::move(message.tags),
                                  std::move(auth), answer_later<Tags>(id, peer));
    case ControllerMessage::Op::kUntag:
      return (*runtime)->remove_tags(std::move(message.tags), std::move(auth),
                                     answer_later<Tags>(id, peer));
    case ControllerMessage::Op::kList:
      return (*runtime)->get_tags(std::move(auth), answer_later<Tags>(id, peer));
  }
}

}  // namespace lmtp::server
