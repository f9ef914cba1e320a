#include "dispatcher.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "generation/unknown_keys.h"
#include "lmtp/base/runtime.h"
#include "model_info.h"
#include "operations.h"

namespace lmtp::server {
namespace {

// A request that has a stream id gets its error as the end of that stream. So does a verb that we
// do not know, unless that would seem to end another, live stream.
void answer_parse_error(const protocol::ParseError& error, const StreamTable& streams,
                        std::vector<std::string>& answers) {
  const bool as_token =
      error.stream_id &&
      (error.opens_stream || (error.unknown_verb && !streams.contains(*error.stream_id)));
  if (as_token) {
    answer_token_error({error.stream_id, error.message, error.code}, answers);
  } else {
    answer_msg_error({error.stream_id, error.message, error.code}, answers);
  }
}

// Whether nothing is asked for that LMTP 1.0 does not have.
bool is_base_stream(const protocol::StreamOptions& options) {
  return options.prompt_parts.empty() && !options.text.value_or(false) && !options.notices &&
         options.first_token_timeout_ms == 0 && options.timeout_ms == 0;
}

// What GENERATE and SCORE have in common.
template <typename Message>
Request request_of(Message& message, RequestKind kind) {
  Request request;
  request.key.stream = message.stream_id;
  request.model = std::move(message.model);
  request.kind = kind;
  request.prompt = std::move(message.prompt);
  request.cache_salt = std::move(message.options.cache_salt);
  return request;
}

std::string info_message(StreamId id, const std::string& asked_name, const ServerTraits& server,
                         const Result<registry::ModelStatus>& status) {
  std::string out;
  if (status) {
    protocol::serialize_model_info({id, model_info_json(*status, asked_name, server)}, out);
  } else {
    protocol::serialize_msg_error(error_entry(id, status.error()), out);
  }
  return out;
}

void log_ignored(const std::vector<std::string>& keys, const Peer& peer) {
  if (keys.empty()) return;
  log_unknown_keys("connection " + std::to_string(peer.streams.connection()), keys);
}

}  // namespace

Dispatcher::Dispatcher(registry::Models& models, std::string version,
                       const ConnectionRegistry& connections, const ControllerRules& controllers)
    : models_(models),
      version_(std::move(version)),
      connections_(connections),
      controllers_(controllers) {}

void Dispatcher::handle(std::string_view text, Peer& peer, Answers& answers) {
  const auto limits_of = [this, &peer](std::string_view name) {
    protocol::RequestLimits most;
    if (const auto limits = models_.of(peer.caller).limits_of(std::string(name))) {
      most.num_tokens = static_cast<std::size_t>(limits->context_length);
      most.num_biases = static_cast<std::size_t>(limits->vocab_size);
    }
    return most;
  };
  auto parsed = protocol::parse_client_message(text, bias_cache_, limits_of);
  if (const auto* error = std::get_if<protocol::ParseError>(&parsed)) {
    if (error->opens_stream) {
      count_refused(error->stream_id.value_or(0), text.substr(0, text.find(' ')), error->code,
                    peer);
    }
    answer_parse_error(*error, peer.streams, answers);
    return;
  }
  std::visit([&](auto& message) { handle(message, peer, answers); },
             std::get<protocol::ClientMessage>(parsed));
}

void Dispatcher::handle_binary(Answers& answers) {
  answer_msg_error({std::nullopt, "frame: is binary; allowed are text frames"}, answers);
}

void Dispatcher::handle(protocol::GenerateMessage& message, Peer& peer, Answers& answers) {
  log_ignored(message.unknown_keys, peer);
  const bool is_base = is_base_stream(message.options) && message.stop.empty() &&
                       message.num_samples == 1 && message.into.empty() && !message.chat &&
                       !message.grammar && message.controller.empty() && message.bad_words.empty();
  if (!is_base) return begin(std::move(message), peer, answers);
  Request request = request_of(message, RequestKind::kGenerate);
  request.params = std::move(message.params);
  request.num_resumed = message.num_resumed;
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::ScoreMessage& message, Peer& peer, Answers& answers) {
  log_ignored(message.unknown_keys, peer);
  if (!is_base_stream(message.options) || !message.scored_text.empty() ||
      !message.candidates.empty()) {
    return begin(std::move(message), peer, answers);
  }
  Request request = request_of(message, RequestKind::kScore);
  request.scored = std::move(message.scored);
  request.params.top_logprobs = message.top_logprobs;
  request.params.logprob_token_ids = std::move(message.logprob_token_ids);
  request.params.measures = message.measures;
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::DecideMessage& message, Peer& peer, Answers& answers) {
  log_ignored(message.unknown_keys, peer);
  begin(std::move(message), peer, answers);
}

void Dispatcher::handle(protocol::ModelInfoMessage& message, Peer& peer, Answers& answers) {
  const StreamId id = message.stream_id;
  const CallerModels models = models_.of(peer.caller);
  if (const Result<void> ok = models.check(message.model); !ok) {
    return answer_msg_error(error_entry(id, ok.error(), true), answers);
  }
  const ServerTraits server{version_, controllers_.are_run};
  if (const auto status = models.status(message.model)) {
    answers.push_back(info_message(id, message.model, server, *status));
    return;
  }
  auto later = [id, asked = message.model, server,
                send = peer.send_later](const Result<registry::ModelStatus>& status) {
    send(info_message(id, asked, server, status));
  };
  if (!models.look_up(message.model, std::move(later))) {
    answer_msg_error({id,
                      "overloaded: " + std::to_string(registry::kLookupsMax) +
                          " requests wait to look a model up; retry later",
                      ErrorCode::kOverloaded},
                     answers);
  }
}

void Dispatcher::handle(protocol::CancelMessage& message, Peer& peer, Answers& answers) {
  cancel(message.stream_id, {ErrorCode::kCancelled, "cancelled"}, peer, answers);
}

void Dispatcher::submit(Request request, Peer& peer, Answers& answers) {
  const StreamId id = request.key.stream;
  if (peer.streams.contains(id)) {
    request.key.connection = peer.streams.connection();
    request.caller = peer.caller;
    models_.refusals().add(request, ErrorCode::kInvalid);
    return answer_token_error({id, id_in_use(id)}, answers);
  }
  std::string model = models_.of(peer.caller).lasting_name(request.model);
  const bool scores = request.kind == RequestKind::kScore;
  const Requester from = requester(id, request.arrival, peer);
  registry::Submission submitted =
      server::submit(models_.of(peer.caller), from, std::move(request));
  if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
    peer.streams.add(id, std::move(*canceller), std::move(model)).scores = scores;
    return;
  }
  const auto& refusal = std::get<registry::Refusal>(submitted);
  answer_stream_error(error_entry(id, refusal.error, refusal.no_model), answers);
}

Requester Dispatcher::requester(StreamId id, runtime::Clock::time_point arrival, Peer& peer) const {
  return {.key = {peer.streams.connection(), id},
          .sink = peer.sink,
          .caller = peer.caller,
          .others_connected = [this] { return connections_.num_clients() > 1; },
          .arrival = arrival,
          .encoding = ++peer.num_encodings};
}

// What the registry never sees.
void Dispatcher::count_refused(StreamId id, std::string_view verb, ErrorCode code,
                               const Peer& peer) {
  const auto caller = std::make_shared<Caller>();
  if (peer.caller != nullptr) {
    caller->account = peer.caller->account;
    caller->address = peer.caller->address;
  }
  caller->route = verb;
  Request request;
  request.key = {peer.streams.connection(), id};
  request.caller = caller;
  models_.refusals().add(request, code);
}

}  // namespace lmtp::server
