// What the dispatcher does with messages that ask for more than the base protocol gives: begin()
// takes the message, start() its buffers, advance() brings it to its model (Intake); while
// that waits, on_events() calls advance() again.
#include <algorithm>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "dispatcher.h"
#include "lmtp/base/runtime.h"
#include "operations.h"
#include "resolve.h"

namespace lmtp::server {
namespace {

using OperationAnswer =
    std::variant<protocol::TokensEntry, protocol::TextEntry, protocol::BufferEntry>;

Result<OperationAnswer> answer_to(protocol::TokenizeMessage& message, Encoded& encoded,
                                  Peer& /*peer*/) {
  return OperationAnswer(
      protocol::TokensEntry{message.stream_id, std::move(encoded.prompts.front())});
}

Result<OperationAnswer> answer_to(protocol::DetokenizeMessage& message, Encoded& encoded,
                                  Peer& /*peer*/) {
  return OperationAnswer(protocol::TextEntry{message.stream_id, std::move(encoded.text)});
}

Result<OperationAnswer> answer_to(protocol::BufferMessage& message, Encoded& encoded, Peer& peer) {
  const auto length = message.append
                          ? peer.buffers.append(message.buffer, encoded.prompts.front())
                          : peer.buffers.set(message.buffer, std::move(encoded.prompts.front()));
  if (!length) return length.error();
  return OperationAnswer(protocol::BufferEntry{message.stream_id, message.buffer, *length});
}

}  // namespace

void Dispatcher::handle(protocol::TokenizeMessage& message, Peer& peer, Answers& answers) {
  begin(std::move(message), peer, answers);
}

void Dispatcher::handle(protocol::DetokenizeMessage& message, Peer& peer, Answers& answers) {
  begin(std::move(message), peer, answers);
}

void Dispatcher::handle(protocol::BufferMessage& message, Peer& peer, Answers& answers) {
  begin(std::move(message), peer, answers);
}

void Dispatcher::handle(protocol::FreeMessage& message, Peer& peer, Answers& answers) {
  if (message.stream_id && peer.streams.contains(*message.stream_id)) {
    return answer_msg_error({message.stream_id, id_in_use(*message.stream_id)}, answers);
  }
  if (!peer.awaiting_buffer) return free_buffer(message, peer, answers);
  if (peer.deferred.size() < kDeferredMax) {
    peer.deferred.emplace_back(std::move(message));
    return;
  }
  const Error error = overloaded("too much waits for a BUFFER of this connection");
  answer_msg_error(error_entry(message.stream_id, error), answers);
}

void Dispatcher::free_buffer(const protocol::FreeMessage& message, Peer& peer, Answers& answers) {
  if (!peer.buffers.erase(message.buffer)) {
    return answer_msg_error(error_entry(message.stream_id, unknown_buffer(message.buffer)),
                            answers);
  }
  if (!message.stream_id) return;
  protocol::serialize_answer(protocol::BufferEntry{*message.stream_id, message.buffer, 0},
                             answers.emplace_back());
}

void Dispatcher::begin(Operation operation, Peer& peer, Answers& answers) {
  const StreamId id = id_of(operation);
  const bool is_deferred = peer.awaiting_buffer && concerns_buffers(operation);
  std::unique_ptr<ExtendedStream> stream =
      make_extended(models_.of(peer.caller), encoder_, peer, std::move(operation));
  if (peer.streams.contains(id)) {
    count_refused(id, verb_of(stream->waiting->operation), ErrorCode::kInvalid, peer);
    const auto answer = stream->is_stream ? answer_token_error : answer_msg_error;
    return answer({id, id_in_use(id)}, answers);
  }
  WaitingOperation& waiting = *stream->waiting;
  const bool scores = std::holds_alternative<protocol::ScoreMessage>(waiting.operation) ||
                      std::holds_alternative<protocol::DecideMessage>(waiting.operation);
  peer.streams.add(id, std::move(stream)).scores = scores;
  if (!is_deferred) return start(id, peer, answers);
  if (!waiting.count()) {
    return fail(id, overloaded("what waits for models takes too much memory"), peer, answers);
  }
  if (peer.deferred.size() >= kDeferredMax) {
    return fail(id, overloaded("too much waits for a BUFFER of this connection"), peer, answers);
  }
  peer.deferred.emplace_back(id);
}

void Dispatcher::start(StreamId id, Peer& peer, Answers& answers) {
  WaitingOperation& waiting = *peer.streams.find(id)->extended->waiting;
  if (waiting.has_model()) {
    if (const auto ok = models_.of(peer.caller).check(waiting.model_name()); !ok) {
      count_refused(id, verb_of(waiting.operation), ok.error().code, peer);
      return end(id, ok.error(), true, peer, answers);
    }
  }
  if (const protocol::StreamOptions* options = options_of(waiting.operation)) {
    const Result<void> held = hold_buffers(options->prompt_parts, peer.buffers, waiting);
    if (!held) return fail(id, held.error(), peer, answers);
  }
  if (const auto* buffer = std::get_if<protocol::BufferMessage>(&waiting.operation)) {
    const auto before = buffer->append ? peer.buffers.find(buffer->buffer) : nullptr;
    waiting.begins_buffer = before == nullptr || before->empty();
  }
  advance(id, peer, answers);
}

void Dispatcher::advance(StreamId id, Peer& peer, Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  ExtendedStream& stream = *live.extended;
  const std::shared_ptr<WaitingOperation> waiting = stream.waiting;
  Intake::Progress progress = waiting->advance(requester(id, stream.arrival, peer));
  live.canceller = std::move(progress.awaited);
  if (progress.refusal) {
    const auto& [error, no_model] = *progress.refusal;
    return progress.is_counted ? end(id, error, no_model, peer, answers)
                               : fail(id, error, peer, answers);
  }
  if (!progress.model) {
    if (std::holds_alternative<protocol::BufferMessage>(waiting->operation)) {
      peer.awaiting_buffer = id;
    }
    return;
  }
  if (const BegunController* begun = waiting->begun()) answer_begun(id, *waiting, *begun, answers);
  const registry::ReadyModel& model = *progress.model;
  Encoded& encoded = waiting->encoded();
  const auto run = [&](auto& message) {
    if constexpr (requires { message.options; }) {
      Result<Request> request = make_request(message, std::move(encoded), model, stream);
      if (!request) return fail(id, request.error(), peer, answers);
      if (stream.rows != nullptr) {
        return begin_rows(id, std::move(*request), model.name, peer, answers);
      }
      int num_samples = 1;
      if constexpr (requires { message.num_samples; }) num_samples = message.num_samples;
      return submit_samples(id, std::move(*request), num_samples, model.name, peer, answers);
    } else {
      const Result<OperationAnswer> answer = answer_to(message, encoded, peer);
      if (!answer) return fail(id, answer.error(), peer, answers);
      std::string text;
      protocol::serialize_answer(*answer, text);
      if (const std::size_t most = peer.limits.max_answer_bytes; text.size() > most) {
        return fail(id, too_much("text", most), peer, answers);
      }
      answers.push_back(std::move(text));
      peer.streams.erase(id);
      resume_deferred(id, peer, answers);
    }
  };
  std::visit(run, waiting->operation);
}

void Dispatcher::submit_samples(StreamId id, Request request, int num_samples,
                                const std::string& model_name, Peer& peer, Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  ExtendedStream& stream = *live.extended;
  const protocol::NoticeEntry accepted{.stream_id = id,
                                       .status = "accepted",
                                       .seed = request.params.seed,
                                       .model = model_name,
                                       .num_prompt = static_cast<int>(request.prompt.size())};
  const Requester from = requester(id, stream.arrival, peer);
  const ExtendedStream::Sample first = stream.samples.front();
  stream.samples.resize(static_cast<std::size_t>(num_samples), first);
  stream.num_alive = 0;
  const std::shared_ptr<WaitingOperation> waiting = stream.waiting;
  Answers errors;
  for (int i = 0; i < num_samples; ++i) {
    // The last one takes it. NOLINTNEXTLINE(bugprone-use-after-move)
    Request of_sample = i + 1 < num_samples ? request : std::move(request);
    of_sample.key.sample = i;
    registry::Submission submitted =
        waiting->submit_sample(from, std::move(of_sample), first.text ? &*first.text : nullptr);
    if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
      stream.samples[static_cast<std::size_t>(i)].canceller = std::move(*canceller);
      ++stream.num_alive;
      continue;
    }
    const auto& refusal = std::get<registry::Refusal>(submitted);
    protocol::ErrorEntry entry = error_entry(id, refusal.error, refusal.no_model);
    if (num_samples > 1) entry.index = i;
    answer_stream_error(entry, errors);
  }
  if (stream.num_alive > 0 && stream.wants_notices) {
    protocol::serialize_notices({&accepted, 1}, answers.emplace_back());
  }
  std::ranges::move(errors, std::back_inserter(answers));
  live.canceller.reset();
  live.model = models_.of(peer.caller).lasting_name(model_name);
  stream.waiting.reset();
  if (stream.num_alive == 0) peer.streams.erase(id);
}

