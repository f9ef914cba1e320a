#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lmtp/engine/engine.h"
#include "lmtp/request/error_text.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::engine {
namespace {

const Error kNoHead{ErrorCode::kInvalid,
                    "model: was saved without an output head, so it generates and scores nothing; "
                    "allowed are /v1/embeddings and /rerank"};

// "256 (the context)", "255 (one less than the context)". `reserved`: tokens that must be left for
// what is generated.
std::string allowed_length(const ModelLimits& limits, int reserved) {
  const int total = limits.total_tokens_max();
  if (limits.max_input_tokens > 0 && limits.max_input_tokens <= total - reserved) {
    return std::to_string(limits.max_input_tokens) + " (--max-input-tokens)";
  }
  return std::to_string(total - reserved) + (reserved > 0 ? " (one less than " : " (") +
         (total < limits.context_length ? "--max-total-tokens)" : "the context)");
}

Result<void> check_lengths(const Request& request, const ModelLimits& limits) {
  if (request.kind == RequestKind::kScore) {
    if (request.scored.empty()) {
      return Error{ErrorCode::kInvalid, "scored: is empty, at least one token is needed"};
    }
    const std::size_t length = request.prompt.size() + request.scored.size();
    if (length <= static_cast<std::size_t>(limits.whole_tokens_max())) return {};
    return Error{ErrorCode::kTooLong, "scored: prompt and scored together are " +
                                          std::to_string(length) + " tokens, allowed are at most " +
                                          allowed_length(limits, 0)};
  }
  if (request.prompt.empty()) {
    return Error{ErrorCode::kInvalid, "prompt: is empty, at least one token is needed"};
  }
  const bool embeds = request.kind == RequestKind::kEmbed;
  const int most = embeds ? limits.whole_tokens_max() : limits.input_tokens_max();
  if (request.prompt.size() <= static_cast<std::size_t>(most)) return {};
  return Error{ErrorCode::kTooLong, "prompt: has " + std::to_string(request.prompt.size()) +
                                        " tokens, allowed are at most " +
                                        allowed_length(limits, embeds ? 0 : 1)};
}

Result<void> check_mask(const Request& request, const ModelLimits& limits) {
  const TokenMask& mask = *request.params.mask;
  const int vocab_size = limits.vocab_size;
  if (mask.num_bytes != (vocab_size + 7) / 8) {
    return Error{ErrorCode::kInvalid,
                 "mask: has " + std::to_string(mask.num_bytes) + " bytes, allowed are " +
                     std::to_string((vocab_size + 7) / 8) + " (a bit for each of " +
                     std::to_string(vocab_size) + " tokens)"};
  }
  if (!mask.allows_other({}, vocab_size)) {
    return Error{ErrorCode::kInvalid, "mask: allows no token; at least one bit must be set"};
  }
  if (request.num_resumed >= request.params.min_tokens ||
      mask.allows_other(request.params.end_ids(limits.eos_ids), vocab_size)) {
    return {};
  }
  return Error{ErrorCode::kInvalid,
               "mask: allows only tokens that end the stream, and none of them can be drawn before "
               "min_tokens; at least one other bit must be set"};
}

Result<void> check_resumed(const Request& request) {
  const auto num_resumed = static_cast<std::size_t>(request.num_resumed);
  if (num_resumed <= request.prompt.size()) return {};
  return Error{ErrorCode::kInvalid,
               "resumed: " + beyond_prompt(num_resumed, request.prompt.size())};
}

Result<void> check_bias(const SamplingParams& params, const ModelLimits& limits) {
  const auto& bias = params.logit_bias;
  if (bias == nullptr || bias->ids.empty() || bias->ids.back() < limits.vocab_size) return {};
  return Error{ErrorCode::kInvalid,
               "logit_bias: " + beyond_vocabulary(bias->ids.back(), limits.vocab_size)};
}

}  // namespace

Result<void> check_ids(const char* field, const std::vector<TokenId>& ids, int vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return Error{ErrorCode::kInvalid, std::string(field) + "[" + std::to_string(i) +
                                          "]: " + beyond_vocabulary(ids[i], vocab_size)};
  }
  return {};
}

int adapter_blocks_max(int num_blocks, const KvLayout& layout, const ModelLimits& limits) {
  return num_blocks - scheduler::Scheduler::min_blocks(limits.total_tokens_max(), layout);
}

Result<void> check_adapter(const Adapter& adapter, int num_blocks, const KvLayout& layout,
                           const ModelLimits& limits) {
  const int most = adapter_blocks_max(num_blocks, layout, limits);
  if (adapter.num_blocks() <= most) return {};
  return Error{ErrorCode::kInvalid,
               "adapter '" + adapter.name() + "': takes " + std::to_string(adapter.num_blocks()) +
                   " blocks of the KV cache, and beside a stream of the whole context there are " +
                   std::to_string(std::max(0, most)) + "; give a larger --kv-cache"};
}

// Lengths first: what is too long costs no look at its ids.
Result<void> check_request(const Request& request, const ModelLimits& limits) {
  if (request.kind == RequestKind::kAwaitModel) return {};
  if (!limits.generates && request.kind != RequestKind::kEmbed) return kNoHead;
  if (request.fork != nullptr) return check_bias(request.fork->changes.values, limits);
  if (Result<void> ok = check_lengths(request, limits); !ok) return ok;
  if (Result<void> ok = check_ids("prompt", request.prompt, limits.vocab_size); !ok) return ok;
  if (Result<void> ok = check_ids("scored", request.scored, limits.vocab_size); !ok) return ok;
  const SamplingParams& params = request.params;
  Result<void> stops = check_ids("stop_token_ids", params.stop_token_ids, limits.vocab_size);
  if (!stops) return stops;
  if (params.logprob_token_ids != nullptr) {
    Result<void> listed =
        check_ids("logprob_token_ids", *params.logprob_token_ids, limits.vocab_size);
    if (!listed) return listed;
  }
  if (Result<void> ok = check_resumed(request); !ok) return ok;
  if (params.mask) {
    if (Result<void> ok = check_mask(request, limits); !ok) return ok;
  }
  return check_bias(params, limits);
}

}  // namespace lmtp::engine
