#include "request.h"

#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "generation/encode_text.h"
#include "generation/json_fields.h"
#include "generation/read_grammar.h"
#include "lmtp/protocol/message.h"
#include "openai/request.h"

namespace lmtp::server {
namespace {

constexpr std::int64_t kWholeMax = std::numeric_limits<std::int32_t>::max();
constexpr ParamRange kAnyNumber{-1e38, 1e38};
constexpr double kFactorMax = 100.0;  // of temperature and repetition_penalty, as in LMTP

// The first error counts.
class Reading {
 public:
  // `parameters`: of `root`; null: none.
  Reading(JsonFields root, const Json* parameters, const ApiLimits& limits)
      : root_(std::move(root)),
        fields_(parameters != nullptr ? *parameters : none_),
        has_parameters_(parameters != nullptr),
        limits_(limits) {}

  std::variant<TgiRequest, TgiError> read(const std::string& body, TgiMode mode);

 private:
  void read_answer(TgiMode mode);
  void read_samples();
  void read_sampling();
  void read_factors();
  void read_lengths();
  void refuse_unsupported();
  std::optional<TgiError> read_grammar(const std::string& body);
  std::vector<std::string> unknown_keys() const;

  // In TGI's words.
  void refuse(const std::string& what) {
    if (!error_) error_ = tgi_validation(what);
  }
  std::optional<float> number(std::string_view name) { return fields_.number(name, kAnyNumber); }
  std::optional<std::int64_t> count(std::string_view name) {
    return fields_.whole(name, 0, kWholeMax);
  }

