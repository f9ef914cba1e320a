#include "events.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "parsed_reply.h"

namespace lmtp::server {
namespace {

using protocol::ErrorEntry;
using protocol::NoticeEntry;
using protocol::TokenEntry;
using protocol::TokenOrError;

std::string_view status_of(StreamNotice::Kind kind) {
  switch (kind) {
    case StreamNotice::Kind::kQueued:
      return "queued";
    case StreamNotice::Kind::kPreempted:
      return "preempted";
    case StreamNotice::Kind::kResumed:
      return "resumed";
    case StreamNotice::Kind::kRecomputes:
      return "recomputes";
    case StreamNotice::Kind::kMoved:
      return "moved";
    case StreamNotice::Kind::kDraining:
      break;
  }
  return "draining";
}

std::optional<int> index_of(const ExtendedStream& stream, int sample) {
  return stream.samples.size() > 1 ? std::optional(sample) : std::nullopt;
}

class EventMessages {
 public:
  EventMessages(Peer& peer, std::size_t num_events) : peer_(peer) {
    entries_.reserve(num_events);  // most are tokens
  }

  void add(TokenEvent& event) {
    StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr) return;
    const bool is_last = event.finish_reason != FinishReason::kNone;
    if (live->extended != nullptr) return add(event, *live->extended);
    if (is_last) peer_.streams.erase(event.stream_id);
    entries_.emplace_back(std::move(event));
  }

  void add(StreamError& event) {
    const StreamId id = event.stream_id;
    StreamTable::Live* live = peer_.streams.find(id);
    if (live == nullptr) return;
    ExtendedStream* extended = live->extended.get();
    if (extended != nullptr) {
      if (extended->end_reason && event.error.code == ErrorCode::kCancelled) {
        event.error = *extended->end_reason;
      }
      if (extended->waiting != nullptr) return outcomes_.push_back({id, std::move(event)});
      if (extended->rows != nullptr) return fail_row(event, *extended);
    }
    ErrorEntry entry = error_entry(id, std::move(event.error), event.no_model);
    if (extended != nullptr) entry.index = index_of(*extended, event.sample);
    // LMQL takes one of the two for the answer.
    if (event.no_model) answer_msg_error(entry, failures_);
    entries_.emplace_back(std::move(entry));
    if (extended == nullptr) return peer_.streams.erase(id);
    if (has_sample(*extended, event.sample)) end_sample(id, *extended, event.sample);
  }

  void add(LoadingNotice& event) {
    if (peer_.streams.contains(event.stream_id)) loading_.push_back(std::move(event));
  }

  void add(const StreamNotice& event) {
    const StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr || live->extended == nullptr || !live->extended->wants_notices) return;
    NoticeEntry& entry = notices_.emplace_back();
    entry.stream_id = event.stream_id;
    entry.index = index_of(*live->extended, event.sample);
    entry.status = status_of(event.kind);
    entry.position = event.position;
    entry.wait_ms = event.wait_ms;
    entry.num_tokens = event.num_tokens;
  }

