// Anthropic's HTTP API: docs/http.md. Its handlers, and the types of its bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

// The answer where a body was not sent as JSON.
HttpResponse anthropic_wrong_type();

Read anthropic_messages;
Read anthropic_count_tokens;

// As http/schemas.h describes it.
inline constexpr std::string_view kAnthropicTypes = R"(
CountTokensRequest
  model string
  * -top_logprobs -max_tokens
  top_k -1..
  max_tokens 1..
  messages! object[]
  system string|object[]
  tools object[]
  tool_choice, thinking, output_config, output_format, chat_template_kwargs object
  stop_sequences string[]
  cache_salt, service_tier, inference_geo string
  priority Priority
  metadata, context_management, cache_control object
  stream boolean

MessagesRequest: CountTokensRequest
  max_tokens! 1..

TokenCount
  input_tokens! integer

AssistantMessage
  id! string
  type! 'message'
  role! 'assistant'
  model! string
  content! object[]
  stop_reason! StopReason|null
  stop_sequence! string|null
  usage! MessageUsage

StopReason = 'end_turn'|'max_tokens'|'stop_sequence'|'tool_use'|'model_context_window_exceeded'

MessageUsage
  input_tokens!, cache_creation_input_tokens!, cache_read_input_tokens!, output_tokens! integer
  output_tokens_details object

MessageEvent = MessageStart|MessageBlock|MessageDelta|MessageMark

MessageStart
  type! 'message_start'
  message! AssistantMessage

MessageBlock
  type! 'content_block_start'|'content_block_delta'|'content_block_stop'
  index! integer
  content_block, delta object

MessageDelta
  type! 'message_delta'
  delta! object
  usage! MessageUsage

MessageMark
  type! 'message_stop'|'ping'

AnthropicError
  type! 'error'
  error! AnthropicErrorDetails

AnthropicErrorDetails
  type!, message! string
)";

}  // namespace lmtp::server
