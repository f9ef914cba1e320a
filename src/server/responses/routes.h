// OpenAI's /v1/responses: docs/http.md. Its handlers, and the types of its bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

Read responses_create;
Handle responses_get;     // that the path names, or its input items
Handle responses_delete;  // that the path names

// As http/schemas.h describes it.
inline constexpr std::string_view kResponsesTypes = R"(
ResponseRequest
  model string
  * -top_logprobs -max_tokens
  top_k -1..
  input! string|object[]
  instructions, previous_response_id string
  max_output_tokens 1..
  tools object[]
  tool_choice 'none'|'auto'|'required'|object
  parallel_tool_calls, store, stream boolean
  text, reasoning, metadata, stream_options, chat_template_kwargs object
  include string[]
  user, prompt_cache_key, safety_identifier, service_tier string
  max_tool_calls 0..
  truncation 'auto'|'disabled'
  top_logprobs 0..20
  thinking_token_budget 0..
  background, conversation, prompt nothing
  cache_salt string
  priority Priority

Response
  id! string
  object! 'response'
  created_at! integer
  status! 'completed'|'incomplete'|'failed'|'in_progress'
  background! boolean
  error!, incomplete_details! object|null
  model! string
  output! object[]
  usage! ResponseUsage|null
  instructions! string|null
  max_output_tokens! integer|null
  previous_response_id! string|null
  metadata!, reasoning!, text! object
  parallel_tool_calls!, store! boolean
  temperature!, top_p! number
  top_logprobs! integer
  tool_choice! string|object
  tools! object[]
  truncation! string

ResponseUsage
  input_tokens!, output_tokens!, total_tokens! integer
  input_tokens_details!, output_tokens_details! object

ResponseEvent = WholeEvent|ItemEvent|PartEvent

WholeEvent
  type!, sequence_number! any
  response! Response

ItemEvent
  type!, sequence_number! any
  output_index! integer
  item! object

PartEvent
  type! string
  sequence_number!, output_index! integer
  item_id! string
  content_index integer
  part object
  delta, text, name, arguments, input string
  logprobs object[]

ItemList
  object! 'list'
  data! object[]
  first_id!, last_id! string|null
  has_more! boolean

DeletedResponse
  id! string
  object! 'response'
  deleted! boolean
)";

}  // namespace lmtp::server
