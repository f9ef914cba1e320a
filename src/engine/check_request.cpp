#include <string>

#include "lmtp/engine/engine.h"

namespace lmtp::engine {
namespace {

Result<void> check_ids(const char* field, const std::vector<TokenId>& ids, int vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return Error{std::string(field) + "[" + std::to_string(i) + "]: token id " +
                 std::to_string(ids[i]) + " is not in the vocabulary, allowed are 0 to " +
                 std::to_string(vocab_size - 1)};
  }
  return {};
}

}  // namespace

Result<void> check_request(const Request& request, const ModelLimits& limits) {
  const auto context = static_cast<std::size_t>(limits.context_length);
  if (Result<void> ok = check_ids("prompt", request.prompt, limits.vocab_size); !ok) return ok;
  if (request.kind == scheduler::SequenceKind::kScore) {
    if (request.scored.empty()) return Error{"scored: is empty, at least one token is needed"};
    if (Result<void> ok = check_ids("scored", request.scored, limits.vocab_size); !ok) return ok;
    if (request.prompt.size() + request.scored.size() > context) {
      return Error{"scored: prompt and scored together are " +
                   std::to_string(request.prompt.size() + request.scored.size()) +
                   " tokens, allowed are at most " + std::to_string(context) + " (the context)"};
    }
    return {};
  }
  if (request.prompt.empty()) return Error{"prompt: is empty, at least one token is needed"};
  if (request.prompt.size() >= context) {
    return Error{"prompt: has " + std::to_string(request.prompt.size()) +
                 " tokens, allowed are at most " + std::to_string(context - 1) +
                 " (one less than the context)"};
  }
  if (request.params.logit_bias != nullptr && !request.params.logit_bias->ids.empty()) {
    const TokenId largest = request.params.logit_bias->ids.back();
    if (largest >= limits.vocab_size) {
      return Error{"logit_bias: token id " + std::to_string(largest) +
                   " is not in the vocabulary, allowed are 0 to " +
                   std::to_string(limits.vocab_size - 1)};
    }
  }
  return {};
}

}  // namespace lmtp::engine