void Dispatcher::on_events(std::span<StreamEvent> events, Peer& peer, Answers& answers) {
  for (const Outcome& outcome : append_events(events, peer, answers)) {
    const StreamTable::Live* live = peer.streams.find(outcome.id);
    if (live == nullptr) continue;  // the last row has ended since
    if (outcome.error && !outcome.is_counted) {
      fail(outcome.id, outcome.error->error, peer, answers);
    } else if (outcome.error) {
      end(outcome.id, outcome.error->error, outcome.error->no_model, peer, answers);
    } else if (live->extended->rows != nullptr) {
      submit_rows(outcome.id, peer, answers);
    } else {
      advance(outcome.id, peer, answers);
    }
  }
}

// What waits for a BUFFER before it, or for the encoder, has nobody else who could end it.
void Dispatcher::cancel(StreamId id, const Error& reason, Peer& peer, Answers& answers) {
  StreamTable::Live* live = peer.streams.find(id);
  if (live == nullptr || live->cancelled) return;
  if (live->extended != nullptr && live->extended->waiting != nullptr &&
      live->canceller == nullptr) {
    std::erase_if(peer.deferred, [id](const auto& deferred) {
      const auto* stream = std::get_if<StreamId>(&deferred);
      return stream != nullptr && *stream == id;
    });
    return fail(id, reason, peer, answers);
  }
  if (live->extended != nullptr) live->extended->end_reason = reason;
  peer.streams.cancel(id);
}

