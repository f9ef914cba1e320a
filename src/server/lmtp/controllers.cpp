// The dispatcher's way of a GENERATE with a controller: it is instantiated with the prompt, which
// it may change, before its stream is submitted.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dispatcher.h"
#include "generation/controllers.h"
#include "generation/grammars.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/storage_json.h"

namespace lmtp::server {

void Dispatcher::instantiate_later(StreamId id, const protocol::GenerateMessage& message,
                                   const registry::ReadyModel& model, Peer& peer,
                                   Answers& answers) {
  if (!model.controllers) return fail(id, of_controller(model.controllers.error()), peer, answers);
  aici::InstantiateRequest request;
  request.controller = message.controller;
  request.arg = message.controller_arg;
  if (!hand_over(id, model.name, peer, answers)) return;
  WaitingOperation& waiting = *peer.streams.find(id)->extended->waiting;
  request.request_id = "lmtp-" + std::to_string(peer.streams.connection()) + "-" +
                       std::to_string(id) + "-" + std::to_string(waiting.encoding);
  request.prompt = (*waiting.resolved)->tokens;
  request.auth = auth_of(peer.caller.get());
  waiting.controller = std::make_shared<aici::Instance>(*model.controllers, request.request_id);
  waiting.instantiated = std::make_shared<std::optional<Result<aici::Instantiated>>>();
  (*model.controllers)
      ->instantiate(std::move(request),
                    [to = waiting.instantiated, event = ModelReady{id, waiting.encoding},
                     sink = peer.sink](Result<aici::Instantiated> done) {
                      *to = std::move(done);
                      tell_ready(*sink, event);
                    });
}

// The client is told what it has written, and of a prompt that is not the one that came.
Result<void> Dispatcher::take_instance(StreamId id, WaitingOperation& waiting, Answers& answers) {
  Result<aici::Instantiated>& done = **waiting.instantiated;
  if (!done) return of_controller(done.error());
  std::vector<TokenId>& tokens = (*waiting.resolved)->tokens;
  protocol::ControllerEntry entry;
  entry.stream_id = id;
  entry.logs = std::move(done->log.logs);
  entry.storage = aici::storage_json(done->log.storage);
  entry.micros = done->log.micros;
  const bool changes = take_prompt(*done, tokens);
  if (changes) entry.prompt = tokens;
  if (changes || !entry.logs.empty() || !entry.storage.empty()) {
    protocol::serialize_controllers({&entry, 1}, answers.emplace_back());
  }
  return {};
}

}  // namespace lmtp::server