  void add(const ModelReady& event) {
    const StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr || live->extended == nullptr || live->extended->waiting == nullptr) return;
    if (live->extended->waiting->encoding() != event.encoding) return;
    Outcome& outcome = outcomes_.emplace_back(Outcome{event.stream_id, {}});
    if (!live->cancelled) return;
    const Error cancelled{ErrorCode::kCancelled, "cancelled"};
    outcome.error = StreamError{event.stream_id, live->extended->end_reason.value_or(cancelled)};
    outcome.is_counted = false;
  }

  // All that its parent has given before has been added.
  void add(const ForkBegun& event) {
    const StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr || live->extended == nullptr) return;
    live->extended->begun = event;
    const StreamTable::Live* parent = peer_.streams.find(event.fork_of);
    if (parent != nullptr && parent->extended != nullptr) {
      auto& text = live->extended->samples.front().text;
      text = parent->extended->samples.front().text;
      if (text) text->backtrack(static_cast<std::size_t>(event.num_backtracked));
    }
  }

  void add(const SampleForked& event) {
    StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr || live->extended == nullptr) return;
    ExtendedStream& stream = *live->extended;
    const bool is_next = event.sample == std::ssize(stream.samples);
    if (!is_next || !has_sample(stream, event.fork_of)) return;
    ExtendedStream::Sample fork = stream.samples[static_cast<std::size_t>(event.fork_of)];
    if (fork.text) fork.text->backtrack(static_cast<std::size_t>(event.num_backtracked));
    stream.samples.push_back(std::move(fork));
    ++stream.num_alive;
    // Told at once, so that the client knows of all samples when one of them ends.
    TokenEntry entry{{.stream_id = event.stream_id, .token = kNoToken}, event.sample};
    entry.forked = event;
    entries_.emplace_back(std::move(entry));
  }

  void add(ControllerOutput& event) {
    const StreamTable::Live* live = peer_.streams.find(event.stream_id);
    if (live == nullptr || live->extended == nullptr) return;
    outputs_.push_back({event.stream_id, index_of(*live->extended, event.sample),
                        std::move(event.logs), std::move(event.storage), event.micros});
  }

  void add(EditRefused& event) {
    answer_msg_error(error_entry(event.stream_id, std::move(event.error)), failures_);
  }

  std::vector<Outcome> finish(Answers& messages) {
    if (!loading_.empty()) protocol::serialize_loading(loading_, messages.emplace_back());
    if (!outputs_.empty()) protocol::serialize_controllers(outputs_, messages.emplace_back());
    if (!notices_.empty()) protocol::serialize_notices(notices_, messages.emplace_back());
    if (!entries_.empty()) protocol::serialize_tokens(entries_, messages.emplace_back());
    std::move(failures_.begin(), failures_.end(), std::back_inserter(messages));
    return std::move(outcomes_);
  }

 private:
  // One is unknown where what told of it was lost: nothing is said of it then.
  static bool has_sample(const ExtendedStream& stream, int sample) {
    return sample >= 0 && sample < std::ssize(stream.samples);
  }

  // The client sees nothing of a row.
  void read_row(const TokenEvent& event, ExtendedStream& stream) {
    const auto row = static_cast<std::size_t>(event.sample);
    stream.rows->rows->read(row, event);
    stream.rows->begun.insert(event.sample);
    if (event.finish_reason == FinishReason::kNone) return;
    stream.rows->rows->end(row);
    stream.rows->live.erase(event.sample);
    stream.rows->begun.erase(event.sample);
    end_row(event.stream_id, stream);
  }

  void fail_row(StreamError& event, ExtendedStream& stream) {
    const StreamId id = event.stream_id;
    StreamRows& rows = *stream.rows;
    rows.live.erase(event.sample);
    const bool is_refused =
        event.error.code == ErrorCode::kOverloaded && rows.begun.erase(event.sample) == 0;
    if (is_refused && !rows.live.empty()) {  // it comes again as the others end
      rows.rows->give_back(static_cast<std::size_t>(event.sample));
      rows.num_live_max = rows.live.size();
      return;
    }
    if (!rows.error) rows.error = error_entry(id, std::move(event.error), event.no_model);
    peer_.streams.cancel(id);
    end_row(id, stream);
  }

  // Where the stream is being ended its error comes once all rows have ended: until then its id is
  // theirs.
  void end_row(StreamId id, ExtendedStream& stream) {
    const StreamRows& rows = *stream.rows;
    if (!peer_.streams.find(id)->cancelled) return outcomes_.push_back({id, {}});
    if (!rows.live.empty()) return;
    const Error cancelled{ErrorCode::kCancelled, "cancelled"};
    const ErrorEntry error =
        rows.error.value_or(error_entry(id, stream.end_reason.value_or(cancelled)));
    if (error.no_model) answer_msg_error(error, failures_);
    entries_.emplace_back(error);
    peer_.streams.erase(id);
  }

  void add(TokenEvent& event, ExtendedStream& stream) {
    if (stream.rows != nullptr) return read_row(event, stream);
    if (!has_sample(stream, event.sample)) return;
    const StreamId id = event.stream_id;
    const int sample = event.sample;
    const bool is_last = event.finish_reason != FinishReason::kNone;
    peer_.streams.met_first(id, stream);
    if (!stream.into.empty() && sample == 0) {
      stream.tokens.resize(
          stream.tokens.size() -
          std::min(stream.tokens.size(), static_cast<std::size_t>(event.num_backtracked)));
      if (event.token != kNoToken) stream.tokens.push_back(event.token);
    }
    const std::optional<int> index = index_of(stream, sample);
    auto& text = stream.samples[static_cast<std::size_t>(sample)].text;
    if (!text && !index && !stream.begun) {
      entries_.emplace_back(std::move(event));
    } else {
      TokenEntry entry{std::move(event), index};
      entry.fork = std::exchange(stream.begun, std::nullopt);
      if (text) {
        Reply reply = text->read(std::move(entry.event));
        if (stream.is_parsed) entry.pieces = pieces_of(reply);
        if (stream.sends_text) entry.text = reply.take_content();
        entry.stop_text = std::move(reply.stop_text);
        entry.event = std::move(reply.token);
      }
      entries_.emplace_back(std::move(entry));
    }
    if (is_last) end_sample(id, stream, sample);
  }

  // The stream ends with the last of its samples.
  void end_sample(StreamId id, ExtendedStream& stream, int sample) {
    stream.samples[static_cast<std::size_t>(sample)].canceller.reset();
    if (--stream.num_alive > 0) return;
    if (!stream.into.empty()) {
      const auto kept = peer_.buffers.set(stream.into, std::move(stream.tokens));
      if (!kept) answer_msg_error(error_entry(id, kept.error()), failures_);
    }
    peer_.streams.erase(id);
  }

  Peer& peer_;
  std::vector<TokenOrError> entries_;
  std::vector<LoadingNotice> loading_;
  std::vector<NoticeEntry> notices_;
  std::vector<protocol::ControllerEntry> outputs_;
  Answers failures_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

