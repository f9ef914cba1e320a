// The fields that /v1/completions and /v1/chat/completions have in common.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "generation/json_fields.h"
#include "request.h"

namespace lmtp::server {

inline constexpr std::int64_t kAnyCount = std::numeric_limits<int>::max();

// But for the number of tokens and of their alternatives. `fields`: of `body`.
void read_common(JsonFields& fields, const std::string& body, const ApiLimits& limits,
                 OpenAiRequest& request);

void set_max_tokens(std::optional<std::int64_t> given, OpenAiRequest& request);

}  // namespace lmtp::server
