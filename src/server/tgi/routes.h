// TGI's HTTP API: docs/http.md. Its handlers, and the types of its bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

// The answer where a body was not sent as JSON.
HttpResponse tgi_wrong_type();

Read tgi_generate;  // as a whole or as a stream: the path says it, or else the body
Read invocations;   // SageMaker's only path: the body says which API is meant
Read tokenize;      // TGI's, or vLLM's, by the field that has the text
Read tgi_tokenize;
Read tgi_chat_tokenize;
// Describes the only model; of several, the one that is ready, or would be asked for first.
Handle tgi_info;

// As http/schemas.h describes it.
inline constexpr std::string_view kTgiTypes = R"(
GenerateRequest
  inputs!, model string
  stream boolean
  parameters GenerateParameters

GenerateParameters
  * -top_logprobs -max_tokens
  temperature, repetition_penalty (0,100]
  top_p, typical_p (0,1)
  frequency_penalty [-2,2]
  top_k, best_of, max_new_tokens 1..
  top_n_tokens, truncate 0..
  do_sample, details, decoder_input_details, return_full_text, watermark boolean
  stop string|string[]
  grammar GenerateGrammar
  adapter_id string

GenerateGrammar
  type! string
  value any

TgiTokenizeRequest
  inputs!, model string

ChatTokenizeRequest: Prompt
  model string

Generated
  generated_text! string
  details Details

Sequence
  finish_reason! FinishReason
  generated_tokens! integer
  seed! integer|null
  prefill! PrefillToken[]
  tokens! Token[]
  top_tokens Tokens[]

FinishReason = 'length'|'eos_token'|'stop_sequence'
Tokens = Token[]

Details: Sequence
  best_of_sequences BestOfSequence[]

BestOfSequence: Sequence
  generated_text! string

PrefillToken
  id! integer
  text! string
  logprob! number|null

Token: PrefillToken
  special! boolean

TokenEvent
  index! integer
  token! Token
  top_tokens Token[]
  generated_text! string|null
  details! StreamDetails|null

StreamDetails
  finish_reason! FinishReason
  generated_tokens! integer
  seed! integer|null
  input_length! integer

TgiToken
  id! integer
  text! string
  start!, stop! integer

ChatTokenized
  tokenize_response! TgiToken[]
  templated_text! string

Info
  model_id! string
  model_sha!, model_dtype!, model_device_type! string|null
  model_pipeline_tag! string
  max_concurrent_requests!, max_best_of!, max_stop_sequences!, max_input_tokens! integer
  max_total_tokens!, validation_workers!, max_client_batch_size! integer
  router!, version! string
  sha!, docker_label! string|null

TgiError
  error!, error_type! string
)";

}  // namespace lmtp::server
