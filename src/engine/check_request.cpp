#include <string>

#include "lmtp/engine/engine.h"

namespace lmtp::engine {
namespace {

Result<void> check_ids(const char* field, const std::vector<TokenId>& ids, int vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return Error{ErrorCode::kInvalid, std::string(field) + "[" + std::to_string(i) +
                                          "]: token id " + std::to_string(ids[i]) +
                                          " is not in the vocabulary, allowed are 0 to " +
                                          std::to_string(vocab_size - 1)};
  }
  return {};
}

Result<void> check_lengths(const Request& request, int context_length) {
  const auto context = static_cast<std::size_t>(context_length);
  if (request.kind == RequestKind::kScore) {
    if (request.scored.empty()) {
      return Error{ErrorCode::kInvalid, "scored: is empty, at least one token is needed"};
    }
    const std::size_t length = request.prompt.size() + request.scored.size();
    if (length <= context) return {};
    return Error{ErrorCode::kInvalid, "scored: prompt and scored together are " +
                                          std::to_string(length) + " tokens, allowed are at most " +
                                          std::to_string(context) + " (the context)"};
  }
  if (request.prompt.empty()) {
    return Error{ErrorCode::kInvalid, "prompt: is empty, at least one token is needed"};
  }
  if (request.prompt.size() < context) return {};
  return Error{ErrorCode::kInvalid, "prompt: has " + std::to_string(request.prompt.size()) +
                                        " tokens, allowed are at most " +
                                        std::to_string(context - 1) +
                                        " (one less than the context)"};
}

}  // namespace

// Lengths first: what is too long costs no look at its ids.
Result<void> check_request(const Request& request, const ModelLimits& limits) {
  if (request.kind == RequestKind::kAwaitModel) return {};
  if (Result<void> ok = check_lengths(request, limits.context_length); !ok) return ok;
  if (Result<void> ok = check_ids("prompt", request.prompt, limits.vocab_size); !ok) return ok;
  if (Result<void> ok = check_ids("scored", request.scored, limits.vocab_size); !ok) return ok;
  const auto& bias = request.params.logit_bias;
  if (bias == nullptr || bias->ids.empty() || bias->ids.back() < limits.vocab_size) return {};
  return Error{ErrorCode::kInvalid, "logit_bias: token id " + std::to_string(bias->ids.back()) +
                                        " is not in the vocabulary, allowed are 0 to " +
                                        std::to_string(limits.vocab_size - 1)};
}

}  // namespace lmtp::engine
