// The bodies of TGI's endpoints: their fields, defaults, limits and sentences.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "error.h"
#include "generation/generation.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

// kEither: the field `stream` chooses, as POST / does.
enum class TgiMode { kWhole, kStream, kEither };

// TGI's default of max_new_tokens, and what it makes sure of before it begins.
inline constexpr std::int64_t kTgiNewTokens = 1024;

struct TgiRequest {
  std::shared_ptr<const std::string> inputs;
  bool streams = false;
  bool in_array = false;  // the whole answer is an array of one
  bool details = false;
  bool return_full_text = false;
  bool is_sampled = false;  // the answer names the seed
  int top_n_tokens = 0;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::int64_t> truncate;
  // Without max_tokens: what fits is known when the prompt is token ids.
  GenerationRequest generation;
};

std::variant<TgiRequest, TgiError> read_tgi(const std::string& body, TgiMode mode,
                                            const ApiLimits& limits);

// `inputs` of a body, and its model, for its tokens alone.
std::variant<GenerationRequest, TgiError> read_tgi_inputs(
    const std::string& body, std::shared_ptr<const std::string>& inputs);

// A chat, for its prompt alone: `rendered` has its text once it is token ids.
std::variant<GenerationRequest, TgiError> read_tgi_chat(
    const std::string& body, const std::shared_ptr<std::string>& rendered);

}  // namespace lmtp::server
