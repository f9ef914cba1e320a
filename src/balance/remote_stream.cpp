#include "remote_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "affinity.h"
#include "lmtp/base/text.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::balance {
namespace {

// JSON has no minus infinity: log probabilities have this instead.
constexpr float kMinusInfinity = -1e30F;

float logprob_of(float sent) {
  return sent <= kMinusInfinity ? -std::numeric_limits<float>::infinity() : sent;
}

// Rounding may leave a little more than 0.
bool is_logprob(float sent) { return sent < 1.0F; }

client::Resumable resumable_of(Request& request) {
  if (request.kind == RequestKind::kScore) {
    protocol::ScoreMessage message;
    message.model = request.model;
    message.prompt = std::move(request.prompt);
    message.scored = std::move(request.scored);
    message.options.notices = request.wants_notices;
    message.options.cache_salt = request.cache_salt;
    message.top_logprobs = request.params.top_logprobs;
    message.logprob_token_ids = request.params.logprob_token_ids;
    message.measures = request.params.measures;
    return client::Resumable(std::move(message));
  }
  protocol::GenerateMessage message;
  message.model = request.model;
  message.prompt = std::move(request.prompt);
  message.params = request.params;
  message.options.notices = request.wants_notices;
  message.options.cache_salt = request.cache_salt;
  message.num_resumed = request.num_resumed;
  if (request.grammar != nullptr) message.grammar = *request.grammar;
  if (request.bad_words != nullptr) message.bad_words = request.bad_words->texts;
  return client::Resumable(std::move(message));
}

}  // namespace

ErrorCode code_of(const std::string& lmtp_code) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    if (error_kind(static_cast<ErrorCode>(code)).lmtp_code == lmtp_code) {
      return static_cast<ErrorCode>(code);
    }
  }
  return ErrorCode::kInternal;
}

StreamError error_of(const protocol::ServerEntry& entry, const StreamKey& key) {
  StreamError error{key.stream,
                    {code_of(entry.error_code), shortened(entry.error, kWorkerErrorBytesMax),
                     entry.retry_after_ms}};
  error.no_model = error.error.code == ErrorCode::kNotFound;
  error.sample = key.sample;
  return error;
}

RemoteStream::RemoteStream(Request request, std::uint64_t seed)
    : record(request),
      request_(std::move(request)),
      num_prompt_(std::ssize(request_.prompt)),
      prompt_begin_(request_.prompt) {
  if (request_.kind == RequestKind::kAwaitModel) return;
  const bool scores = request_.kind == RequestKind::kScore;
  num_tokens_max_ = scores ? std::ssize(request_.scored) : request_.params.max_tokens;
  if (!scores && !request_.params.has_seed) {
    request_.params.seed = seed;
    request_.params.has_seed = true;
  }
  resumable_.emplace(resumable_of(request_));
}

protocol::ClientMessage RemoteStream::ask(StreamId new_id) {
  return std::move(resumable_->ask(new_id).front());
}

std::vector<std::uint64_t> RemoteStream::chain(int tokens_max) const {
  return block_chain(request_.model + request_.cache_salt, prompt_begin_, tokens_, tokens_max);
}

Result<TokenEvent> RemoteStream::take(protocol::ServerEntry& entry, int vocab_size) {
  const bool is_end = entry.finish_reason != FinishReason::kNone;
  if (entry.token && (*entry.token < 0 || *entry.token >= vocab_size)) {
    return Error{ErrorCode::kUnavailable, "it sent token " + std::to_string(*entry.token) +
                                              " of a vocabulary of " + std::to_string(vocab_size)};
  }
  if (entry.num_backtracked > 0 || entry.fork_of_index || (!entry.token && !is_end)) {
    return Error{ErrorCode::kUnavailable, "it sent an entry of a stream that has not asked for it"};
  }
  for (const auto* logprobs : {&entry.top_logprobs, &entry.token_logprobs}) {
    for (const TokenLogprob& one : *logprobs) {
      if (one.token >= 0 && one.token < vocab_size && is_logprob(one.logprob)) continue;
      return Error{ErrorCode::kUnavailable,
                   "it sent log probabilities of tokens that are none of its vocabulary"};
    }
  }
  if (!is_logprob(entry.logprob)) {
    return Error{ErrorCode::kUnavailable,
                 "it sent the log probability " + std::to_string(entry.logprob)};
  }
  // Rounding may leave a little less than 0.
  if (entry.measured.entropy.value_or(0.0F) < -1.0F || entry.measured.rank > vocab_size) {
    return Error{ErrorCode::kUnavailable, "it sent an entropy or a rank that no token has"};
  }
  entry.index = 0;
  resumable_->take(entry);
  TokenEvent event;
  event.stream_id = key().stream;
  event.sample = key().sample;
  event.token = entry.token.value_or(kNoToken);
  event.logprob = logprob_of(entry.logprob);
  event.finish_reason = entry.finish_reason;
  event.is_forced = entry.is_forced;
  if (!entry.top_logprobs.empty()) {
    for (TokenLogprob& top : entry.top_logprobs) top.logprob = logprob_of(top.logprob);
    event.top_logprobs = TopLogprobs(entry.top_logprobs);
  }
  if (!entry.token_logprobs.empty()) {
    for (TokenLogprob& one : entry.token_logprobs) one.logprob = logprob_of(one.logprob);
    event.listed_logprobs =
        std::make_shared<const std::vector<TokenLogprob>>(std::move(entry.token_logprobs));
  }
  event.measured = entry.measured;
  if (!entry.token) return event;
  tokens_.push_back(*entry.token);
  const bool may_stop = std::ssize(tokens_) + request_.num_resumed >= request_.params.min_tokens;
  if (request_.stops != nullptr && request_.stops->push(*entry.token, may_stop)) {
    event.finish_reason = FinishReason::kStop;
  }
  // A worker that goes on beyond what was asked for is not listened to.
  if (event.finish_reason == FinishReason::kNone && num_to_come() <= 0) {
    event.finish_reason =
        request_.kind == RequestKind::kScore ? FinishReason::kStop : FinishReason::kLength;
  }
  return event;
}

}  // namespace lmtp::balance
