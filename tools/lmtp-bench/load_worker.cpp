#include "load_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lmtp/protocol/codec.h"

namespace lmtp::tools {

using protocol::ServerEntry;

LoadStats LoadWorker::run() {
  while (!schedule_.is_over() && start_due()) {
    if (streams_.empty() && !pending_) break;
    if (!receive()) break;
  }
  cut_off();
  return std::move(stats_);
}

bool LoadWorker::start_due() {
  while (running_.size() < num_programs_max_) {
    if (!pending_) pending_ = schedule_.next();
    const auto now = Clock::now();
    if (!pending_ || pending_->due > now) return true;
    const Schedule::Start start = *std::exchange(pending_, std::nullopt);
    if (schedule_.open_loop()) stats_.lag.add(seconds_between(start.due, now));
    ++stats_.num_programs;
    schedule_.programs.rise();
    Running& running = running_[start.index];
    running.index = start.index;
    running.program = make_program(*options_.workload, start.index);
    running.began = now;
    if (!run_step(running)) return false;
  }
  return true;
}

bool LoadWorker::run_step(Running& running) {
  const std::vector<Request> requests = running.program->next(running.answers);
  if (requests.empty()) {
    ++stats_.num_programs_done;
    stats_.program.add(seconds_between(running.began, last_message_));
    end_program(running);
    return true;
  }
  running.answers.assign(requests.size(), {});
  running.num_open = requests.size();
  for (std::size_t slot = 0; slot < requests.size(); ++slot) {
    const Request& request = requests[slot];
    const StreamId id = next_id_++;
    const std::string text = text_.of(id, request);
    const auto now = Clock::now();
    if (streams_.empty()) last_message_ = now;
    Stream& stream = streams_[id];
    stream.running = &running;
    stream.slot = slot;
    stream.sent = stream.last = now;
    stream.num_prompt_tokens = static_cast<int>(request.prompt.size());
    stream.score = !request.scored.empty();
    schedule_.requests.rise();
    if (const auto sent = client_.send_text(text); !sent) {
      fail_all(sent.error().message);
      return false;
    }
  }
  return true;
}

int LoadWorker::ms_to_wait() const {
  auto until = schedule_.deadline();
  if (!streams_.empty()) {
    until = std::min(until, last_message_ + std::chrono::milliseconds(options_.timeout_ms));
  }
  if (pending_ && running_.size() < num_programs_max_) until = std::min(until, pending_->due);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
}

bool LoadWorker::receive() {
  client::ReceivedMessage message;
  const auto received = client_.receive_message(message, ms_to_wait());
  if (!received) {
    fail_all(received.error().message);
    return false;
  }
  if (*received) return take_message(message);
  const double silent_ms = seconds_between(last_message_, Clock::now()) * 1000;
  if (!streams_.empty() && silent_ms >= options_.timeout_ms) {
    fail_all("no answer for " + std::to_string(options_.timeout_ms) + " ms");
    return false;
  }
  return true;
}

bool LoadWorker::take_message(const client::ReceivedMessage& message) {
  last_message_ = message.arrived;
  auto entries = protocol::parse_server_message(message.text);
  if (!entries) {
    fail_all(entries.error().message);
    return false;
  }
  touched_.clear();
  for (ServerEntry& entry : *entries) take_entry(entry);
  for (const StreamId id : touched_) {
    const auto found = streams_.find(id);
    measure(found->second, message.arrived);
    if (!found->second.outcome.empty() && !end_stream(found, message.arrived)) return false;
  }
  return true;
}

void LoadWorker::take_entry(ServerEntry& entry) {
  const auto found = entry.stream_id ? streams_.find(*entry.stream_id) : streams_.end();
  if (found == streams_.end() || !found->second.outcome.empty()) return take_stray(entry);
  Stream& stream = found->second;
  const bool untouched = stream.num_new == 0;
  if (!entry.error.empty()) {
    stream.failed = true;
    stream.outcome = entry.error;
  } else if (entry.token) {
    ++stream.num_new;
    Answer& answer = stream.running->answers[stream.slot];
    answer.tokens.push_back(*entry.token);
    answer.top_logprobs = std::move(entry.top_logprobs);
    answer.finish_reason = entry.finish_reason;
    if (entry.finish_reason == FinishReason::kStop) stream.outcome = "stop";
    if (entry.finish_reason == FinishReason::kLength) stream.outcome = "length";
  } else {
    return;  // a notice: the model is being loaded
  }
  if (untouched) touched_.push_back(found->first);
}

void LoadWorker::take_stray(const ServerEntry& entry) {
  // An error that ends a stream may come as TOKEN and as MSG.
  if (entry.stream_id && failed_ids_.contains(*entry.stream_id)) return;
  if (!entry.error.empty()) {
    stats_.note_error(entry.error);
  } else if (entry.token) {
    ++stats_.num_stray;
  }
}

void LoadWorker::measure(Stream& stream, Clock::time_point arrived) {
  int num_gaps = std::exchange(stream.num_new, 0);
  if (num_gaps == 0) return;
  stats_.num_tokens += num_gaps;
  if (stream.num_tokens == 0) {
    stats_.ttft.add(seconds_between(stream.sent, arrived));
    stats_.num_prompt_tokens += stream.num_prompt_tokens;
    stream.first = stream.last = arrived;
    stream.num_tokens = 1;
    --num_gaps;
  }
  if (num_gaps > 0 && !stream.score) {
    stats_.itl.add(seconds_between(stream.last, arrived) / num_gaps, num_gaps);
  }
  stream.num_tokens += num_gaps;
  stream.last = arrived;
}

bool LoadWorker::end_stream(StreamMap::iterator found, Clock::time_point arrived) {
  const Stream& stream = found->second;
  Running& running = *stream.running;
  if (stream.failed) {
    ++stats_.num_failed;
    stats_.note_error(stream.outcome);
    failed_ids_.insert(found->first);
    running.failed = true;
  } else {
    ++stats_.num_completed;
    const FinishReason reason = running.answers[stream.slot].finish_reason;
    if (!stream.score && reason == FinishReason::kStop) ++stats_.num_stopped;
    stats_.e2el.add(seconds_between(stream.sent, arrived));
    if (stream.num_tokens > 1 && !stream.score) {
      stats_.tpot.add(seconds_between(stream.first, arrived) / (stream.num_tokens - 1));
    }
  }
  record(stream, stream.outcome, arrived);
  streams_.erase(found);
  schedule_.requests.fall();
  if (stats_.num_failed >= kErrorsMax) {
    fail_all("given up after " + std::to_string(kErrorsMax) + " errors");
    return false;
  }
  if (--running.num_open > 0) return true;
  if (!running.failed) return run_step(running);
  end_program(running);
  return true;
}

void LoadWorker::end_program(Running& running) {
  schedule_.programs.fall();
  running_.erase(running.index);
}

void LoadWorker::fail_all(const std::string& reason) {
  const auto now = Clock::now();
  stats_.note_error(reason, std::max<std::int64_t>(1, static_cast<std::int64_t>(streams_.size())));
  for (const auto& [id, stream] : streams_) {
    ++stats_.num_failed;
    record(stream, reason, now);
  }
  forget_streams();
}

void LoadWorker::cut_off() {
  const auto now = Clock::now();
  for (const auto& [id, stream] : streams_) {
    ++stats_.num_unfinished;
    record(stream, "unfinished", now);
  }
  forget_streams();
}

void LoadWorker::forget_streams() {
  schedule_.requests.fall(streams_.size());
  schedule_.programs.fall(running_.size());
  streams_.clear();
  running_.clear();
}

void LoadWorker::record(const Stream& stream, const std::string& outcome, Clock::time_point now) {
  if (!options_.keep_records || stats_.records.size() == kRecordsMax) return;
  const double ttft_s = stream.num_tokens == 0 ? 0.0 : seconds_between(stream.sent, stream.first);
  stats_.records.push_back({seconds_between(schedule_.began(), stream.sent), ttft_s,
                            seconds_between(stream.sent, now), stream.num_prompt_tokens,
                            stream.num_tokens, stream.score, outcome});
}

}  // namespace lmtp::tools
