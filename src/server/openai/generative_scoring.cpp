// vLLM's POST /generative_scoring: the probability of labels after a query with each of its items.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "context.h"
#include "error.h"
#include "generation/encode_text.h"
#include "generation/fresh.h"
#include "generation/json_fields.h"
#include "generation/label_rows.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/error_text.h"
#include "request.h"
#include "routes.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kItemsOfQueryMax = 4096;

struct ItemScoring {
  PromptInput query;
  std::vector<PromptInput> items;
  std::vector<TokenId> labels;  // the first one's probability is the score
  bool applies_softmax = true;
  bool item_first = false;
  bool adds_bos = true;
};

Result<std::vector<TokenId>> item_ids(const PromptInput& input, const char* field, bool adds_bos,
                                      const registry::ReadyModel& model) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) {
    for (const TokenId id : *ids) {
      if (id >= model.limits.vocab_size) {
        return Error{ErrorCode::kInvalid,
                     std::string(field) + ": " + beyond_vocabulary(id, model.limits.vocab_size)};
      }
    }
    return *ids;
  }
  return encode_text(model.tokenizer, field, std::get<std::string>(input),
                     {.begins = true, .adds_bos = adds_bos});
}

Result<ItemPrompts> item_prompts(const ItemScoring& scoring, const registry::ReadyModel& model) {
  for (const TokenId id : scoring.labels) {
    if (id >= model.limits.vocab_size) {
      return Error{ErrorCode::kInvalid,
                   "label_token_ids: " + beyond_vocabulary(id, model.limits.vocab_size)};
    }
  }
  auto query = item_ids(scoring.query, "query", scoring.adds_bos, model);
  if (!query) return query.error();
  ItemPrompts prompts{.query = std::move(*query), .items = {}, .item_first = scoring.item_first};
  const auto most = static_cast<std::size_t>(model.limits.total_tokens_max() - 1);
  for (const PromptInput& item : scoring.items) {
    auto ids = item_ids(item, "items", false, model);
    if (!ids) return ids.error();
    const std::size_t num_tokens = prompts.query.size() + ids->size();
    if (num_tokens == 0 || num_tokens > most) {
      return Error{ErrorCode::kInvalid, "items[" + std::to_string(prompts.items.size()) +
                                            "]: is with the query " + std::to_string(num_tokens) +
                                            " tokens; allowed are 1 to " + std::to_string(most)};
    }
    prompts.items.push_back(std::move(*ids));
  }
  return prompts;
}

// A text, or token ids.
std::optional<PromptInput> text_or_ids(const Json& value) {
  if (const auto* text = value.get_ptr<const std::string*>()) return PromptInput(*text);
  if (!value.is_array()) return std::nullopt;
  auto ids = token_ids(value);
  return ids ? std::optional<PromptInput>(std::move(*ids)) : std::nullopt;
}

void read_items(JsonFields& fields, ItemScoring& scoring) {
  constexpr const char* kAllowed = "allowed are a text and a list of token ids";
  const Json* query = fields.find("query");
  const auto read_query = query != nullptr ? text_or_ids(*query) : std::nullopt;
  if (!read_query) fields.fail("query", std::string("is missing or wrong; ") + kAllowed);
  if (read_query) scoring.query = *read_query;
  const Json* items = fields.find("items");
  if (items == nullptr || !items->is_array() || items->empty() ||
      items->size() > kItemsOfQueryMax) {
    return fields.fail("items", "is missing or wrong; needed is a list of 1 to " +
                                    std::to_string(kItemsOfQueryMax) + " items");
  }
  for (const Json& item : *items) {
    auto read = text_or_ids(item);
    if (!read || (!scoring.items.empty() && read->index() != scoring.items.front().index())) {
      return fields.fail("items[" + std::to_string(scoring.items.size()) + "]",
                         std::string("is not as the others, or wrong; ") + kAllowed);
    }
    scoring.items.push_back(std::move(*read));
  }
}

Result<ItemScoring> read_scoring(JsonFields& fields) {
  ItemScoring scoring;
  read_items(fields, scoring);
  scoring.labels = fields.ids("label_token_ids", kMaxTopLogprobs);
  std::vector<TokenId> sorted = scoring.labels;
  std::ranges::sort(sorted);
  if (!fields.failed() && (sorted.empty() || std::ranges::adjacent_find(sorted) != sorted.end())) {
    fields.fail("label_token_ids", "needed are token ids, each once");
  }
  scoring.applies_softmax = fields.boolean("apply_softmax", true);
  scoring.item_first = fields.boolean("item_first", false);
  scoring.adds_bos = fields.boolean("add_special_tokens", true);
  if (fields.failed()) return fields.error();
  return scoring;
}

std::string scores_body(const LabelRows& rows, const std::string& model) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", fresh_id("generative-scoring-")).field("object", "list");
  json.field("created", unix_seconds()).field("model", model).key("data").begin_array();
  for (std::size_t i = 0; i < rows.scores().size(); ++i) {
    json.begin_object().field("index", i).field("object", "score");
    json.field("score", rows.scores()[i]).end_object();
  }
  json.end_array().key("usage").begin_object().field("prompt_tokens", rows.num_tokens());
  json.field("completion_tokens", 0).field("total_tokens", rows.num_tokens());
  json.end_object().end_object();
  return out + "\n";
}

}  // namespace

Then openai_generative_scoring(ServerContext& context, HttpRequest& http,
                               const ResponderPtr& responder) {
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return openai_refusal(context, root.error(), responder);
  JsonFields fields(*root);
  GenerationRequest generation;
  if (const std::string* model = fields.text("model")) generation.model = *model;
  generation.cache_salt = read_cache_salt(fields);
  generation.priority = read_priority(fields);
  auto scoring = read_scoring(fields);
  if (!scoring) return openai_refusal(context, scoring.error(), responder);
  generation.unknown_keys = fields.unknown_keys();
  generation.num_bytes = http.body.size();
  generation.is_slow = true;
  const auto rows = std::make_shared<std::shared_ptr<LabelRows>>();
  const auto taken = generation.score_rows = std::make_shared<std::shared_ptr<ScoreRows>>();
  generation.make_prompts = [rows, taken, scoring = std::move(*scoring)](
                                const registry::ReadyModel& model) -> Result<Prompts> {
    auto prompts = item_prompts(scoring, model);
    if (!prompts) return prompts.error();
    *taken = *rows =
        std::make_shared<LabelRows>(std::move(*prompts), scoring.labels, scoring.applies_softmax);
    return Prompts();
  };
  return [&context, responder, rows, generation = std::move(generation)]() mutable {
    answer_at_end(
        context.generation, std::move(generation), responder,
        [rows](const std::string& model) -> Result<std::string> {
          if (std::ranges::any_of((*rows)->scores(), [](double s) { return std::isnan(s); })) {
            return Error{ErrorCode::kInternal,
                         "the model gives no log probabilities of its labels"};
          }
          return scores_body(**rows, model);
        },
        openai_error);
  };
}

}  // namespace lmtp::server
