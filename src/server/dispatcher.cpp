#include "dispatcher.h"

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "lmtp/base/log.h"
#include "model_info.h"

namespace lmtp::server {
namespace {

// LMQL opens a connection for each query, and each may bring the same unknown key.
constexpr std::int64_t kUnknownKeysLogIntervalMs = 1000;

using TokenOrError = std::variant<protocol::TokenEntry, protocol::ErrorEntry>;

void answer_token_error(StreamId id, std::string text, std::vector<std::string>& answers) {
  const TokenOrError entry = protocol::ErrorEntry{id, std::move(text)};
  protocol::serialize_tokens({&entry, 1}, answers.emplace_back());
}

void answer_msg_error(std::optional<StreamId> id, std::string text,
                      std::vector<std::string>& answers) {
  protocol::serialize_msg_error({id, std::move(text)}, answers.emplace_back());
}

// A request that has a stream id gets its error as the end of that stream. So does a verb that we
// do not know, unless that would seem to end another, live stream.
void answer_parse_error(const protocol::ParseError& error, const StreamTable& streams,
                        std::vector<std::string>& answers) {
  const bool unknown_verb = error.message.starts_with("verb: ");
  const bool as_token = error.stream_id && (error.opens_stream ||
                                            (unknown_verb && !streams.contains(*error.stream_id)));
  if (as_token) {
    answer_token_error(*error.stream_id, error.message, answers);
  } else {
    answer_msg_error(error.stream_id, error.message, answers);
  }
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Dispatcher::handle(std::string_view text, Peer& peer, Answers& answers) {
  auto parsed = protocol::parse_client_message(text, bias_cache_);
  if (const auto* error = std::get_if<protocol::ParseError>(&parsed)) {
    answer_parse_error(*error, peer.streams, answers);
    return;
  }
  std::visit([&](auto& message) { handle(message, peer, answers); },
             std::get<protocol::ClientMessage>(parsed));
}

void Dispatcher::handle_binary(Answers& answers) {
  answer_msg_error(std::nullopt, "frame: is binary; allowed are text frames", answers);
}

void Dispatcher::handle(protocol::GenerateMessage& message, Peer& peer, Answers& answers) {
  if (!message.unknown_keys.empty()) log_unknown_keys(message.unknown_keys, peer);
  engine::Request request;
  request.key = {peer.streams.connection(), message.stream_id};
  request.model = std::move(message.model);
  request.kind = scheduler::SequenceKind::kGenerate;
  request.prompt = std::move(message.prompt);
  request.params = std::move(message.params);
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::ScoreMessage& message, Peer& peer, Answers& answers) {
  engine::Request request;
  request.key = {peer.streams.connection(), message.stream_id};
  request.model = std::move(message.model);
  request.kind = scheduler::SequenceKind::kScore;
  request.prompt = std::move(message.prompt);
  request.scored = std::move(message.scored);
  submit(std::move(request), peer, answers);
}

void Dispatcher::handle(protocol::ModelInfoMessage& message, Peer& /*peer*/, Answers& answers) {
  const auto entry = models_.resolve(message.model);
  if (!entry) return answer_msg_error(message.stream_id, entry.error().message, answers);
  protocol::serialize_model_info(
      {message.stream_id, model_info_json(**entry, message.model, version_)},
      answers.emplace_back());
}

void Dispatcher::handle(protocol::CancelMessage& message, Peer& peer, Answers& /*answers*/) {
  peer.streams.cancel(message.stream_id);
}

void Dispatcher::submit(engine::Request request, Peer& peer, Answers& answers) {
  const StreamId id = request.key.stream;
  if (peer.streams.contains(id)) {
    return answer_token_error(id,
                              "stream_id: " + std::to_string(id) +
                                  " is a live stream of this connection; allowed is an id that is "
                                  "not in use (the live stream goes on)",
                              answers);
  }
  const auto entry = models_.resolve(request.model);
  if (!entry) {
    answer_token_error(id, entry.error().message, answers);
    return answer_msg_error(id, entry.error().message, answers);
  }
  const Result<void> checked = engine::check_request(request, (*entry)->engine->limits());
  if (!checked) return answer_token_error(id, checked.error().message, answers);
  request.sink = peer.sink;
  if (request.model.empty()) request.model = (*entry)->description.name;  // for loading notices
  const engine::EngineInstance engine = (*entry)->engine->instance();
  const Result<void> submitted = engine.submit(std::move(request));
  if (!submitted) return answer_token_error(id, submitted.error().message, answers);
  peer.streams.add(id, engine);
}

void Dispatcher::log_unknown_keys(const std::vector<std::string>& keys, Peer& peer) {
  if (std::exchange(peer.unknown_keys_logged, true)) return;
  const std::int64_t now = now_ms();
  std::int64_t due = next_log_ms_.load();
  if (now < due || !next_log_ms_.compare_exchange_strong(due, now + kUnknownKeysLogIntervalMs)) {
    return;
  }
  std::string line =
      "connection " + std::to_string(peer.streams.connection()) + ": ignored unknown keys:";
  for (const std::string& key : keys) line += " '" + key + "'";
  log::warning(line);
}

void append_events(std::vector<engine::StreamEvent> events, StreamTable& streams,
                   std::vector<std::string>& messages) {
  std::vector<TokenOrError> entries;
  std::vector<protocol::LoadingEntry> loading;
  for (engine::StreamEvent& event : events) {
    if (auto* notice = std::get_if<protocol::LoadingEntry>(&event)) {
      if (streams.contains(notice->stream_id)) loading.push_back(std::move(*notice));
      continue;
    }
    if (auto* token = std::get_if<protocol::TokenEntry>(&event)) {
      if (!streams.contains(token->stream_id)) continue;
      if (token->finish_reason != protocol::FinishReason::kNone) streams.erase(token->stream_id);
      entries.emplace_back(std::move(*token));
      continue;
    }
    auto& error = std::get<protocol::ErrorEntry>(event);
    if (!error.stream_id || !streams.contains(*error.stream_id)) continue;
    streams.erase(*error.stream_id);
    entries.emplace_back(std::move(error));
  }
  if (!loading.empty()) protocol::serialize_loading(loading, messages.emplace_back());
  if (!entries.empty()) protocol::serialize_tokens(entries, messages.emplace_back());
}

}  // namespace lmtp::server