  const Json none_ = Json::object();
  JsonFields root_;
  JsonFields fields_;  // of "parameters"
  bool has_parameters_;
  const ApiLimits& limits_;
  TgiRequest request_;
  std::optional<TgiError> error_;
};

TgiError not_deserialized(const std::string& why) {
  return {422, "validation", "Failed to deserialize the JSON body into the target type: " + why};
}

void Reading::read_answer(TgiMode mode) {
  if (const std::string* model = root_.text("model")) request_.generation.model = *model;
  // An adapter is a model's name here; TGI's clients name it so.
  if (const auto* adapter = fields_.text("adapter_id")) request_.generation.model = *adapter;
  request_.streams = mode == TgiMode::kStream;
  if (root_.find("stream") != nullptr && mode == TgiMode::kEither) {
    request_.streams = root_.boolean("stream", false);
  }
  request_.in_array = mode == TgiMode::kEither;
  request_.return_full_text = fields_.boolean("return_full_text", mode == TgiMode::kEither);
  const bool decoder_input_details = fields_.boolean("decoder_input_details", false);
  request_.details = fields_.boolean("details", false) || decoder_input_details;
  request_.generation.scores_prompts = decoder_input_details;
  if (request_.streams && decoder_input_details) {
    refuse("`decoder_input_details` == true is not supported when streaming tokens");
  }
}

void Reading::read_samples() {
  const auto best_of = count("best_of").value_or(1);
  const auto most = std::int64_t{limits_.max_best_of};
  request_.is_sampled = fields_.boolean("do_sample", !has_parameters_);
  for (const char* name : {"temperature", "top_k", "top_p", "typical_p"}) {
    request_.is_sampled = request_.is_sampled || fields_.find(name) != nullptr;
  }
  if (request_.streams && best_of != 1) {
    refuse("`best_of` != 1 is not supported when streaming tokens");
  }
  if (most == 1 && best_of != 1) refuse("`best_of` != 1 is not allowed for this endpoint");
  if (best_of < 1 || best_of > most) {
    refuse("`best_of` must be > 0 and <= " + std::to_string(most) +
           ". Given: " + std::to_string(best_of));
  }
  if (best_of > 1 && !request_.is_sampled) refuse("you must use sampling when `best_of` is > 1");
  request_.generation.num_samples = static_cast<int>(best_of);
  // As in LMTP, but for those that TGI has in another way; the last two it does not know.
  SamplingParams& params = request_.generation.params;
  fields_.params({"temperature", "top_p", "typical_p", kTopKName, "repetition_penalty",
                  "frequency_penalty", kMaxTokensName, kTopLogprobsName},
                 params);
  if (params.has_seed && best_of > 1) refuse("`seed` must not be set when `best_of` > 1");
}

void Reading::read_factors() {
  SamplingParams& params = request_.generation.params;
  const float repetition_penalty = number("repetition_penalty").value_or(1.0F);
  if (repetition_penalty <= 0.0F) refuse("`repetition_penalty` must be strictly positive");
  if (repetition_penalty > kFactorMax) refuse("`repetition_penalty` must be <= 100");
  params.repetition_penalty = repetition_penalty;
  params.frequency_penalty = number("frequency_penalty").value_or(0.0F);
  if (params.frequency_penalty < -2.0F || params.frequency_penalty > 2.0F) {
    refuse("`frequency_penalty` must be >= -2.0 and <= 2.0");
  }
}

void Reading::read_sampling() {
  SamplingParams& params = request_.generation.params;
  const float temperature = number("temperature").value_or(1.0F);
  if (temperature <= 0.0F) refuse("`temperature` must be strictly positive");
  if (temperature > kFactorMax) refuse("`temperature` must be <= 100");
  params.temperature = request_.is_sampled ? temperature : 0.0F;
  if (const auto top_p = number("top_p")) {
    if (*top_p <= 0.0F || *top_p >= 1.0F) refuse("`top_p` must be > 0.0 and < 1.0");
    params.top_p = *top_p;
  }
  if (const auto typical_p = number("typical_p")) {
    if (*typical_p <= 0.0F || *typical_p >= 1.0F) refuse("`typical_p` must be > 0.0 and < 1.0");
    params.typical_p = *typical_p;
  }
  if (const auto top_k = fields_.whole("top_k", -kWholeMax, kWholeMax)) {
    if (*top_k <= 0) refuse("`top_k` must be strictly positive");
    params.top_k = static_cast<int>(*top_k);
  }
}

void Reading::read_lengths() {
  request_.max_new_tokens = count("max_new_tokens");
  if (request_.max_new_tokens == 0) refuse("`max_new_tokens` must be strictly positive");
  request_.truncate = count("truncate");
  const Json* stop = fields_.find("stop");
  const auto num_stops_max = static_cast<std::size_t>(limits_.max_stop_sequences);
  if (stop != nullptr && stop->is_array() && stop->size() > num_stops_max) {
    refuse("`stop` supports up to " + std::to_string(num_stops_max) +
           " stop sequences. Given: " + std::to_string(stop->size()));
  } else {
    request_.generation.text.stop = fields_.strings("stop", num_stops_max, protocol::kMaxStopBytes);
  }
  request_.generation.text.include_stop = true;
  const auto top_n_tokens = count("top_n_tokens").value_or(0);
  if (top_n_tokens > limits_.max_top_n_tokens) {
    refuse("`top_n_tokens` must be >= 0 and <= " + std::to_string(limits_.max_top_n_tokens) +
           ". Given: " + std::to_string(top_n_tokens));
  }
  request_.top_n_tokens = static_cast<int>(top_n_tokens);
  request_.generation.params.top_logprobs = request_.top_n_tokens;
}

void Reading::refuse_unsupported() {
  if (fields_.boolean("watermark", false)) refuse("`watermark` is not supported");
}

// Of a body that has one.
std::optional<TgiError> Reading::read_grammar(const std::string& body) {
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return not_deserialized(ordered.error().message);
  auto grammar = read_typed_grammar((*ordered)["parameters"]["grammar"], schema_reading(limits_));
  if (!grammar) return not_deserialized("parameters.grammar" + grammar.error().message);
  request_.generation.grammar = std::move(*grammar);
  request_.generation.grammar_field = "grammar is not valid";
  return std::nullopt;
}

std::vector<std::string> Reading::unknown_keys() const {
  std::vector<std::string> keys = root_.unknown_keys();
  for (const std::string& key : fields_.unknown_keys()) keys.push_back("parameters." + key);
  return keys;
}

std::variant<Json, TgiError> parse_body(const std::string& body) {
  auto root = parse_json(body, "body", NonFinite::kRefused);
  if (!root) {
    return TgiError{400, "validation",
                    "Failed to parse the request body as JSON: " + root.error().message};
  }
  if (!root->is_object()) {
    return not_deserialized("body: " + seen(*root) + "; allowed is an object");
  }
  return std::move(*root);
}

// The prompt of a body, as text; the error is TGI's.
std::variant<std::shared_ptr<const std::string>, TgiError> inputs_of(JsonFields& fields) {
  const std::string* inputs = fields.text("inputs");
  if (fields.failed()) return not_deserialized(fields.error().message);
  if (inputs == nullptr) return not_deserialized("missing field `inputs`");
  if (inputs->empty()) return tgi_validation("`inputs` cannot be empty");
  return std::make_shared<const std::string>(*inputs);
}

void set_tgi_prompt(const std::shared_ptr<const std::string>& inputs, GenerationRequest& request) {
  request.num_bytes = inputs->size();
  request.make_prompts = [inputs](const registry::ReadyModel& model) -> Result<Prompts> {
    auto ids = encode_text(model.tokenizer, "inputs", *inputs, {});
    if (!ids) return ids.error();
    return Prompts{std::move(*ids)};
  };
}

std::variant<TgiRequest, TgiError> Reading::read(const std::string& body, TgiMode mode) {
  read_answer(mode);
  read_samples();
  read_sampling();
  read_factors();
  read_lengths();
  refuse_unsupported();
  if (root_.failed()) return not_deserialized(root_.error().message);
  if (fields_.failed()) return not_deserialized("parameters." + fields_.error().message);
  if (error_) return *error_;
  auto inputs = inputs_of(root_);
  if (auto* error = std::get_if<TgiError>(&inputs)) return std::move(*error);
  if (fields_.find("grammar") != nullptr) {
    if (auto error = read_grammar(body)) return std::move(*error);
  }
  request_.inputs = std::get<0>(inputs);
  set_tgi_prompt(request_.inputs, request_.generation);
  request_.generation.unknown_keys = unknown_keys();
  return std::move(request_);
}

}  // namespace

std::variant<TgiRequest, TgiError> read_tgi(const std::string& body, TgiMode mode,
                                            const ApiLimits& limits) {
  auto object = parse_body(body);
  if (auto* error = std::get_if<TgiError>(&object)) return std::move(*error);
  JsonFields root(std::get<Json>(object));
  const Json* parameters = root.find("parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return not_deserialized("parameters: " + seen(*parameters) + "; allowed is an object");
  }
  return Reading(std::move(root), parameters, limits).read(body, mode);
}

std::variant<GenerationRequest, TgiError> read_tgi_inputs(
    const std::string& body, std::shared_ptr<const std::string>& inputs) {
  auto root = parse_body(body);
  if (auto* error = std::get_if<TgiError>(&root)) return std::move(*error);
  JsonFields fields(std::get<Json>(root));
  auto read = inputs_of(fields);
  if (auto* error = std::get_if<TgiError>(&read)) return std::move(*error);
  inputs = std::get<0>(read);
  GenerationRequest request;
  if (const std::string* model = fields.text("model")) request.model = *model;
  if (fields.failed()) return not_deserialized(fields.error().message);
  set_tgi_prompt(inputs, request);
  return request;
}

std::variant<GenerationRequest, TgiError> read_tgi_chat(
    const std::string& body, const std::shared_ptr<std::string>& rendered) {
  auto root = parse_body(body);
  if (auto* error = std::get_if<TgiError>(&root)) return std::move(*error);
  JsonFields fields(std::get<Json>(root));
  const std::string* model = fields.text("model");
  if (fields.failed()) return not_deserialized(fields.error().message);
  auto request = read_chat_tokens(std::get<Json>(root), body, rendered);
  if (!request) return not_deserialized(request.error().message);
  if (model != nullptr) request->model = *model;
  return std::move(*request);
}

}  // namespace lmtp::server
