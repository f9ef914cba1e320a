// POST /rerank and /v1/rerank as Cohere, Jina and vLLM have it: documents in the order in which
// they answer a query.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common_fields.h"
#include "context.h"
#include "embedding_inputs.h"
#include "error.h"
#include "generation/embedding_rows.h"
#include "generation/encode_text.h"
#include "generation/fresh.h"
#include "generation/json_fields.h"
#include "generation/label_rows.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/base/text.h"
#include "request.h"
#include "routes.h"

namespace lmtp::server {
namespace {

// Qwen3-Reranker's layout, as its model card has it.
constexpr const char* kJudgeBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr const char* kJudgeEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr const char* kJudgeInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

struct Ranking {
  std::string query;
  std::vector<std::string> documents;
  std::string instruction;
  std::size_t num_best = 0;  // 0: all
  bool returns_documents = true;
  EmbeddingReading reading;
  // One of these, once the texts are token ids.
  std::shared_ptr<LabelRows> judged;
  std::shared_ptr<EmbeddingRows> embedded;  // the query, then the documents
};

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double sums[3] = {0, 0, 0};
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    sums[0] += x * y;
    sums[1] += x * x;
    sums[2] += y * y;
  }
  const double length = std::sqrt(sums[1]) * std::sqrt(sums[2]);
  return length > 0 ? sums[0] / length : 0;
}

// NaN where the model has not said it.
std::vector<double> scores_of(const Ranking& ranking) {
  if (ranking.judged != nullptr) return ranking.judged->scores();
  const std::vector<Embedding>& all = ranking.embedded->embeddings();
  std::vector<double> scores;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool is_there = all[0] != nullptr && all[i] != nullptr;
    scores.push_back(is_there ? cosine(*all[0], *all[i]) : std::nan(""));
  }
  return scores;
}

std::size_t num_bytes_of(const Ranking& ranking) {
  std::size_t num_bytes = ranking.embedded != nullptr ? ranking.embedded->num_bytes() : 0;
  if (!ranking.returns_documents) return num_bytes;
  for (const std::string& document : ranking.documents) num_bytes += document.size();
  return num_bytes;
}

Result<std::string> ranking_body(const Ranking& ranking, const std::string& model,
                                 std::size_t bytes_max) {
  if (ranking.embedded != nullptr && ranking.embedded->error()) return *ranking.embedded->error();
  const std::vector<double> scores = scores_of(ranking);
  if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
    return Error{ErrorCode::kInternal, "the model does not say what ranks the documents"};
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return scores[i]; });
  if (ranking.num_best > 0) order.resize(std::min(order.size(), ranking.num_best));
  const std::size_t num_tokens =
      ranking.judged != nullptr ? ranking.judged->num_tokens() : ranking.embedded->num_tokens();
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", fresh_id("rerank-")).field("model", model).key("usage");
  json.begin_object().field("prompt_tokens", num_tokens).field("total_tokens", num_tokens);
  json.end_object().key("results").begin_array();
  for (const std::size_t i : order) {
    json.begin_object().field("index", i);
    if (ranking.returns_documents) {
      json.key("document").begin_object().field("text", ranking.documents[i]).end_object();
    }
    json.field("relevance_score", scores[i]).end_object();
    if (out.size() > bytes_max) return too_long("documents", bytes_max);
  }
  json.end_array().end_object();
  return out + "\n";
}

Result<TokenId> token_of(const tokenizer::Tokenizer& tokenizer, TokenId id, const char* text) {
  if (id >= 0) return id;
  const auto ids = tokenizer.encode(text);
  if (ids && ids->size() == 1) return ids->front();
  return Error{ErrorCode::kInvalid, "model: its tokenizer has no token '" + std::string(text) +
                                        "', which is needed to rank by its answer"};
}