void Dispatcher::end_overdue(runtime::Clock::time_point now, Peer& peer, Answers& answers) {
  while (const auto deadline = peer.streams.next_deadline()) {
    if (deadline->time > now) return;
    const ExtendedStream& stream = *peer.streams.find(deadline->id)->extended;
    const Error reason{ErrorCode::kTimeout,
                       deadline->of_first_token
                           ? "timeout: no token came within " +
                                 std::to_string(stream.first_token_timeout_ms) +
                                 " ms (first_token_timeout_ms)"
                           : "timeout: the stream was not done within " +
                                 std::to_string(stream.timeout_ms) + " ms (timeout_ms)"};
    cancel(deadline->id, reason, peer, answers);
  }
}

void Dispatcher::fail(StreamId id, const Error& error, Peer& peer, Answers& answers) {
  count_refused(id, verb_of(peer.streams.find(id)->extended->waiting->operation), error.code, peer);
  end(id, error, false, peer, answers);
}

void Dispatcher::end(StreamId id, const Error& error, bool no_model, Peer& peer, Answers& answers) {
  const bool is_stream = peer.streams.find(id)->extended->is_stream;
  peer.streams.erase(id);
  const protocol::ErrorEntry entry = error_entry(id, error, no_model);
  const auto answer = is_stream ? answer_stream_error : answer_msg_error;
  answer(entry, answers);
  resume_deferred(id, peer, answers);
}

// Where that was the BUFFER for which others have waited: they are done, up to the next one that
// has to wait.
void Dispatcher::resume_deferred(StreamId id, Peer& peer, Answers& answers) {
  if (peer.awaiting_buffer != id) return;
  peer.awaiting_buffer.reset();
  while (!peer.awaiting_buffer && !peer.deferred.empty()) {
    const auto next = std::move(peer.deferred.front());
    peer.deferred.pop_front();
    if (const auto* stream = std::get_if<StreamId>(&next)) {
      start(*stream, peer, answers);
    } else {
      free_buffer(std::get<protocol::FreeMessage>(next), peer, answers);
    }
  }
}

}  // namespace lmtp::server
