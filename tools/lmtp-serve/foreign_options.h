// Options of other servers, and of `lmql serve-model`, that lmtp-serve does not have.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::tools {

struct ForeignOption {
  std::string_view name;  // without dashes in front, with '_' between words
  std::string_view of;    // whose it is: "vLLM, SGLang"
  const char* instead;    // "write --dtype"
};

// By whose they are, first of all. docs/coming_from.md has them as a table.
std::span<const ForeignOption> foreign_options();

// An error message for an unknown option or argument, with what to use instead; else with the
// nearest of lmtp-serve's own options, "--port", where one is near.
std::string instead_of(std::string_view word, const std::vector<std::string>& own_options);

// --model NAME and -m NAME, as vLLM and llama.cpp have them, become MODEL.
void take_named_model(std::vector<std::string>& arguments);

}  // namespace lmtp::tools
