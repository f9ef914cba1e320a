// The dispatcher's way of what asks for more than the base protocol gives: begin() takes the
// message, start() its buffers, advance() does it where its model is ready; else await_model() asks
// for that, and on_events() goes on.
#include <algorithm>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "dispatcher.h"
#include "generation/grammars.h"
#include "lmtp/base/guarded.h"
#include "operations.h"
#include "resolve.h"

namespace lmtp::server {
namespace {

// A model that is unloaded so often before a request's text has been encoded is in too much demand.
constexpr int kOperationAwaitsMax = 3;

using OperationAnswer =
    std::variant<protocol::TokensEntry, protocol::TextEntry, protocol::BufferEntry>;

Error overloaded(const std::string& what) {
  return {ErrorCode::kOverloaded, "overloaded: " + what + "; retry later"};
}

Error waiting_full() { return overloaded("what waits for models takes too much memory"); }

// False where all that waits takes too much, or what this connection has of it.
bool count_waiting(WaitingOperation& waiting) {
  const std::size_t bytes = num_bytes(waiting.operation) + num_buffer_bytes(waiting);
  if (!waiting.part->replace(waiting.counted_bytes, bytes)) return false;
  waiting.counted_bytes = bytes;
  return true;
}

Result<OperationAnswer> answer_to(protocol::TokenizeMessage& message, Resolved& resolved,
                                  Peer& /*peer*/) {
  return OperationAnswer(protocol::TokensEntry{message.stream_id, std::move(resolved.tokens)});
}

Result<OperationAnswer> answer_to(protocol::DetokenizeMessage& message, Resolved& resolved,
                                  Peer& /*peer*/) {
  return OperationAnswer(protocol::TextEntry{message.stream_id, std::move(resolved.text)});
}

Result<OperationAnswer> answer_to(protocol::BufferMessage& message, Resolved& resolved,
                                  Peer& peer) {
  const auto length = message.append ? peer.buffers.append(message.buffer, resolved.tokens)
                                     : peer.buffers.set(message.buffer, std::move(resolved.tokens));
  if (!length) return length.error();
  return OperationAnswer(protocol::BufferEntry{message.stream_id, message.buffer, *length});
}

// REQUIRES: it is resolved. Empty where there are more than the prompt has, which make_request()
// says.
std::vector<TokenId> resumed_of(const WaitingOperation& waiting) {
  const auto* const message = std::get_if<protocol::GenerateMessage>(&waiting.operation);
  const std::vector<TokenId>& prompt = (*waiting.resolved)->tokens;
  const auto num = message == nullptr ? 0 : static_cast<std::size_t>(message->num_resumed);
  if (num > prompt.size()) return {};
  return {prompt.end() - static_cast<std::ptrdiff_t>(num), prompt.end()};
}

// For what needs none.
registry::ReadyModel no_model() {
  const Error none{ErrorCode::kInternal, "internal: no model"};
  return {{}, {}, none, none};
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
  std::unique_ptr<ExtendedStream> stream = make_extended(std::move(operation), peer.waiting);
  if (peer.streams.contains(id)) {
    count_refused(id, verb_of(stream->waiting->operation), ErrorCode::kInvalid, peer);
    const auto answer = stream->is_stream ? answer_token_error : answer_msg_error;
    return answer({id, id_in_use(id)}, answers);
  }
  WaitingOperation& waiting = *stream->waiting;
  const bool scores = std::holds_alternative<protocol::ScoreMessage>(waiting.operation);
  peer.streams.add(id, std::move(stream)).scores = scores;
  if (!is_deferred) return start(id, peer, answers);
  if (!count_waiting(waiting)) return fail(id, waiting_full(), peer, answers);
  if (peer.deferred.size() >= kDeferredMax) {
    return fail(id, overloaded("too much waits for a BUFFER of this connection"), peer, answers);
  }
  peer.deferred.emplace_back(id);
}

void Dispatcher::start(StreamId id, Peer& peer, Answers& answers) {
  WaitingOperation& waiting = *peer.streams.find(id)->extended->waiting;
  if (needs_model(waiting.operation)) {
    if (const Result<void> ok = check_access(model_of(waiting.operation), peer); !ok) {
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
  ExtendedStream& stream = *peer.streams.find(id)->extended;
  const std::shared_ptr<WaitingOperation> waiting = stream.waiting;
  const std::size_t max_answer_bytes = peer.limits.max_answer_bytes;
  std::optional<registry::ReadyModel> model = models_.ready_model(model_of(waiting->operation));
  if (!model && needs_model(waiting->operation)) return await_model(id, peer, answers);
  if (!waiting->resolved) {
    if (has_chat(waiting->operation) || num_coded_bytes(waiting->operation) > kEncodedAtOnceMax) {
      return encode_later(id, std::move(*model), peer, answers);
    }
    waiting->resolved = resolve(*waiting, model ? *model : no_model(), max_answer_bytes);
  }
  if (!*waiting->resolved) return fail(id, waiting->resolved->error(), peer, answers);
  if (const Grammar* grammar = grammar_of(waiting->operation); grammar && !waiting->grammar) {
    return compile_later(id, *grammar, *model, peer, answers);
  }
  if (waiting->grammar && !*waiting->grammar) {
    return fail(id, waiting->grammar->error(), peer, answers);
  }
  if (const auto* generate = std::get_if<protocol::GenerateMessage>(&waiting->operation);
      generate != nullptr && !generate->controller.empty()) {
    if (waiting->controller == nullptr) {
      return instantiate_later(id, *generate, *model, peer, answers);
    }
    if (const Result<void> taken = take_instance(id, *waiting, answers); !taken) {
      return fail(id, taken.error(), peer, answers);
    }
  }
  Resolved& resolved = **waiting->resolved;
  const auto run = [&](auto& message) {
    if constexpr (requires { message.options; }) {
      Result<Request> request = make_request(message, std::move(resolved), *model, stream);
      if (!request) return fail(id, request.error(), peer, answers);
      int num_samples = 1;
      if constexpr (requires { message.num_samples; }) num_samples = message.num_samples;
      return submit_samples(id, std::move(*request), num_samples, model->name, peer, answers);
    } else {
      const Result<OperationAnswer> answer = answer_to(message, resolved, peer);
      if (!answer) return fail(id, answer.error(), peer, answers);
      std::string text;
      protocol::serialize_answer(*answer, text);
      if (text.size() > max_answer_bytes) {
        return fail(id, too_much("text", max_answer_bytes), peer, answers);
      }
      answers.push_back(std::move(text));
      peer.streams.erase(id);
      go_on_behind_buffer(id, peer, answers);
    }
  };
  std::visit(run, waiting->operation);
}

// ModelReady tells of the end, as where a model was waited for. What is cancelled before is
// dropped.
bool Dispatcher::hand_over(StreamId id, const std::string& model_name, Peer& peer,
                           Answers& answers) {
  WaitingOperation& waiting = *peer.streams.find(id)->extended->waiting;
  if (!count_waiting(waiting)) {
    fail(id, waiting_full(), peer, answers);
    return false;
  }
  // Another model may be the loaded one by the time that this one's work is done.
  std::visit(
      [&](auto& message) {
        if (message.model.empty()) message.model = model_name;
      },
      waiting.operation);
  waiting.encoding = ++peer.num_encodings;
  peer.streams.find(id)->canceller.reset();  // of the wait for its model
  return true;
}

void Dispatcher::compile_later(StreamId id, const Grammar& grammar,
                               const registry::ReadyModel& model, Peer& peer, Answers& answers) {
  if (const Result<void> taken = check_grammars(model); !taken) {
    return fail(id, taken.error(), peer, answers);
  }
  if (!hand_over(id, model.name, peer, answers)) return;
  const std::shared_ptr<WaitingOperation> waiting = peer.streams.find(id)->extended->waiting;
  auto done = [event = ModelReady{id, waiting->encoding}, weak = std::weak_ptr(waiting),
               sink = peer.sink](constraint::GrammarCompiler::Compiled compiled) {
    const auto kept = weak.lock();
    if (kept == nullptr) return;  // cancelled
    kept->grammar = std::move(compiled);
    tell_ready(*sink, event);
  };
  model.grammars->compile(grammar, std::move(done), resumed_of(*waiting));
}

void Dispatcher::encode_later(StreamId id, registry::ReadyModel model, Peer& peer,
                              Answers& answers) {
  if (!hand_over(id, model.name, peer, answers)) return;
  const std::shared_ptr<WaitingOperation> waiting = peer.streams.find(id)->extended->waiting;
  auto job = [event = ModelReady{id, waiting->encoding}, weak = std::weak_ptr(waiting),
              model = std::move(model), max_answer_bytes = peer.limits.max_answer_bytes,
              sink = peer.sink] {
    const auto kept = weak.lock();
    if (kept == nullptr) return;  // cancelled
    kept->resolved = guarded([&] { return resolve(*kept, model, max_answer_bytes); });
    tell_ready(*sink, event);
  };
  if (!encoder_.submit(peer.streams.connection(), std::move(job))) {
    return fail(id, overloaded("long texts wait to be read"), peer, answers);
  }
  if (std::holds_alternative<protocol::BufferMessage>(waiting->operation)) {
    peer.awaiting_buffer = id;
  }
}

void Dispatcher::await_model(StreamId id, Peer& peer, Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  WaitingOperation& waiting = *live.extended->waiting;
  waiting.encoding = 0;
  if (++waiting.num_awaits > kOperationAwaitsMax) {
    return fail(
        id, {ErrorCode::kUnavailable, "model: was unloaded again before this could be read; retry"},
        peer, answers);
  }
  if (!count_waiting(waiting)) return fail(id, waiting_full(), peer, answers);
  Request request;
  request.key = {peer.streams.connection(), id};
  request.arrival = live.extended->arrival;
  request.sink = peer.sink;
  request.caller = peer.caller;
  request.model = model_of(waiting.operation);
  request.others_connected = connections_.num_clients() > 1;
  request.kind = RequestKind::kAwaitModel;
  registry::Submission submitted = models_.submit(std::move(request));
  if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
    live.canceller = std::move(*canceller);
    if (std::holds_alternative<protocol::BufferMessage>(waiting.operation)) {
      peer.awaiting_buffer = id;
    }
    return;
  }
  const auto& refusal = std::get<registry::Refusal>(submitted);
  end(id, refusal.error, refusal.no_model, peer, answers);
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
  request.key.connection = peer.streams.connection();
  request.sink = peer.sink;
  request.caller = peer.caller;
  request.others_connected = connections_.num_clients() > 1;
  const ExtendedStream::Sample first = stream.samples.front();
  stream.samples.resize(static_cast<std::size_t>(num_samples), first);
  stream.num_alive = 0;
  const std::shared_ptr<WaitingOperation> waiting = stream.waiting;
  const auto* const grammar = waiting->grammar ? &**waiting->grammar : nullptr;
  Answers errors;
  for (int i = 0; i < num_samples; ++i) {
    // The last one takes it. NOLINTNEXTLINE(bugprone-use-after-move)
    Request of_sample = i + 1 < num_samples ? request : std::move(request);
    of_sample.key.sample = i;
    if (first.text) of_sample.stops = first.text->make_stop_checker();
    of_sample.controller = waiting->controller;
    of_sample.params.seed += static_cast<std::uint64_t>(i);
    const Result<void> fits = grammar ? constrain(*grammar, of_sample) : Result<void>();
    if (grammar) {
      of_sample.grammar = std::make_shared<const Grammar>(*grammar_of(waiting->operation));
    }
    if (!fits) models_.refusals().add(of_sample, fits.error().code);
    registry::Submission submitted = fits ? models_.submit(std::move(of_sample))
                                          : registry::Submission(registry::Refusal{fits.error()});
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
  live.model = models_.lasting_name(model_name);
  stream.waiting.reset();
  if (stream.num_alive == 0) peer.streams.erase(id);
}

void Dispatcher::on_events(std::span<StreamEvent> events, Peer& peer, Answers& answers) {
  for (const Outcome& outcome : append_events(events, peer, answers)) {
    if (outcome.error) {
      end(outcome.id, outcome.error->error, outcome.error->no_model, peer, answers);
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

void Dispatcher::end_overdue(std::chrono::steady_clock::time_point now, Peer& peer,
                             Answers& answers) {
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
  go_on_behind_buffer(id, peer, answers);
}

// Where that was the BUFFER for which others have waited: they are done, up to the next one that
// has to wait.
void Dispatcher::go_on_behind_buffer(StreamId id, Peer& peer, Answers& answers) {
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