ErrorEntry error_entry(std::optional<StreamId> id, Error error, bool no_model) {
  return {id, std::move(error.message), error.code, no_model, {}, error.wait_ms};
}

void answer_token_error(const ErrorEntry& error, Answers& answers) {
  const TokenOrError entry = error;
  protocol::serialize_tokens({&entry, 1}, answers.emplace_back());
}

void answer_msg_error(const ErrorEntry& error, Answers& answers) {
  protocol::serialize_msg_error(error, answers.emplace_back());
}

void answer_stream_error(const ErrorEntry& error, Answers& answers) {
  answer_token_error(error, answers);
  if (error.no_model) answer_msg_error(error, answers);
}

void answer_begun(StreamId id, WaitingOperation& waiting, const BegunController& begun,
                  Answers& answers) {
  protocol::ControllerEntry entry{
      id, {}, begun.output.logs, begun.output.storage, begun.output.micros};
  if (begun.changes_prompt) entry.prompt = waiting.encoded().prompts.front();
  if (!begun.changes_prompt && entry.logs.empty() && entry.storage.empty()) return;
  protocol::serialize_controllers({&entry, 1}, answers.emplace_back());
}

std::vector<Outcome> append_events(std::span<StreamEvent> events, Peer& peer, Answers& messages) {
  EventMessages sorted(peer, events.size());
  for (StreamEvent& event : events) {
    std::visit([&](auto& kind) { sorted.add(kind); }, event);
  }
  return sorted.finish(messages);
}

}  // namespace lmtp::server
