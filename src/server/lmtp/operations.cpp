#include "operations.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "generation/encode_text.h"
#include "generation/fresh.h"
#include "lmtp/request/error_text.h"
#include "peer.h"
#include "resolve.h"

namespace lmtp::server {
namespace {

using protocol::BufferMessage;
using protocol::DecideMessage;
using protocol::DetokenizeMessage;
using protocol::GenerateMessage;
using protocol::ScoreMessage;
using protocol::StreamOptions;
using protocol::TokenizeMessage;

std::size_t num_bytes_of(const std::vector<TokenId>& tokens) {
  return tokens.size() * sizeof(TokenId);
}
std::size_t num_bytes_of(const std::string& text) { return text.size(); }
std::size_t num_bytes_of(const protocol::BufferPart& part) {
  return sizeof(part) + part.name.size();
}

template <typename... Kinds>
std::size_t num_bytes_of(const std::variant<Kinds...>& either) {
  return std::visit([](const auto& kind) { return num_bytes_of(kind); }, either);
}

std::size_t num_bytes_of(const std::vector<protocol::Candidate>& candidates) {
  std::size_t num_bytes = candidates.size() * sizeof(protocol::Candidate);
  for (const protocol::Candidate& one : candidates) num_bytes += num_bytes_of(one);
  return num_bytes;
}

std::size_t num_bytes_of(const StreamOptions& options) {
  std::size_t num_bytes = options.prompt_parts.size() * sizeof(protocol::PromptPart);
  for (const protocol::PromptPart& part : options.prompt_parts) num_bytes += num_bytes_of(part);
  return num_bytes;
}

std::size_t num_bytes_of(const GenerateMessage& message) {
  std::size_t num_bytes = num_bytes_of(message.prompt) + num_bytes_of(message.options);
  if (message.params.logit_bias != nullptr) {
    num_bytes += message.params.logit_bias->ids.size() * (sizeof(TokenId) + sizeof(float));
  }
  if (message.params.mask != nullptr) {
    num_bytes += message.params.mask->words.size() * sizeof(std::uint64_t);
  }
  if (message.params.logprob_token_ids != nullptr) {
    num_bytes += num_bytes_of(*message.params.logprob_token_ids);
  }
  for (const std::string& stop : message.stop) num_bytes += stop.size();
  if (message.chat) num_bytes += message.chat->num_bytes();
  if (message.reading) {  // which takes the tools apart
    num_bytes += message.reading->tool_choice.size() + 2 * message.chat->tools.size();
  }
  if (message.grammar) num_bytes += message.grammar->text.size();
  return num_bytes;
}
std::size_t num_bytes_of(const ScoreMessage& message) {
  return num_bytes_of(message.prompt) + num_bytes_of(message.options) +
         num_bytes_of(message.scored) + message.scored_text.size() +
         num_bytes_of(message.candidates);
}
std::size_t num_bytes_of(const DecideMessage& message) {
  return message.state.size() + message.messages.size() + message.questions.size() +
         message.instructions.size() + message.template_kwargs.size();
}
std::size_t num_bytes_of(const TokenizeMessage& message) {
  return message.text.size() + (message.chat ? message.chat->num_bytes() : 0);
}
std::size_t num_bytes_of(const DetokenizeMessage& message) { return num_bytes_of(message.tokens); }
std::size_t num_bytes_of(const BufferMessage& message) { return num_bytes_of(message.content); }

// What the way to the model has to know of it, whose grammar moves there.
Intake::Needs needs_of(Operation& operation, const Peer& peer) {
  Intake::Needs needs;
  std::visit([&](auto& message) { needs.model = std::move(message.model); }, operation);
  needs.has_model = needs_model(operation);
  needs.is_slow = renders_chat(operation);
  needs.coded_bytes = num_coded_bytes(operation);
  auto* const generate = std::get_if<GenerateMessage>(&operation);
  if (generate == nullptr) return needs;
  if (!generate->reading) needs.grammar = std::move(generate->grammar);
  needs.bad_words = std::move(generate->bad_words);
  needs.num_resumed = static_cast<std::size_t>(generate->num_resumed);
  if (!generate->controller.empty()) {
    needs.controller = {generate->controller, std::move(generate->controller_arg),
                        "lmtp-" + std::to_string(peer.streams.connection()) + "-" +
                            std::to_string(generate->stream_id) + "-" +
                            std::to_string(peer.num_encodings)};
  }
  return needs;
}

// What GENERATE and SCORE have in common.
template <typename Message>
Request begin_request(Message& message, RequestKind kind, const registry::ReadyModel& model,
                      const ExtendedStream& stream) {
  Request request;
  request.key.stream = message.stream_id;
  const std::string& asked_name = stream.waiting->model_name();
  request.model = asked_name.empty() ? model.name : asked_name;
  request.kind = kind;
  request.wants_notices = stream.wants_notices;
  request.cache_salt = std::move(message.options.cache_salt);
  return request;
}

}  // namespace

std::string id_in_use(StreamId id) {
  return "stream_id: " + std::to_string(id) +
         " is a live stream of this connection; allowed is an id that is "
         "not in use (the live stream goes on)";
}

std::string_view verb_of(const Operation& operation) {
  constexpr std::string_view kVerbs[] = {"GENERATE", "SCORE",      "DECIDE",
                                         "TOKENIZE", "DETOKENIZE", "BUFFER"};
  static_assert(std::size(kVerbs) == std::variant_size_v<Operation>);
  return kVerbs[operation.index()];
}

StreamId id_of(const Operation& operation) {
  return std::visit([](const auto& message) { return message.stream_id; }, operation);
}

const StreamOptions* options_of(const Operation& operation) {
  return std::visit(
      [](const auto& message) -> const StreamOptions* {
        if constexpr (requires { message.options; }) return &message.options;
        return nullptr;
      },
      operation);
}

bool needs_model(const Operation& operation) {
  const auto* buffer = std::get_if<BufferMessage>(&operation);
  return buffer == nullptr || std::holds_alternative<std::string>(buffer->content);
}

bool concerns_buffers(const Operation& operation) {
  const StreamOptions* options = options_of(operation);
  if (options == nullptr) return std::holds_alternative<BufferMessage>(operation);
  return std::ranges::any_of(options->prompt_parts, [](const protocol::PromptPart& part) {
    return std::holds_alternative<protocol::BufferPart>(part);
  });
}

WaitingOperation::WaitingOperation(CallerModels models, Encoder& encoder, const Peer& peer,
                                   Operation operation_in)
    : Intake(std::move(models), encoder, peer.waiting, needs_of(operation_in, peer)),
      operation(std::move(operation_in)),
      schema_reading(server::schema_reading(peer.limits.api)),
      max_answer_bytes_(peer.limits.max_answer_bytes) {}

Result<Encoded> WaitingOperation::encode(const registry::ReadyModel& model) {
  return resolve(*this, model, max_answer_bytes_);
}

// With the buffers that it holds, each once.
std::size_t WaitingOperation::num_bytes() const {
  std::vector<const Buffers::Tokens*> held;
  for (const auto& buffer : buffers) held.push_back(buffer.get());
  std::ranges::sort(held);
  held.erase(std::unique(held.begin(), held.end()), held.end());
  std::size_t num_bytes =
      sizeof(ExtendedStream) + sizeof(WaitingOperation) + buffers.size() * sizeof(buffers[0]) +
      std::visit([](const auto& message) { return num_bytes_of(message); }, operation);
  for (const Buffers::Tokens* buffer : held) num_bytes += num_bytes_of(*buffer);
  return num_bytes;
}

std::unique_ptr<ExtendedStream> make_extended(CallerModels models, Encoder& encoder,
                                              const Peer& peer, Operation operation) {
  auto stream = std::make_unique<ExtendedStream>();
  const StreamOptions* options = options_of(operation);
  stream->is_stream = options != nullptr;
  if (options != nullptr) {
    stream->wants_notices = options->notices;
    stream->first_token_timeout_ms = options->first_token_timeout_ms;
    stream->timeout_ms = options->timeout_ms;
    const auto in = [&](int ms) { return stream->arrival + std::chrono::milliseconds(ms); };
    if (options->first_token_timeout_ms > 0) {
      stream->first_deadline = in(options->first_token_timeout_ms);
    }
    if (options->timeout_ms > 0) stream->deadline = in(options->timeout_ms);
  }
  stream->waiting =
      std::make_shared<WaitingOperation>(std::move(models), encoder, peer, std::move(operation));
  return stream;
}

Result<Request> make_request(GenerateMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream) {
  const StreamOptions& options = message.options;
  std::vector<TokenId>& prompt = encoded.prompts.front();
  stream.sends_text =
      options.text.value_or(message.chat.has_value() || has_text(options.prompt_parts));
  stream.is_parsed = message.reading.has_value();
  const bool needs_text = stream.sends_text || stream.is_parsed || !message.stop.empty();
  if (needs_text && !model.tokenizer) {
    return no_tokenizer(stream.sends_text ? "text" : "stop", model.tokenizer.error());
  }
  const auto num_resumed = static_cast<std::size_t>(message.num_resumed);
  if (num_resumed > prompt.size()) {
    return Error{ErrorCode::kInvalid, "resumed: " + beyond_prompt(num_resumed, prompt.size())};
  }
  Request request = begin_request(message, RequestKind::kGenerate, model, stream);
  request.params = std::move(message.params);
  if (message.chat) model.end_answers(request.params);
  ReplyPlan& plan = stream.waiting->plan;
  if (plan.counts_min_tokens) request.params.min_tokens = 0;
  if (plan.has_no_text) message.stop.clear();
  request.num_resumed = message.num_resumed;
  if (!request.params.has_seed && (stream.wants_notices || message.num_samples > 1)) {
    request.params.seed = fresh_seed();
    request.params.has_seed = true;
  }
  ExtendedStream::Sample sample;
  if (needs_text) {
    sample.text.emplace(model, prompt, num_resumed, request.params,
                        TextOptions{.skip_special_tokens = options.skip_special_tokens,
                                    .stop = std::move(message.stop),
                                    .include_stop = message.include_stop,
                                    .format = std::move(plan.format),
                                    .markers = std::move(plan.markers)});
  }
  stream.samples.push_back(std::move(sample));
  stream.into = std::move(message.into);
  if (!stream.into.empty()) stream.tokens = prompt;
  request.prompt = std::move(prompt);
  return request;
}

Result<Request> make_request(ScoreMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream) {
  const StreamOptions& options = message.options;
  std::vector<TokenId>& prompt = encoded.prompts.front();
  stream.sends_text = options.text.value_or(!message.scored_text.empty());
  Request request = begin_request(message, RequestKind::kScore, model, stream);
  request.scored = std::move(encoded.scored);
  request.params.top_logprobs = message.top_logprobs;
  request.params.logprob_token_ids = std::move(message.logprob_token_ids);
  request.params.measures = message.measures;
  stream.rows = std::move(encoded.rows);
  ExtendedStream::Sample sample;
  if (stream.sends_text) {
    if (!model.tokenizer) return no_tokenizer("text", model.tokenizer.error());
    sample.text.emplace(model, prompt, 0, request.params,
                        TextOptions{options.skip_special_tokens, {}, false});
  }
  stream.samples.push_back(std::move(sample));
  request.prompt = std::move(prompt);
  return request;
}

Result<Request> make_request(DecideMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream) {
  stream.rows = std::move(encoded.rows);
  stream.samples.emplace_back();
  return begin_request(message, RequestKind::kScore, model, stream);
}

}  // namespace lmtp::server
