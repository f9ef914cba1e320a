// The bodies of /v1/completions and /v1/chat/completions: OpenAI's fields and vLLM's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "generation/generation.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

// A string, strings, ids, or arrays of ids; null: it is missing, which is an error.
Result<std::vector<PromptInput>> read_inputs(const Json* value, const std::string& field,
                                             std::size_t num_max);
std::size_t num_input_bytes(const std::vector<PromptInput>& inputs);

// What is answered of a generation, and how.
struct AnswerOptions {
  bool is_chat = false;
  std::string model;  // as the client named it; empty: not at all
  bool streams = false;
  bool counts_at_end = false;  // stream_options: usage in a last chunk, and in every one
  bool counts_always = false;
  int num_answers = 1;  // of each prompt, the best of GenerationRequest::num_samples
  bool logprobs = false;
  int num_top = 0;  // alternatives beside each token
  bool echo = false;
  std::optional<int> prompt_logprobs;  // GenerationRequest's
  bool token_ids = false;              // the answer has the ids, too
  bool names_tokens_ids = false;       // in log probabilities a token is "token_id:N"
  std::optional<int> max_tokens;       // as given
  // What echo gives back where it is text; null: the text of the prompts' ids. Immutable.
  std::shared_ptr<const std::vector<PromptInput>> prompts;
  std::string opening;          // what each choice of a chat begins with
  bool call_is_chosen = false;  // by the client, which calls it no reason to end
  bool gives_reasoning = true;
};

struct OpenAiRequest {
  AnswerOptions answer;
  GenerationRequest generation;
};

// The errors begin with the name of the field that they are about.
Result<OpenAiRequest> read_completion(const std::string& body, const ApiLimits& limits = {});
Result<OpenAiRequest> read_chat(const std::string& body, const ApiLimits& limits = {});

// The body of vLLM's /tokenize.
struct TokenizeRequest {
  GenerationRequest generation;  // generates nothing
  bool with_texts = false;       // the answer has each token's
};

Result<TokenizeRequest> read_tokenize(const std::string& body);
// What an installation says that makes no prompts of messages (text::renders_chat_templates()).
inline constexpr std::string_view kRendersNoTemplates =
    "This installation renders no chat templates; it was built with -DLMTP_CHAT_TEMPLATES=OFF.";

// Where it has messages: the prompt alone. `root`: the body. `rendered`, where it is not null, has
// the prompt's text once it is token ids.
Result<GenerationRequest> read_chat_tokens(const Json& root, const std::string& body,
                                           std::shared_ptr<std::string> rendered = nullptr);

}  // namespace lmtp::server
