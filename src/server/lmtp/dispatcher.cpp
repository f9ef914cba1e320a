#include "dispatcher.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "lmtp/base/log.h"
#include "model_info.h"

namespace lmtp::server {
namespace {

// LMQL opens a connection for each query, and each may bring the same unknown key.
constexpr std::int64_t kUnknownKeysLogIntervalMs = 1000;

using protocol::TokenOrError;

void answer_token_error(const protocol::ErrorEntry& error, std::vector<std::string>& answers) {
  const TokenOrError entry = error;
  protocol::serialize_tokens({&entry, 1}, answers.emplace_back());
}

void answer_msg_error(const protocol::ErrorEntry& error, std::vector<std::string>& answers) {
  protocol::serialize_msg_error(error, answers.emplace_back());
}

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

// What GENERATE and SCORE have in common.
template <typename Message>
Request request_of(Message& message, RequestKind kind, const Peer& peer) {
  Request request;
  request.key = {peer.streams.connection(), message.stream_id};
  request.model = std::move(message.model);
  request.kind = kind;
  request.prompt = std::move(message.prompt);
  return request;
}

std::string info_message(StreamId id, const std::string& asked_name, std::string_view version,
                         const Result<registry::ModelStatus>& status) {
  std::string out;
  if (status) {
    protocol::serialize_model_info({id, model_info_json(*status, asked_name, version)}, out);
  } else {
    protocol::serialize_msg_error({id, status.error().message, status.error().code}, out);
  }
  return out;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Dispatcher::Dispatcher(registry::Registry& models, std::string version,
                       const ConnectionRegistry& connections)
    : models_(models),
      limits_of_([&models](std::string_view name) {
        protocol::RequestLimits most;
        if (const auto limits = models.limits_of(std::string(name))) {
          most.num_tokens = static_cast<std::size_t>(limits->context_length);
          most.num_biases = static_cast<std::size_t>(limits->vocab_size);
        }
        return most;
      }),
      version_(std::move(version)),
      connections_(connections) {}

void Dispatcher::handle(std::string_view text, Peer& peer, Answers& answers) {
  auto parsed = protocol::parse_client_message(text, bias_cache_, limits_of_);
  if (const auto* error = std::get_if<protocol::ParseError>(&parsed)) {
    if (error->opens_stream) models_.refusals().add(error->code);
    answer_parse_error(*error, peer.streams, answers);
    return;
  }
  std::visit(
      [&](auto& message) {
        if constexpr (requires { handle(message, peer, answers); }) handle(message, peer, answers);
      },
      std::get<protocol::ClientMessage>(parsed));
}

void Dispatcher::handle_binary(Answers& answers) {
  answer_msg_error({std::nullopt, "frame: is binary; allowed are text frames"}, answers);
}

void Dispatcher::handle(protocol::GenerateMessage& message, Peer& peer, Answers& answers) {
  if (!message.unknown_keys.empty()) log_unknown_keys(message.unknown_keys, peer);
  Request request = request_of(message, RequestKind::kGenerate, peer);
  request.params = std::move(message.params);
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::ScoreMessage& message, Peer& peer, Answers& answers) {
  if (!message.unknown_keys.empty()) log_unknown_keys(message.unknown_keys, peer);
  Request request = request_of(message, RequestKind::kScore, peer);
  request.scored = std::move(message.scored);
  request.params.top_logprobs = message.top_logprobs;
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::ModelInfoMessage& message, Peer& peer, Answers& answers) {
  const StreamId id = message.stream_id;
  if (const auto status = models_.status(message.model)) {
    answers.push_back(info_message(id, message.model, version_, *status));
    return;
  }
  auto later = [id, asked = message.model, version = version_,
                send = peer.send_later](const Result<registry::ModelStatus>& status) {
    send(info_message(id, asked, version, status));
  };
  if (!models_.look_up(message.model, std::move(later))) {
    answer_msg_error({id,
                      "overloaded: " + std::to_string(registry::kLookupsMax) +
                          " requests wait to look a model up; retry later",
                      ErrorCode::kOverloaded},
                     answers);
  }
}

void Dispatcher::handle(protocol::CancelMessage& message, Peer& peer, Answers& /*answers*/) {
  peer.streams.cancel(message.stream_id);
}

void Dispatcher::submit(Request request, Peer& peer, Answers& answers) {
  const StreamId id = request.key.stream;
  if (peer.streams.contains(id)) {
    models_.refusals().add(ErrorCode::kInvalid);
    return answer_token_error({id, "stream_id: " + std::to_string(id) +
                                       " is a live stream of this connection; allowed is an id "
                                       "that is not in use (the live stream goes on)"},
                              answers);
  }
  request.sink = peer.sink;
  request.others_connected = connections_.num_clients() > 1;
  registry::Submission submitted = models_.submit(std::move(request));
  if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
    return peer.streams.add(id, std::move(*canceller));
  }
  const auto& refusal = std::get<registry::Refusal>(submitted);
  const protocol::ErrorEntry entry{id, refusal.error.message, refusal.error.code, refusal.no_model};
  answer_token_error(entry, answers);
  if (refusal.no_model) answer_msg_error(entry, answers);
}

void Dispatcher::log_unknown_keys(const std::vector<std::string>& keys, Peer& peer) {
  std::vector<std::string> fresh;
  for (const std::string& key : keys) {
    const bool known = std::ranges::find(peer.logged_keys, key) != peer.logged_keys.end();
    if (!known && peer.logged_keys.size() + fresh.size() < kLoggedKeysMax) fresh.push_back(key);
  }
  if (fresh.empty()) return;
  const std::int64_t now = now_ms();
  std::int64_t due = next_log_ms_.load();
  if (now < due || !next_log_ms_.compare_exchange_strong(due, now + kUnknownKeysLogIntervalMs)) {
    return;
  }
  std::string line =
      "connection " + std::to_string(peer.streams.connection()) + ": ignored unknown keys:";
  for (const std::string& key : fresh) line += " '" + key + "'";
  log::warning(line);
  peer.logged_keys.insert(peer.logged_keys.end(), fresh.begin(), fresh.end());
}

void append_events(std::vector<StreamEvent> events, StreamTable& streams,
                   std::vector<std::string>& messages) {
  std::vector<TokenOrError> entries;
  std::vector<LoadingNotice> loading;
  std::vector<std::string> failures;
  for (StreamEvent& event : events) {
    if (auto* notice = std::get_if<LoadingNotice>(&event)) {
      if (streams.contains(notice->stream_id)) loading.push_back(std::move(*notice));
      continue;
    }
    if (auto* token = std::get_if<TokenEvent>(&event)) {
      if (!streams.contains(token->stream_id)) continue;
      if (token->finish_reason != FinishReason::kNone) streams.erase(token->stream_id);
      entries.emplace_back(std::move(*token));
      continue;
    }
    if (!std::holds_alternative<StreamError>(event)) continue;
    auto& error = std::get<StreamError>(event);
    if (!streams.contains(error.stream_id)) continue;
    streams.erase(error.stream_id);
    // LMQL takes one of the two for the answer.
    protocol::ErrorEntry entry{error.stream_id, std::move(error.error.message), error.error.code,
                               error.no_model};
    if (error.no_model) answer_msg_error(entry, failures);
    entries.emplace_back(std::move(entry));
  }
  if (!loading.empty()) protocol::serialize_loading(loading, messages.emplace_back());
  if (!entries.empty()) protocol::serialize_tokens(entries, messages.emplace_back());
  std::move(failures.begin(), failures.end(), std::back_inserter(messages));
}

}  // namespace lmtp::server
