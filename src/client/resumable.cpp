#include "lmtp/client/resumable.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lmtp::client {

using protocol::DecideMessage;
using protocol::GenerateMessage;
using protocol::ScoreMessage;

Resumable::Resumable(GenerateMessage message)
    : whole_(std::move(message)),
      samples_(static_cast<std::size_t>(std::get<GenerateMessage>(whole_).num_samples)) {
  if (!std::get<GenerateMessage>(whole_).controller.empty()) controlled_ = Controlled{};
}

Resumable::Resumable(ScoreMessage message) : whole_(std::move(message)), samples_(1) {}

Resumable::Resumable(DecideMessage message) : whole_(std::move(message)), samples_(1) {}

std::vector<protocol::ClientMessage> Resumable::ask(StreamId first_id) {
  first_id_ = first_id;
  asked_.clear();
  std::vector<protocol::ClientMessage> messages;
  if (const auto* score = std::get_if<ScoreMessage>(&whole_)) {
    messages.emplace_back(rest_of(*score));
  } else if (const auto* decide = std::get_if<DecideMessage>(&whole_)) {
    messages.emplace_back(*decide);
    set_timeouts(std::get<DecideMessage>(messages.back()).options);
  } else if (const auto& whole = std::get<GenerateMessage>(whole_); num_received() == 0) {
    messages.emplace_back(whole);
    set_timeouts(std::get<GenerateMessage>(messages.back()).options);
  } else {
    for (int index = 0; index < whole.num_samples; ++index) {
      if (samples_[static_cast<std::size_t>(index)].finished) continue;
      messages.emplace_back(rest_of(whole, index));
      asked_.push_back(index);
    }
  }
  for (protocol::ClientMessage& message : messages) {
    std::visit(
        [&](auto& kind) {
          if constexpr (requires { kind.stream_id = first_id; }) kind.stream_id = first_id++;
        },
        message);
  }
  return messages;
}

// Draws depend on seed and position alone.
GenerateMessage Resumable::rest_of(const GenerateMessage& whole, int index) const {
  const std::vector<TokenId>& came = samples_[static_cast<std::size_t>(index)].tokens;
  GenerateMessage rest = whole;
  if (!whole.options.prompt_parts.empty()) {
    if (!came.empty()) rest.options.prompt_parts.emplace_back(came);
  } else {
    rest.prompt.insert(rest.prompt.end(), came.begin(), came.end());
  }
  rest.num_resumed += static_cast<int>(came.size());
  rest.params.max_tokens -= static_cast<int>(came.size());
  rest.params.seed += static_cast<std::uint64_t>(index);
  rest.num_samples = 1;
  set_timeouts(rest.options);
  return rest;
}

// The pieces of its text depend on where the scored text began, so that is asked for as a whole.
ScoreMessage Resumable::rest_of(const ScoreMessage& whole) {
  Sample& sample = samples_.front();
  ScoreMessage rest = whole;
  set_timeouts(rest.options);
  sample.num_skipped = 0;
  if (!whole.scored_text.empty() || whole.options.text.value_or(false)) {
    sample.num_skipped = sample.tokens.size();
    return rest;
  }
  const std::vector<TokenId>& came = sample.tokens;
  rest.scored.erase(rest.scored.begin(), rest.scored.begin() + std::ssize(came));
  if (came.empty()) return rest;
  if (whole.options.prompt_parts.empty()) {
    rest.prompt.insert(rest.prompt.end(), came.begin(), came.end());
  } else {
    rest.options.prompt_parts.emplace_back(came);
  }
  return rest;
}

// What is left of them. The server ends the stream where nothing is.
void Resumable::set_timeouts(protocol::StreamOptions& options) const {
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begun_);
  for (int* timeout_ms : {&options.first_token_timeout_ms, &options.timeout_ms}) {
    if (*timeout_ms > 0) *timeout_ms = std::max(1, *timeout_ms - static_cast<int>(spent.count()));
  }
  if (num_received() > 0) options.first_token_timeout_ms = 0;
}

bool Resumable::take(protocol::ServerEntry& entry) {
  if (controlled_) {
    take_controlled(entry);
    return true;
  }
  if (entry.is_msg) return true;
  if (!asked_.empty()) {
    if (!entry.stream_id) return false;
    entry.index = asked_[static_cast<std::size_t>(*entry.stream_id - first_id_)];
  }
  if (entry.index < 0 || entry.index >= std::ssize(samples_)) return false;
  Sample& sample = samples_[static_cast<std::size_t>(entry.index)];
  if (entry.token && sample.num_skipped > 0) {
    --sample.num_skipped;
    return false;
  }
  if (entry.token) sample.tokens.push_back(*entry.token);
  sample.finished = entry.finish_reason != FinishReason::kNone;
  return true;
}

void Resumable::take_controlled(const protocol::ServerEntry& entry) {
  if (entry.is_msg && entry.controller_json.empty()) return;  // a notice
  ++controlled_->num_entries;
  if (entry.is_msg) return;
  if (entry.fork_of_index) {
    controlled_->has_forked = true;
    controlled_->live.insert(entry.index);
  }
  if (entry.finish_reason != FinishReason::kNone) controlled_->live.erase(entry.index);
}

bool Resumable::take_error(const protocol::ServerEntry& entry) {
  if (!controlled_ || !controlled_->has_forked || entry.is_msg) return false;
  if (controlled_->live.erase(entry.index) == 0) return false;
  if (!controlled_->error) controlled_->error = Error{ErrorCode::kUnavailable, entry.error};
  return true;
}

std::optional<Error> Resumable::error_of_sample() const {
  return controlled_ ? controlled_->error : std::nullopt;
}

std::size_t Resumable::num_received() const {
  if (controlled_) return controlled_->num_entries;
  std::size_t sum = 0;
  for (const Sample& sample : samples_) sum += sample.tokens.size();
  return sum;
}

bool Resumable::finished() const {
  return controlled_ ? controlled_->live.empty() : std::ranges::all_of(samples_, &Sample::finished);
}

}  // namespace lmtp::client
