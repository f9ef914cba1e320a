// What a prompt line says besides its prompt: `Hello there temperature=1.2 max_tokens=5`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::tools {

struct ReplParams {
  SamplingParams sampling;
  // Whether the tokenizer's BOS goes in front of each prompt; unset: where its own files say so.
  std::optional<bool> bos;
};

// Sets one parameter by the name it has on the wire, or `bos`. The error says what is allowed;
// ranges are left to the server, which knows them.
Result<void> set_param(ReplParams& params, std::string_view key, std::string_view value);

// One "key=value" line for each parameter.
std::string describe_params(const ReplParams& params);

// The names set_param knows, separated by ", ".
std::string param_names();

// Whether the word looks like key=value with a key that set_param knows.
bool is_param(std::string_view word);

struct PromptLine {
  std::string prompt;  // without the spaces between it and the parameters
  ReplParams params;
};

// Splits a line at the first of the key=value words that end it. Only known keys count, so that
// "x=1" may end a prompt; but one that is nearly a known key is an error rather than part of the
// prompt.
Result<PromptLine> parse_prompt_line(std::string_view line, const ReplParams& defaults);

}  // namespace lmtp::tools
