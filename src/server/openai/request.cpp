#include "request.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "common_fields.h"
#include "generation/encode_text.h"
#include "generation/fill_in.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"

namespace lmtp::server {
namespace {

Result<PromptInput> prompt_input(const Json& value, const std::string& where) {
  if (const auto* text = value.get_ptr<const std::string*>()) return PromptInput(*text);
  if (!value.is_array()) {
    return Error{ErrorCode::kInvalid,
                 where + ": " + seen(value) + "; allowed are a string and an array of token ids"};
  }
  auto ids = token_ids(value);
  if (ids) return PromptInput(std::move(*ids));
  return Error{ErrorCode::kInvalid, where + ids.error().message};
}

struct PromptReading {
  bool adds_bos = true;
  std::optional<std::size_t> num_last = {};  // of each prompt, no more than its last tokens
  std::optional<int> num_new = {};           // the same: as many as leave room for these
  std::string suffix = {};                   // that follows what is generated; empty: nothing
};

Result<std::vector<TokenId>> encode_prompt(const PromptInput& input, const PromptReading& how,
                                           const registry::ReadyModel& model) {
  const auto* const text = std::get_if<std::string>(&input);
  if (text == nullptr && how.suffix.empty()) return std::get<std::vector<TokenId>>(input);
  if (text == nullptr) {
    return Error{ErrorCode::kInvalid, "suffix: stands beside token ids; allowed is a text"};
  }
  if (!how.suffix.empty()) return encode_fill_in(model.tokenizer, *text, how.suffix, how.adds_bos);
  return encode_text(model.tokenizer, "prompt", *text, {.begins = true, .adds_bos = how.adds_bos});
}

Result<Prompts> encode_prompts(const std::vector<PromptInput>& inputs, const PromptReading& how,
                               const registry::ReadyModel& model) {
  Prompts prompts;
  for (const PromptInput& input : inputs) {
    auto encoded = encode_prompt(input, how, model);
    if (!encoded) return encoded.error();
    prompts.push_back(std::move(*encoded));
    std::vector<TokenId>& ids = prompts.back();
    std::size_t num_last = how.num_last.value_or(ids.size());
    if (how.num_new) {
      const int room = model.limits.total_tokens_max() - *how.num_new;
      num_last =
          static_cast<std::size_t>(std::max(1, std::min(room, model.limits.input_tokens_max())));
    }
    if (ids.size() > num_last) {
      ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(num_last));
    }
  }
  return prompts;
}

void read_completion_logprobs(JsonFields& fields, OpenAiRequest& request) {
  const auto num_top = fields.whole("logprobs", 0, kMaxTopLogprobs);
  request.answer.logprobs = num_top.has_value();
  request.answer.num_top = static_cast<int>(num_top.value_or(0));
  request.generation.params.top_logprobs = request.answer.num_top;
  if (fields.whole(kTopLogprobsName, 0, kMaxTopLogprobs).value_or(0) > 0) {
    fields.fail(kTopLogprobsName, "is a field of chats; here logprobs is the number");
  }
}

// -1, as vLLM has it: as many as fit.
void read_truncation(JsonFields& fields, int num_new, PromptReading& how) {
  constexpr std::string_view kField = "truncate_prompt_tokens";
  const auto num_last = fields.whole(kField, -1, kAnyCount);
  if (!num_last) return;
  if (*num_last == 0) fields.fail(kField, "is 0; allowed are -1 and numbers of tokens");
  if (*num_last == -1) {
    how.num_new = num_new;
  } else {
    how.num_last = static_cast<std::size_t>(*num_last);
  }
}

}  // namespace

Result<std::vector<PromptInput>> read_inputs(const Json* value, const std::string& field,
                                             std::size_t num_max) {
  if (value == nullptr) return Error{ErrorCode::kInvalid, field + ": is missing"};
  const bool is_list = value->is_array() && !value->empty() && !value->front().is_number();
  std::vector<PromptInput> inputs;
  if (!is_list) {
    auto only = prompt_input(*value, field);
    if (!only) return only.error();
    inputs.push_back(std::move(*only));
    return inputs;
  }
  if (value->size() > num_max) {
    return Error{ErrorCode::kInvalid, field + ": has " + std::to_string(value->size()) + " " +
                                          field + "s; allowed are at most " +
                                          std::to_string(num_max)};
  }
  for (const Json& item : *value) {
    auto one = prompt_input(item, field + "[" + std::to_string(inputs.size()) + "]");
    if (!one) return one.error();
    inputs.push_back(std::move(*one));
  }
  return inputs;
}

std::size_t num_input_bytes(const std::vector<PromptInput>& inputs) {
  std::size_t num_bytes = 0;
  for (const PromptInput& input : inputs) {
    const auto* text = std::get_if<std::string>(&input);
    num_bytes += text != nullptr ? text->size()
                                 : std::get<std::vector<TokenId>>(input).size() * sizeof(TokenId);
  }
  return num_bytes;
}

Result<OpenAiRequest> read_completion(const std::string& body, const ApiLimits& limits) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  JsonFields fields(*root);
  OpenAiRequest request;
  read_common(fields, body, limits, request);
  read_completion_logprobs(fields, request);
  AnswerOptions& answer = request.answer;
  GenerationRequest& generation = request.generation;
  answer.echo = fields.boolean("echo", false);
  generation.params.max_tokens = 16;
  set_max_tokens(fields.whole("max_tokens", answer.echo ? 0 : 1, kAnyCount), request);
  generation.generates = generation.params.max_tokens > 0;
  generation.scores_prompts |= (answer.echo && answer.logprobs) || !generation.generates;
  PromptReading how;
  how.adds_bos = fields.boolean("add_special_tokens", true);
  read_truncation(fields, generation.params.max_tokens, how);
  if (const std::string* const suffix = fields.text("suffix")) how.suffix = *suffix;
  auto prompts = read_inputs(fields.find("prompt"), "prompt", kSequencesMax);
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  if (!prompts) return prompts.error();
  generation.num_bytes = num_input_bytes(*prompts);
  const auto inputs = std::make_shared<const std::vector<PromptInput>>(std::move(*prompts));
  generation.make_prompts = [inputs, how](const registry::ReadyModel& model) {
    return encode_prompts(*inputs, how, model);
  };
  if (answer.echo && !how.num_last && !how.num_new) answer.prompts = inputs;
  return request;
}

Result<TokenizeRequest> read_tokenize(const std::string& body) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  JsonFields fields(*root);
  TokenizeRequest request;
  GenerationRequest& generation = request.generation;
  request.with_texts = fields.boolean("return_token_strs", false);
  const PromptReading how{.adds_bos = fields.boolean("add_special_tokens", true)};
  if (fields.find("messages") != nullptr) {
    auto chat = read_chat_tokens(*root, body);
    if (!chat) return chat.error();
    generation = std::move(*chat);
  } else if (const std::string* text = fields.text("prompt")) {
    generation.num_bytes = text->size();
    generation.make_prompts = [inputs = std::vector<PromptInput>{*text},
                               how](const registry::ReadyModel& model) {
      return encode_prompts(inputs, how, model);
    };
  } else {
    fields.fail("prompt", "is missing, as is messages");
  }
  if (const std::string* model = fields.text("model")) generation.model = *model;
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace lmtp::server
