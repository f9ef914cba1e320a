// Inputs that are embedded, to token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generation/generation.h"
#include "generation/json_fields.h"
#include "lmtp/base/result.h"
#include "lmtp/server/server.h"
#include "request.h"

namespace lmtp::server {

struct EmbeddingReading {
  bool adds_special_tokens = true;  // to texts
  // truncate_prompt_tokens: of a longer input the last so many tokens; -1: what the model takes.
  std::optional<std::int64_t> num_last;
  std::optional<std::string> prompt_name;  // nothing: the model's default
};

// What an answer may have beside its head, and the error of one that has more.
std::size_t answer_bytes_max(const ServerOptions& options);
Error too_long(const std::string& field, std::size_t bytes_max);

EmbeddingReading read_embedding_reading(JsonFields& fields);

// Each has at least one token, and no more than the model takes. The errors are about `field`.
// REQUIRES: model.embeddings. As GenerationRequest::make_prompts.
Result<Prompts> embedding_prompts(const std::vector<PromptInput>& inputs, const std::string& field,
                                  const EmbeddingReading& how, const registry::ReadyModel& model);

}  // namespace lmtp::server
