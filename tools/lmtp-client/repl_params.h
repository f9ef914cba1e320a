// Parameters at the end of a prompt line: `Hello there temperature=1.2 max_tokens=5`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::tools {

struct ReplParams {
  SamplingParams sampling;
  // Whether BOS is put in front of each prompt; unset: as the tokenizer's files say.
  std::optional<bool> bos;
  std::vector<std::string> stop;  // the text ends before the first of them
  std::optional<Grammar> grammar;
  std::string controller;      // a tag or a module's id; empty: none
  std::string controller_arg;  // its argument
};

// Sets one parameter by its wire name, `bos`, `stop` (one as it stands, or as JSON a string or a
// list), `grammar` (as on the wire), `controller` or `controller_arg` (as it stands, or a JSON
// string). The error says what is allowed; ranges are checked
// by the server.
Result<void> set_param(ReplParams& params, std::string_view key, std::string_view value);

// One "key=value" line for each parameter.
std::string describe_params(const ReplParams& params);

// The names set_param knows, separated by ", ".
std::string param_names();

// Whether the word has the form key=value with a key that set_param knows.
bool is_param(std::string_view word);

struct PromptLine {
  std::string prompt;  // without the spaces between it and the parameters
  ReplParams params;
};

// Splits a line in front of its trailing key=value words. Only known keys count, so that "x=1" may
// end a prompt; a misspelt known key is an error.
Result<PromptLine> parse_prompt_line(std::string_view line, const ReplParams& defaults);

}  // namespace lmtp::tools
