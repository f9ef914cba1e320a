#include "embedding_inputs.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common_fields.h"
#include "generation/embedding_rows.h"
#include "generation/encode_text.h"
#include "generation/unknown_keys.h"
#include "lmtp/base/text.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

const std::string kUntrained =
    "embeddings of models that were not trained for them, as far as their folders say (no "
    "modules.json): the last token's state is given, normalised:";

// "2 tokens; allowed are at most 1".
std::string too_many(std::size_t count, std::size_t most) {
  return std::to_string(count) + " tokens; allowed are at most " + std::to_string(most);
}

Result<std::string> prompt_text(const EmbeddingReading& how, const text::EmbeddingConfig& config) {
  const std::string& name = how.prompt_name ? *how.prompt_name : config.default_prompt;
  if (name.empty() && !how.prompt_name) return std::string();
  const auto found = config.prompts.find(name);
  if (found != config.prompts.end()) return found->second;
  std::string known;
  for (const auto& [other, text] : config.prompts) known += (known.empty() ? "" : ", ") + other;
  return Error{ErrorCode::kInvalid, "prompt_name: this model has no such prompt; allowed " +
                                        (known.empty() ? "is none" : "are " + known)};
}

// The end of a longer one stays; what the tokenizer adds does in any case.
Result<std::vector<TokenId>> input_ids(const PromptInput& input, const std::string& field,
                                       const std::string& before, const EmbeddingReading& how,
                                       const registry::ReadyModel& model) {
  std::vector<TokenId> ids;
  std::vector<TokenId> added[2];  // in front of a text, and after it
  if (const auto* given = std::get_if<std::vector<TokenId>>(&input)) {
    ids = *given;
  } else {
    auto encoded = encode_text(model.tokenizer, field, before + std::get<std::string>(input),
                               {.begins = true, .adds_bos = false});
    if (!encoded) return encoded.error();
    ids = std::move(*encoded);
    if (how.adds_special_tokens) {
      if ((*model.tokenizer)->adds_bos()) added[0] = {(*model.tokenizer)->bos_id()};
      added[1] = (*model.tokenizer)->suffix();
    }
  }
  const auto kept = static_cast<std::size_t>(how.num_last.value_or(kAnyCount));
  const std::size_t num_added = std::min(kept, added[0].size() + added[1].size());
  if (ids.size() > kept - num_added) {
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(kept - num_added));
  }
  ids.insert(ids.begin(), added[0].begin(), added[0].end());
  ids.insert(ids.end(), added[1].begin(), added[1].end());
  return ids;
}

// The tokens are counted after they are cut, and each text is read whole.
Result<void> check_bytes(const std::vector<PromptInput>& inputs, const std::string& field,
                         const std::string& before) {
  std::size_t num_bytes = inputs.size() * before.size();
  for (const PromptInput& input : inputs) {
    if (const auto* text = std::get_if<std::string>(&input)) num_bytes += text->size();
  }
  if (num_bytes <= kEmbeddedBytesMax) return {};
  return Error{ErrorCode::kInvalid, field + ": has together, with the prompt before each, " +
                                        size_text(static_cast<std::int64_t>(num_bytes)) +
                                        "; allowed are at most " + size_text(kEmbeddedBytesMax)};
}

}  // namespace

// A head is shorter than this.
std::size_t answer_bytes_max(const ServerOptions& options) {
  constexpr std::size_t kHeadBytes = 1024;
  return options.max_write_queue_bytes - std::min(options.max_write_queue_bytes, kHeadBytes);
}

Error too_long(const std::string& field, std::size_t bytes_max) {
  return {ErrorCode::kInvalid, field + ": the answer is longer than the allowed " +
                                   size_text(static_cast<std::int64_t>(bytes_max)) +
                                   " (--max-write-queue); send less at a time, or have less in the "
                                   "answer (encoding_format \"base64\", return_documents false)"};
}

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
  const text::EmbeddingConfig& config = **model.embeddings;
  const auto before = prompt_text(how, config);
  if (!before) return before.error();
  if (auto checked = check_bytes(inputs, field, *before); !checked) return checked.error();
  if (!config.is_trained) log_once(kUntrained, {model.name});
  int limit = model.limits.whole_tokens_max();
  if (config.max_tokens > 0) limit = std::min(limit, config.max_tokens);
  const auto most = static_cast<std::size_t>(limit);
  EmbeddingReading reading = how;
  if (how.num_last == -1) reading.num_last = limit;
  Prompts prompts;
  std::size_t num_tokens = 0;
  for (const PromptInput& input : inputs) {
    const std::string name = field + "[" + std::to_string(prompts.size()) + "]";
    auto encoded = input_ids(input, name, *before, reading, model);
    if (!encoded) return encoded.error();
    std::vector<TokenId> ids = std::move(*encoded);
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