// "yes" or "no" follows each of these.
Result<Prompts> judged_prompts(const Ranking& ranking, const registry::ReadyModel& model) {
  if (!model.tokenizer) return no_tokenizer("documents", model.tokenizer.error());
  const tokenizer::Tokenizer& tokenizer = **model.tokenizer;
  const auto begin = tokenizer.encode(kJudgeBegin);
  const auto end = tokenizer.encode(kJudgeEnd);
  if (!begin || !end) return begin ? end.error() : begin.error();
  const std::size_t num_around = begin->size() + end->size();
  auto most = static_cast<std::size_t>(model.limits.whole_tokens_max() - 1);
  const std::int64_t asked = ranking.reading.num_last.value_or(-1);
  const std::size_t kept = asked > 0 ? std::min(most, static_cast<std::size_t>(asked)) : most;
  std::size_t num_bytes =
      ranking.documents.size() * (ranking.query.size() + ranking.instruction.size());
  for (const std::string& document : ranking.documents) num_bytes += document.size();
  if (num_bytes > kEmbeddedBytesMax) {
    return Error{ErrorCode::kInvalid, "documents: have together, with the query before each, " +
                                          size_text(static_cast<std::int64_t>(num_bytes)) +
                                          "; allowed are at most " + size_text(kEmbeddedBytesMax)};
  }
  if (kept <= num_around) {
    return Error{ErrorCode::kInvalid, "truncate_prompt_tokens: is " + std::to_string(kept) +
                                          "; needed are more than " + std::to_string(num_around) +
                                          ", which are around the documents"};
  }
  Prompts prompts;
  std::size_t num_tokens = 0;
  for (const std::string& document : ranking.documents) {
    const std::string name = "documents[" + std::to_string(prompts.size()) + "]";
    const std::string text = "<Instruct>: " + ranking.instruction + "\n<Query>: " + ranking.query +
                             "\n<Document>: " + document;
    const tokenizer::TextRange all{0, text.size()};
    auto ids = tokenizer.encode_around(text, {&all, 1});
    if (!ids) return Error{ErrorCode::kInvalid, name + ": " + ids.error().message};
    const bool is_cut = ranking.reading.num_last && ids->size() + num_around > kept;
    if (is_cut) ids->resize(kept - num_around);
    ids->insert(ids->begin(), begin->begin(), begin->end());
    ids->insert(ids->end(), end->begin(), end->end());
    num_tokens += ids->size();
    if (ids->size() > most || num_tokens > kEmbeddedTokensMax) {
      return Error{ErrorCode::kTooLong,
                   name + ": is with the query " + std::to_string(ids->size()) +
                       " tokens; allowed are at most " + std::to_string(most) + ", and " +
                       std::to_string(kEmbeddedTokensMax) +
                       " of all documents (truncate_prompt_tokens -1 cuts their ends)"};
    }
    prompts.push_back(std::move(*ids));
  }
  return prompts;
}

// The first of these that the model has.
std::optional<std::string> known_prompt(const text::EmbeddingConfig& config,
                                        std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (config.prompts.contains(name)) return name;
  }
  return std::nullopt;
}

Result<void> embed(Ranking& ranking, const registry::ReadyModel& model, MemoryLimit& limit) {
  const text::EmbeddingConfig& config = **model.embeddings;
  EmbeddingReading reading = ranking.reading;
  reading.prompt_name = known_prompt(config, {"query"});
  auto prompts = embedding_prompts({ranking.query}, "query", reading, model);
  if (!prompts) return prompts.error();
  reading.prompt_name = known_prompt(config, {"document", "passage", "corpus"});
  const std::vector<PromptInput> documents(ranking.documents.begin(), ranking.documents.end());
  auto others = embedding_prompts(documents, "documents", reading, model);
  if (!others) return others.error();
  for (auto& ids : *others) prompts->push_back(std::move(ids));
  ranking.embedded = std::make_shared<EmbeddingRows>(std::move(*prompts), config.pooling, limit);
  return {};
}

