// The fields that /v1/completions and /v1/chat/completions have in common, and some that other
// doors have, too.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "generation/json_fields.h"
#include "request.h"

namespace lmtp::server {

inline constexpr std::int64_t kAnyCount = std::numeric_limits<int>::max();

// What is said of sampling in any API with OpenAI's defaults, but for the number of tokens and of
// their alternatives; and the salt.
void read_sampling(JsonFields& fields, GenerationRequest& generation);

// But for the number of tokens and of their alternatives. `fields`: of `body`.
void read_common(JsonFields& fields, const std::string& body, const ApiLimits& limits,
                 OpenAiRequest& request);

void set_max_tokens(std::optional<std::int64_t> given, OpenAiRequest& request);

}  // namespace lmtp::server
