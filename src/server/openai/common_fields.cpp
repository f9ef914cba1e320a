#include "common_fields.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "generation/read_grammar.h"
#include "lmtp/base/json.h"
#include "lmtp/protocol/message.h"

namespace lmtp::server {
namespace {

constexpr int kSamplesMax = 128;
constexpr std::size_t kAllowedIdsMax = std::size_t{1} << 20;

struct Unsupported {
  std::string_view field;
  std::string_view what;
};

// What would change the answer and is not there yet.
constexpr std::array kUnsupported = {
    Unsupported{"structural_tag", "is not supported; structured_outputs with a grammar is"},
    Unsupported{"adapter_id", "is not supported; an adapter is named as model"},
    Unsupported{"use_beam_search", "is not supported; best_of is"},
    Unsupported{"length_penalty", "is not supported: it belongs to beam search; leave it out"},
    Unsupported{"prompt_embeds", "is not supported; send text or token ids"},
    Unsupported{"logits_processors", "is not supported; logit_bias is"},
};

// Clients write out defaults: what changes nothing is taken.
bool has_no_effect(std::string_view field, const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string() || value.is_structured()) return is_empty_json(value);
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return number == (field == "length_penalty" ? 1.0 : 0.0);
}

void refuse_unsupported(JsonFields& fields) {
  for (const Unsupported& row : kUnsupported) {
    const Json* value = fields.find(row.field);
    if (value != nullptr && !has_no_effect(row.field, *value)) fields.fail(row.field, row.what);
  }
}

void read_stream(JsonFields& fields, AnswerOptions& answer) {
  answer.streams = fields.boolean("stream", false);
  const Json* options = fields.given("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.fail("stream_options", seen(*options));
  if (!answer.streams) return fields.fail("stream_options", "is allowed with stream alone");
  JsonFields of_stream(*options);
  answer.counts_at_end = of_stream.boolean("include_usage", false);
  answer.counts_always = answer.counts_at_end && of_stream.boolean("continuous_usage_stats", false);
  if (of_stream.failed()) fields.fail("stream_options", of_stream.error().message);
}

// What lies beyond the vocabulary is refused where the model is known.
void read_allowed_ids(JsonFields& fields, GenerationRequest& generation) {
  constexpr std::string_view kField = "allowed_token_ids";
  std::vector<TokenId>& ids = generation.allowed_token_ids;
  ids = fields.ids(kField, kAllowedIdsMax);
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
    fields.fail(kField, "has " + std::to_string(*twice) + " twice; allowed are ids that differ");
  }
  if (ids.empty() && fields.given(kField) != nullptr) {
    fields.fail(kField, "is empty; at least one token id is needed");
  }
}

// vLLM takes 0 beside stream, and then tells nothing.
void read_prompt_logprobs(JsonFields& fields, OpenAiRequest& request) {
  constexpr std::string_view kField = "prompt_logprobs";
  const auto num_top = fields.whole(kField, -1, kMaxTopLogprobs);
  if (!num_top || (request.answer.streams && *num_top == 0)) return;
  if (request.answer.streams) fields.fail(kField, "is not given with stream; leave out one");
  request.answer.prompt_logprobs = static_cast<int>(*num_top);
  request.generation.prompt_logprobs = request.answer.prompt_logprobs;
  request.generation.scores_prompts = true;
}

void read_samples(JsonFields& fields, OpenAiRequest& request) {
  const auto n = fields.whole("n", 1, kSamplesMax).value_or(1);
  const auto best_of = fields.whole("best_of", 1, kSamplesMax).value_or(n);
  request.answer.num_answers = static_cast<int>(n);
  request.generation.num_samples = static_cast<int>(best_of);
  if (best_of < n) fields.fail("best_of", "is less than n");
  if (best_of > n && request.answer.streams) {
    fields.fail("best_of", "is more than n, and the best is not known while it is streamed");
  }
}

}  // namespace

void read_sampling(JsonFields& fields, GenerationRequest& generation) {
  generation.penalizes_prompts = fields.given("penalties_from") != nullptr;
  generation.params.temperature = 1.0F;
  fields.params({kMaxTokensName, kTopLogprobsName}, generation.params);
  generation.cache_salt = read_cache_salt(fields);
  generation.priority = read_priority(fields);
  generation.text.cuts_end_token = true;
}

void read_common(JsonFields& fields, const std::string& body, const ApiLimits& limits,
                 OpenAiRequest& request) {
  if (const std::string* model = fields.text("model")) request.generation.model = *model;
  request.answer.model = request.generation.model;
  refuse_unsupported(fields);
  read_grammar(fields, body, schema_reading(limits), request.generation);
  read_stream(fields, request.answer);
  read_samples(fields, request);
  read_prompt_logprobs(fields, request);
  read_sampling(fields, request.generation);
  SamplingParams& params = request.generation.params;
  params.stop_token_ids = fields.ids("stop_token_ids", kMaxStopTokens);
  read_allowed_ids(fields, request.generation);
  if (fields.given("bad_words") != nullptr) {
    request.generation.bad_words = fields.strings("bad_words", kMaxBadWords, kMaxBadWordBytes);
  }
  TextOptions& text = request.generation.text;
  text.stop = fields.strings("stop", protocol::kMaxStops, protocol::kMaxStopBytes);
  text.include_stop = fields.boolean("include_stop_str_in_output", false);
  text.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  request.answer.token_ids = fields.boolean("return_token_ids", false);
  request.answer.names_tokens_ids = fields.boolean("return_tokens_as_token_ids", false);
}

void set_max_tokens(std::optional<std::int64_t> given, OpenAiRequest& request) {
  if (!given) return;
  request.answer.max_tokens = static_cast<int>(*given);
  request.generation.params.max_tokens = static_cast<int>(*given);
}

}  // namespace lmtp::server
