// System One's HTTP API, as TypeSafe, transformers and vLLM have it: docs/decisions.md. Its
// handler, and the types of its bodies.
#pragma once

#include <string_view>

#include "route_table.h"

namespace lmtp::server {

Read systemone;

// As http/schemas.h describes it.
inline constexpr std::string_view kSystemOneTypes = R"(
SystemOneRequest
  model string
  state! any
  questions! object
  instructions string
  chat_template_kwargs object
  scoring 'auto'|'label'|'option'|'option_mean'
  diagnostics boolean
  assets, images, audio, videos nothing
  cache_salt string

SystemOneAnswer
  model! string
  answers! object
  usage! SystemOneUsage
  diagnostics! object

SystemOneUsage
  input_tokens!, output_tokens! integer
)";

}  // namespace lmtp::server
