#include "lmtp/client/retrying_client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/client/resumable.h"

namespace lmtp::client {
namespace {

using protocol::ServerEntry;

// Sent as JSON, which some readers hold in doubles.
constexpr std::uint64_t kSeedMax = (std::uint64_t{1} << 53) - 1;

int ms_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

// Empty where the server does not say.
std::string numerics_of(const std::optional<std::string>& info) {
  if (!info) return "";
  const auto fields = parse_json_object(*info, "model_info");
  const std::string* const text = fields ? find_json_text(*fields, "numerics") : nullptr;
  return text != nullptr ? *text : "";
}

}  // namespace

RetryingClient::RetryingClient(Address address, RetryOptions options)
    : address_(std::move(address)), options_(options), random_(options.random_seed) {}

Result<void> RetryingClient::connect() {
  if (client_.connected()) return {};
  auto connected =
      client_.connect(address_.host, address_.port, kConnectTimeoutMs, address_.security);
  if (!connected) return connected;
  info_.reset();
  return send_info_request();
}

Result<RetryingClient::Outcome> RetryingClient::run(protocol::GenerateMessage message,
                                                    const OnEntry& on_entry) {
  if (options_.attempts > 1 && !message.params.has_seed) {
    message.params.seed = random_() & kSeedMax;
    message.params.has_seed = true;
  }
  Resumable request(std::move(message));
  return run(request, on_entry);
}

Result<RetryingClient::Outcome> RetryingClient::run(protocol::ScoreMessage message,
                                                    const OnEntry& on_entry) {
  Resumable request(std::move(message));
  return run(request, on_entry);
}

Result<RetryingClient::Outcome> RetryingClient::run(protocol::DecideMessage message,
                                                    const OnEntry& on_entry) {
  Resumable request(std::move(message));
  return run(request, on_entry);
}

Result<RetryingClient::Outcome> RetryingClient::run(Resumable& request, const OnEntry& on_entry) {
  Outcome outcome = Outcome::kFinished;
  for (int num_failed = 0;;) {
    const std::size_t num_before = request.num_received();
    const auto failure = attempt(request, on_entry, outcome);
    if (!failure) return outcome;
    if (failure->is_stale) continue;
    if (request.num_received() > num_before) num_failed = 0;
    if (!failure->retryable || ++num_failed >= options_.attempts) return failure->error;
    if (!request.is_continued() && request.num_received() > 0) {
      return Error{failure->error.code,
                   failure->error.message + "; a controller's stream cannot be continued"};
    }
    if (!client_.pause(backoff_ms(num_failed, failure->retry_after_ms))) {
      live_.clear();
      return Outcome::kInterrupted;
    }
  }
}

int RetryingClient::backoff_ms(int num_failed, int retry_after_ms) {
  double most_ms = options_.backoff_ms_min;
  for (int i = 1; i < num_failed && most_ms < options_.backoff_ms_max; ++i) most_ms *= 2;
  most_ms = std::min<double>(most_ms, options_.backoff_ms_max);
  // So that the clients of a server that was lost do not come back all at once.
  const double jittered_ms = most_ms * std::uniform_real_distribution(0.5, 1.0)(random_);
  return std::max(static_cast<int>(jittered_ms), std::min(retry_after_ms, kRetryAfterMsMax));
}

std::optional<RetryingClient::Failure> RetryingClient::attempt(Resumable& request,
                                                               const OnEntry& on_entry,
                                                               Outcome& outcome) {
  const bool was_open = client_.connected();
  bool has_begun = false;
  const auto lost = [&](const Error& error) {
    const bool is_stale = was_open && !has_begun && !client_.connected();
    return Failure{error, error.code != ErrorCode::kCancelled, 0, is_stale};
  };
  if (const auto connected = connect(); !connected) return lost(connected.error());
  live_.clear();
  for (const protocol::ClientMessage& message : request.ask(next_id_)) {
    live_.push_back(next_id_++);
    if (const auto sent = client_.send(message); !sent) return lost(sent.error());
  }
  // What waits for the server's numerics.
  std::vector<ServerEntry> held;
  std::optional<Clock::time_point> deadline;  // of waiting for them
  bool holds = options_.attempts > 1 && request.is_continued();
  while (!request.finished()) {
    ServerEntry entry;
    const bool waits = holds && deadline;
    const auto received = client_.receive(entry, waits ? ms_until(*deadline) : -1);
    if (!received) return lost(received.error());
    const bool is_late = waits && Clock::now() >= *deadline;
    if (!*received && !is_late) {
      outcome = Outcome::kInterrupted;
      return std::nullopt;
    }
    if (*received && !take_info(entry)) {
      // What names no stream can only be about this request.
      if (entry.stream_id && std::ranges::find(live_, *entry.stream_id) == live_.end()) continue;
      has_begun = true;
      held.push_back(std::move(entry));
      if (holds && !deadline && held.back().token) {  // the model is loaded: it has its numerics
        deadline = Clock::now() + std::chrono::milliseconds(kInfoTimeoutMs);
        if (const auto sent = send_info_request(); !sent) return lost(sent.error());
      }
    }
    if (deadline && holds && (!info_awaited_ || is_late)) {
      holds = false;
      if (auto failure = check_numerics(request)) return failure;
    }
    if (holds && deadline) continue;
    if (auto failure = deliver(request, on_entry, held)) return failure;
    held.clear();
  }
  live_.clear();
  outcome = Outcome::kFinished;
  if (auto error = request.error_of_sample()) return Failure{*std::move(error)};
  return std::nullopt;
}

// Before the first token of a try is given out.
std::optional<RetryingClient::Failure> RetryingClient::check_numerics(const Resumable& request) {
  const bool is_known = !info_awaited_ && info_error_.empty();
  std::string numerics = is_known ? numerics_of(info_) : "";
  if (request.num_received() > 0 && (numerics_.empty() || numerics != numerics_)) {
    client_.close();  // ends what was asked
    const auto shown = [](const std::string& text) { return text.empty() ? "unknown" : text; };
    return Failure{{ErrorCode::kUnavailable,
                    "the stream was lost, and the server there now cannot continue it exactly: its "
                    "numerics are " +
                        shown(numerics) + ", those of what came " + shown(numerics_)}};
  }
  numerics_ = std::move(numerics);
  return std::nullopt;
}

std::optional<RetryingClient::Failure> RetryingClient::deliver(Resumable& request,
                                                               const OnEntry& on_entry,
                                                               std::vector<ServerEntry>& entries) {
  for (ServerEntry& entry : entries) {
    if (!entry.error.empty() && !request.take_error(entry)) {
      if (request.num_samples() > 1) client_.close();  // the other samples end too
      return Failure{{ErrorCode::kUnavailable, entry.error}, entry.retryable, entry.retry_after_ms};
    }
    if (!entry.error.empty() || request.take(entry)) on_entry(entry);
  }
  return std::nullopt;
}

Result<std::string> RetryingClient::ask(protocol::ControllerMessage message) {
  const bool was_open = client_.connected();
  if (const auto connected = connect(); !connected) return connected.error();
  message.stream_id = next_id_++;
  message.model = address_.model;
  std::optional<Error> lost;
  if (const auto sent = client_.send(message); !sent) lost = sent.error();
  while (!lost) {
    ServerEntry entry;
    const auto received = client_.receive(entry);
    if (!received) {
      lost = received.error();
    } else if (!*received) {
      return Error{ErrorCode::kCancelled, "interrupted"};
    } else if (take_info(entry) ||
               entry.stream_id.value_or(message.stream_id) != message.stream_id) {
      continue;
    } else if (!entry.error.empty()) {
      return Error{ErrorCode::kUnavailable, entry.error};
    } else if (!entry.controller_json.empty()) {
      return entry.controller_json;
    }
  }
  return was_open ? ask(std::move(message)) : *lost;  // it had ended before
}

Result<void> RetryingClient::send_info_request() {
  protocol::ModelInfoMessage ask;
  ask.stream_id = info_id_ = next_id_++;
  ask.model = address_.model;
  info_error_.clear();
  info_awaited_ = true;
  return client_.send(ask);
}

// True where the entry belongs to MODEL_INFO.
bool RetryingClient::take_info(const ServerEntry& entry) {
  if (!entry.is_msg || !entry.stream_id || entry.stream_id != info_id_) return false;
  info_awaited_ = false;
  if (!entry.error.empty()) {
    info_error_ = entry.error;
  } else if (!entry.model_info_json.empty()) {
    info_ = entry.model_info_json;
  } else {
    info_error_ = "the server gives no information on its model yet";
  }
  return true;
}

Result<std::string> RetryingClient::ask_info() {
  const bool was_open = client_.connected();
  if (const auto connected = connect(); !connected) return connected.error();
  // A new connection has asked already.
  if (was_open && !send_info_request()) return ask_info();
  const auto deadline = Clock::now() + std::chrono::milliseconds(kInfoTimeoutMs);
  while (info_awaited_) {
    ServerEntry entry;
    const auto received = client_.receive(entry, ms_until(deadline));
    if (!received && was_open) return ask_info();  // it had ended before
    if (!received) return received.error();
    if (*received) {
      take_info(entry);
    } else if (Clock::now() < deadline) {
      return Error{ErrorCode::kCancelled, "interrupted"};
    } else {
      return Error{ErrorCode::kUnavailable, "no answer to MODEL_INFO within " +
                                                std::to_string(kInfoTimeoutMs / 1000) + " s"};
    }
  }
  if (!info_error_.empty()) return Error{ErrorCode::kUnavailable, info_error_};
  return *info_;
}

}  // namespace lmtp::client
