// OpenAI's HTTP API, with vLLM's additions: docs/http.md. Its handlers, and the types of its
// bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

// The answer where a body was not sent as JSON.
HttpResponse openai_wrong_type();

Read openai_completions;
Read openai_chat;
Read openai_decisions;
Read openai_embeddings;
Read openai_generative_scoring;
Read openai_rerank;  // Cohere's and Jina's, as vLLM has it
Read openai_tokenize;
Read openai_detokenize;
Handle openai_models;
Handle openai_load;  // as vLLM has it
Handle openai_tokenizer_info;
Handle openai_model;  // that the path names; looked up on the disk where it is not loaded
Read load_adapter;    // of LoRA, as vLLM has it
Read unload_adapter;

// As http/schemas.h describes it. `*` stands for the sampling parameters.
inline constexpr std::string_view kOpenAiTypes = R"(
TokenIds = 0..[]

Priority = -2147483648..2147483647

CommonRequest
  model string
  * -top_logprobs -max_tokens
  top_k -1..
  n, best_of 1..128
  stop string|string[]
  stop_token_ids TokenIds
  include_stop_str_in_output, skip_special_tokens, return_token_ids boolean
  return_tokens_as_token_ids, echo, stream boolean
  stream_options StreamOptions
  response_format ResponseFormat
  structured_outputs StructuredOutputs
  guided_json, json_schema object|string
  guided_regex, guided_grammar, grammar string
  guided_choice string[]
  guided_json_object boolean
  prompt_logprobs -1..1024
  structural_tag, adapter_id, use_beam_search, prompt_embeds nothing
  allowed_token_ids TokenIds
  logits_processors nothing
  cache_salt string
  priority Priority
  bad_words string|string[]
  length_penalty nothing|1..1

StreamOptions
  include_usage, continuous_usage_stats boolean

ResponseFormat
  type! string
  json_schema, schema object
  value any

StructuredOutputs
  json object|string
  regex, grammar string
  choice string[]
  json_object boolean

CompletionRequest: CommonRequest
  prompt! string|string[]|TokenIds|TokenIds[]
  max_tokens 0..
  logprobs 0..1024
  top_logprobs nothing
  add_special_tokens boolean
  truncate_prompt_tokens -1..
  suffix string

Prompt
  messages! Message[]
  tools Tool[]
  chat_template_kwargs object
  reasoning_effort string
  add_generation_prompt, continue_final_message boolean

Message
  role! string
  content string|object[]|null

Tool
  type string
  function Function

Function
  name!, description string
  parameters object
  strict boolean

ChatRequest: CommonRequest, Prompt
  max_tokens, max_completion_tokens 1..
  logprobs boolean
  top_logprobs 0..1024
  tool_choice 'none'|'auto'|'required'|object
  parallel_tool_calls, include_reasoning boolean
  thinking_token_budget 0..
  functions, audio, web_search_options, chat_template, suffix nothing
  function_call 'none'|'auto'
  modalities 'text'[]

TokenizeRequest
  model, prompt string
  messages Message[]
  tools Tool[]
  chat_template_kwargs object
  reasoning_effort string
  add_generation_prompt, continue_final_message, add_special_tokens, return_token_strs boolean

DetokenizeRequest
  model string
  tokens! TokenIds

LoadAdapterRequest
  lora_name!, lora_path!, base_model_name string
  load_inplace boolean

UnloadAdapterRequest
  lora_name! string

DecisionRequest
  model string
  input! string|object[]
  questions! object[]
  scoring 'auto'|'label'|'option'|'option_mean'
  diagnostics boolean
  chat_template_kwargs, prompt_cache_options object

Decision
  model! string
  answers! object[]
  usage! object
  diagnostics object[]

EmbeddingRequest
  model string
  input! string|string[]|TokenIds|TokenIds[]
  encoding_format 'float'|'base64'
  dimensions 1..
  prompt_name string
  truncate_prompt_tokens -1..
  add_special_tokens boolean
  cache_salt, user string
  priority Priority

EmbeddingList
  object! 'list'
  data! EmbeddingItem[]
  model! string
  usage! EmbeddingUsage

EmbeddingItem
  object! 'embedding'
  index! integer
  embedding! number[]|string

EmbeddingUsage
  prompt_tokens!, total_tokens! integer
  prompt_tokens_details PromptTokensDetails

RerankRequest
  model string
  query! string
  documents! Document[]
  top_n 0..
  return_documents boolean
  instruction string
  truncate_prompt_tokens -1..
  cache_salt, user string
  priority Priority

Document = string|object

Reranked
  id!, model! string
  usage! EmbeddingUsage
  results! RankedDocument[]

RankedDocument
  index! integer
  document RankedText
  relevance_score! number

RankedText
  text! string

GenerativeScoringRequest
  model string
  query! string|TokenIds
  items! string[]|TokenIds[]
  label_token_ids! TokenIds
  apply_softmax, item_first, add_special_tokens boolean
  cache_salt string
  priority Priority

GenerativeScoring
  id! string
  object! 'list'
  created! integer
  model! string
  data! ItemScore[]
  usage! Usage

ItemScore
  index! integer
  object! 'score'
  score! number

Answer
  id! string
  created! integer
  model!, system_fingerprint string

Usage
  prompt_tokens!, completion_tokens!, total_tokens! integer
  prompt_tokens_details PromptTokensDetails

PromptTokensDetails
  cached_tokens! integer

Completion: Answer
  object! 'text_completion'
  choices! CompletionChoice[]
  usage Usage|null

Choice
  index! integer
  token_ids, prompt_token_ids TokenIds
  finish_reason! 'stop'|'length'|'tool_calls'|null
  stop_reason! string|integer|null

CompletionChoice: Choice
  text! string
  logprobs! CompletionLogprobs|null
  prompt_logprobs any[]

Logprob = number|null

CompletionLogprobs
  tokens! string[]
  token_logprobs! Logprob[]
  top_logprobs! any[]
  text_offset! integer[]

Chat: Answer
  object! 'chat.completion'
  choices! ChatChoice[]
  usage! Usage
  prompt_logprobs any[]

ChatChoice: Choice
  message! ChatMessage
  logprobs! ChatLogprobs|null

ChatChunk: Answer
  object! 'chat.completion.chunk'
  choices! ChunkChoice[]
  usage Usage|null

ChunkChoice: Choice
  delta! ChatMessage
  logprobs! ChatLogprobs|null

ChatMessage
  role 'assistant'
  content string|null
  tool_calls ToolCall[]
  refusal null

ToolCall
  index integer
  id string
  type 'function'
  function! CalledFunction

CalledFunction
  name, arguments! string

ChatLogprobs
  content! ChatToken[]
  refusal! null

AlternativeToken
  token! string
  logprob! number
  bytes! integer[]

ChatToken: AlternativeToken
  top_logprobs! AlternativeToken[]

Tokenized
  count!, max_model_len! integer
  tokens! TokenIds
  token_strs! string[]|null

Detokenized
  prompt! string

Models
  object! 'list'
  data! Model[]

Model
  id! string
  object! 'model'
  created! integer
  owned_by!, root! string
  parent! string|null
  max_model_len! integer|null

Version
  version! string

ServerLoad
  server_load! integer

TokenizerInfo
  tokenizer_class!, chat_template! string
  vocab_size!, model_max_length! integer
  add_bos_token! boolean
  bos_token!, eos_token! string|null

Error
  error! ErrorDetails

ErrorDetails
  message!, type! string
  param!, code! string|null
)";

}  // namespace lmtp::server
