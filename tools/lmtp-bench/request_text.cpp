#include "request_text.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::tools {
namespace {

// The logit_bias of banned tokens; empty if there are none.
std::string bias_json(const std::vector<TokenId>& forbidden) {
  if (forbidden.empty()) return "";
  // LMQL forbids a token by -100.
  return protocol::serialize_bias({forbidden, std::vector<float>(forbidden.size(), -100.0F)});
}

}  // namespace

RequestText::RequestText(const LoadOptions& options)
    : model_(options.model),
      temperature_(options.temperature),
      banned_bias_(bias_json(options.banned_tokens)) {
  std::vector<TokenId> both;
  std::set_union(options.mask.begin(), options.mask.end(), options.banned_tokens.begin(),
                 options.banned_tokens.end(), std::back_inserter(both));
  mask_bias_ = bias_json(both);
}

std::string RequestText::of(StreamId stream_id, const Request& request) const {
  if (!request.scored.empty()) {
    return protocol::serialize_client_message(
        protocol::ScoreMessage{stream_id, model_, request.prompt, request.scored});
  }
  protocol::GenerateMessage message;
  message.stream_id = stream_id;
  message.model = model_;
  message.prompt = request.prompt;
  message.params.max_tokens = request.max_tokens;
  message.params.temperature = temperature_;
  message.params.top_logprobs = request.top_logprobs;
  return protocol::serialize_client_message(message, request.masked ? mask_bias_ : banned_bias_);
}

}  // namespace lmtp::tools
