#include "embedding_inputs.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "generation/embedding_rows.h"
#include "generation/encode_text.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

// "2 tokens; allowed are at most 1".
std::string too_many(std::size_t count, std::size_t most) {
  return std::to_string(count) + " tokens; allowed are at most " + std::to_string(most);
}

Result<std::string> prompt_text(const EmbeddingReading& how, const registry::ReadyModel& model) {
  const text::EmbeddingConfig& config = **model.embeddings;
  const std::string& name = how.prompt_name ? *how.prompt_name : config.default_prompt;
  if (name.empty() && !how.prompt_name) return std::string();
  const auto found = config.prompts.find(name);
  if (found != config.prompts.end()) return found->second;
  std::string known;
  for (const auto& [other, text] : config.prompts) known += (known.empty() ? "" : ", ") + other;
  return Error{ErrorCode::kInvalid, "prompt_name: this model has no such prompt; allowed " +
                                        (known.empty() ? "is none" : "are " + known)};
}

}  // namespace

EmbeddingReading read_embedding_reading(JsonFields& fields) {
  EmbeddingReading how;
  how.adds_special_tokens = fields.boolean("add_special_tokens", true);
  how.num_last = fields.whole("truncate_prompt_tokens", -1, kAnyCount);
  if (how.num_last == 0) fields.fail("truncate_prompt_tokens", "is 0; allowed are -1 and from 1");
  if (const std::string* name = fields.text("prompt_name")) how.prompt_name = *name;
  return how;
}

Result<Prompts> embedding_prompts(const std::vector<PromptInput>& inputs, const std::string& field,
                                  const EmbeddingReading& how, const registry::ReadyModel& model) {
  const auto before = prompt_text(how, model);
  if (!before) return before.error();
  const auto most = static_cast<std::size_t>(model.limits.whole_tokens_max());
  std::size_t kept = most;
  if (how.num_last && *how.num_last > 0) kept = static_cast<std::size_t>(*how.num_last);
  Prompts prompts;
  std::size_t num_tokens = 0;
  for (const PromptInput& input : inputs) {
    const std::string name = field + "[" + std::to_string(prompts.size()) + "]";
    const auto* given = std::get_if<std::vector<TokenId>>(&input);
    std::vector<TokenId> ids;
    if (given != nullptr) {
      ids = *given;
    } else {
      auto encoded = encode_text(model.tokenizer, name, *before + std::get<std::string>(input),
                                 {.begins = true, .adds_bos = how.adds_special_tokens});
      if (!encoded) return encoded.error();
      ids = std::move(*encoded);
    }
    if (how.num_last && ids.size() > kept) {
      ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(kept));
    }
    if (ids.empty()) {
      return Error{ErrorCode::kInvalid, name + ": is empty; at least one token is needed"};
    }
    if (ids.size() > most) {
      return Error{ErrorCode::kTooLong, name + ": has " + too_many(ids.size(), most) +
                                            " (truncate_prompt_tokens -1 takes the last ones)"};
    }
    for (const TokenId id : ids) {
      if (id < model.limits.vocab_size) continue;
      return Error{ErrorCode::kInvalid,
                   name + ": " + beyond_vocabulary(id, model.limits.vocab_size)};
    }
    num_tokens += ids.size();
    if (num_tokens > kEmbeddedTokensMax) {
      return Error{ErrorCode::kInvalid, field + ": has together more than " +
                                            std::to_string(kEmbeddedTokensMax) +
                                            " tokens; send fewer at a time, so many are allowed"};
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

}  // namespace lmtp::server
