// OpenAI's POST /v1/embeddings, with vLLM's additions.
#include <openssl/evp.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "context.h"
#include "embedding_inputs.h"
#include "error.h"
#include "generation/embedding_rows.h"
#include "generation/json_fields.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/base/text.h"
#include "request.h"
#include "routes.h"

namespace lmtp::server {
namespace {

constexpr std::int64_t kDimensionsMax = 1 << 17;
// A number in an answer has at least so many.
constexpr std::size_t kBase64Bytes = 5;
constexpr std::size_t kTextBytes = 8;

struct EmbeddingAnswer {
  bool is_base64 = false;
  std::size_t dimensions = 0;  // 0: all
  bool normalizes = true;      // the model's; once the inputs are token ids
  std::shared_ptr<EmbeddingRows> rows;
};

// The numbers as little-endian float32.
std::string base64(const std::vector<float>& numbers) {
  std::string bytes;
  bytes.reserve(numbers.size() * sizeof(float));
  for (const float number : numbers) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

Result<std::string> embeddings_body(const EmbeddingAnswer& answer, const std::string& model,
                                    std::size_t bytes_max) {
  if (answer.rows->error()) return *answer.rows->error();
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("object", "list").key("data").begin_array();
  for (std::size_t i = 0; i < answer.rows->embeddings().size(); ++i) {
    const Embedding& embedding = answer.rows->embeddings()[i];
    if (embedding == nullptr) return Error{ErrorCode::kInternal, "the model gave no embedding"};
    if (answer.dimensions > embedding->size()) {
      return Error{ErrorCode::kInvalid,
                   "dimensions: is " + std::to_string(answer.dimensions) + "; allowed are 1 to " +
                       std::to_string(embedding->size()) + ", which the model's embeddings have"};
    }
    const auto numbers = finished(*embedding, answer.dimensions, answer.normalizes);
    json.begin_object().field("object", "embedding").field("index", i).key("embedding");
    answer.is_base64 ? json.value(base64(numbers)) : json.value(numbers);
    json.end_object();
    if (out.size() > bytes_max) return too_long("input", bytes_max);
  }
  const std::size_t num_tokens = answer.rows->num_tokens();
  json.end_array().field("model", model).key("usage").begin_object();
  json.field("prompt_tokens", num_tokens).field("total_tokens", num_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.field("cached_tokens", answer.rows->num_cached()).end_object();
  json.end_object().end_object();
  return out + "\n";
}

void read_answer(JsonFields& fields, EmbeddingAnswer& answer) {
  if (const std::string* format = fields.text("encoding_format")) {
    answer.is_base64 = *format == "base64";
    if (!answer.is_base64 && *format != "float") {
      fields.fail("encoding_format", "allowed are \"float\" and \"base64\"");
    }
  }
  answer.dimensions =
      static_cast<std::size_t>(fields.whole("dimensions", 1, kDimensionsMax).value_or(0));
}

}  // namespace

Then openai_embeddings(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return openai_refusal(context, root.error(), responder);
  JsonFields fields(*root);
  GenerationRequest generation;
  if (const std::string* model = fields.text("model")) generation.model = *model;
  generation.cache_salt = read_cache_salt(fields);
  generation.priority = read_priority(fields);
  const auto answer = std::make_shared<EmbeddingAnswer>();
  read_answer(fields, *answer);
  EmbeddingReading reading = read_embedding_reading(fields);
  auto inputs = read_inputs(fields.find("input"), "input", kEmbeddedMax);
  fields.find("user");  // OpenAI's name for its own records
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return openai_refusal(context, fields.error(), responder);
  if (!inputs) return openai_refusal(context, inputs.error(), responder);
  generation.num_bytes = num_input_bytes(*inputs);
  generation.is_slow = inputs->size() > 1;
  const auto rows = generation.score_rows = std::make_shared<std::shared_ptr<ScoreRows>>();
  generation.make_prompts =
      [&context, answer, rows, inputs = std::move(*inputs),
       reading = std::move(reading)](const registry::ReadyModel& model) -> Result<Prompts> {
    if (!model.embeddings) return model.embeddings.error();
    auto prompts = embedding_prompts(inputs, "input", reading, model);
    if (!prompts) return prompts.error();
    answer->normalizes = (*model.embeddings)->normalizes;
    const std::size_t bytes_max = context.options.max_write_queue_bytes;
    const bool is_cut = answer->dimensions > 0;
    const std::size_t numbers_max =
        is_cut ? SIZE_MAX : bytes_max / (answer->is_base64 ? kBase64Bytes : kTextBytes);
    *rows = answer->rows = std::make_shared<EmbeddingRows>(
        std::move(*prompts), (*model.embeddings)->pooling, context.write_queues, numbers_max);
    return Prompts();
  };
  return [&context, responder, answer, generation = std::move(generation)]() mutable {
    answer_at_end(
        context.generation, std::move(generation), responder,
        [answer, bytes_max = answer_bytes_max(context.options)](const std::string& model) {
          return embeddings_body(*answer, model, bytes_max);
        },
        openai_error, [answer] { return answer->rows->num_bytes(); });
  };
}

}  // namespace lmtp::server
