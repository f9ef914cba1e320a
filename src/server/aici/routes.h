// AICI's HTTP API: docs/http.md. Its handlers, and the types of its bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

// The answer where a body was not sent as JSON.
HttpResponse aici_wrong_type();

Handle aici_upload;  // of a controller, which is compiled
Read aici_set_tags;
Handle aici_tags;
Handle aici_untag;
Read aici_run;

// As http/schemas.h describes it.
inline constexpr std::string_view kAiciTypes = R"(
TagsRequest
  module_id! string
  tags! string|string[]

RunRequest
  controller! string
  controller_arg any
  model, prompt string
  *
  top_k -1..
  top_logprobs nothing

Module
  module_id! string
  wasm_size!, compiled_size!, time! integer

Tags
  tags! Tag[]

Tag
  tag!, module_id! string
  updated_at! integer
  updated_by! string
  wasm_size!, compiled_size! integer

InitialRun
  object! 'initial-run'
  id! string
  created! integer
  model! string

Run
  object! 'run'
  forks! Fork[]
  usage! RunUsage

Fork
  index! integer
  text!, error!, logs! string
  storage! any[]
  micros!, fork_of integer
  finish_reason 'eos'|'length'|'aici-stop'|'fail'|'abort'

RunUsage
  sampled_tokens!, ff_tokens!, cost! integer
)";

}  // namespace lmtp::server