Result<void> judge(Ranking& ranking, const text::JudgeTokens& by,
                   const registry::ReadyModel& model) {
  auto prompts = judged_prompts(ranking, model);
  if (!prompts) return prompts.error();
  const auto yes = token_of(**model.tokenizer, by.yes, "yes");
  const auto no = token_of(**model.tokenizer, by.no, "no");
  if (!yes || !no) return yes ? no.error() : yes.error();
  ranking.judged =
      std::make_shared<LabelRows>(ItemPrompts{.query = {}, .items = std::move(*prompts)},
                                  std::vector<TokenId>{*yes, *no}, true);
  return {};
}

void read_documents(JsonFields& fields, Ranking& ranking) {
  constexpr const char* kAllowed =
      "allowed are texts and objects with a text, 1 to 2048 of them in a list";
  const Json* documents = fields.find("documents");
  if (documents == nullptr || !documents->is_array() || documents->empty() ||
      documents->size() > kEmbeddedMax) {
    return fields.fail("documents", std::string("is missing or wrong; ") + kAllowed);
  }
  for (const Json& document : *documents) {
    const auto* text = document.is_string() ? document.get_ptr<const std::string*>()
                                            : find_json_text(document, "text");
    if (text == nullptr) {
      return fields.fail("documents[" + std::to_string(ranking.documents.size()) + "]", kAllowed);
    }
    ranking.documents.push_back(*text);
  }
}

void read_ranking(JsonFields& fields, Ranking& ranking) {
  const std::string* query = fields.text("query");
  if (query == nullptr) fields.fail("query", "is missing; a text is needed");
  if (query != nullptr) ranking.query = *query;
  read_documents(fields, ranking);
  ranking.num_best = static_cast<std::size_t>(fields.whole("top_n", 0, kAnyCount).value_or(0));
  ranking.returns_documents = fields.boolean("return_documents", true);
  const std::string* instruction = fields.text("instruction");
  ranking.instruction = instruction != nullptr ? *instruction : kJudgeInstruction;
  ranking.reading.num_last = fields.whole("truncate_prompt_tokens", -1, kAnyCount);
  if (ranking.reading.num_last == 0) {
    fields.fail("truncate_prompt_tokens", "is 0; allowed are -1 and from 1");
  }
  fields.find("user");
}

}  // namespace

Then openai_rerank(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return openai_refusal(context, root.error(), responder);
  JsonFields fields(*root);
  GenerationRequest generation;
  if (const std::string* model = fields.text("model")) generation.model = *model;
  generation.cache_salt = read_cache_salt(fields);
  generation.priority = read_priority(fields);
  const auto ranking = std::make_shared<Ranking>();
  read_ranking(fields, *ranking);
  if (fields.failed()) return openai_refusal(context, fields.error(), responder);
  generation.unknown_keys = fields.unknown_keys();
  generation.num_bytes = http.body.size();
  generation.is_slow = true;
  const auto rows = generation.score_rows = std::make_shared<std::shared_ptr<ScoreRows>>();
  generation.make_prompts = [&context, ranking,
                             rows](const registry::ReadyModel& model) -> Result<Prompts> {
    if (!model.embeddings) return model.embeddings.error();
    const auto& by = (*model.embeddings)->judge;
    const auto made =
        by ? judge(*ranking, *by, model) : embed(*ranking, model, context.write_queues);
    if (!made) return made.error();
    if (by) *rows = ranking->judged;
    if (!by) *rows = ranking->embedded;
    return Prompts();
  };
  return [&context, responder, ranking, generation = std::move(generation)]() mutable {
    answer_at_end(
        context.generation, std::move(generation), responder,
        [ranking, bytes_max = answer_bytes_max(context.options)](const std::string& model) {
          return ranking_body(*ranking, model, bytes_max);
        },
        openai_error, [ranking] { return num_bytes_of(*ranking); });
  };
}

}  // namespace lmtp::server
