// From a client's text to a message. The order of the checks is the order of the text: the verb,
// whether the payload is JSON, whether it is an object, its stream id, its other fields.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "field_reader.h"
#include "json_parser.h"
#include "json_scan.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

using simdjson::dom::element;

enum class Verb { kGenerate, kScore, kModelInfo, kCancel };

constexpr std::array<std::pair<std::string_view, Verb>, 4> kVerbs = {{
    {"GENERATE", Verb::kGenerate},
    {"SCORE", Verb::kScore},
    {"MODEL_INFO", Verb::kModelInfo},
    {"CANCEL", Verb::kCancel},
}};

constexpr std::size_t kMaxModelNameBytes = 4096;
constexpr std::size_t kMaxShownVerbBytes = 32;
// Looked at in a payload that is broken; a message has some fifteen.
constexpr std::size_t kMaxScannedFields = 64;
constexpr std::string_view kBlanks = " \t\r\n";

constexpr NumberRange kTemperatureRange = {0.0, 100.0};
constexpr NumberRange kTopPRange = {0.0, 1.0, false};
constexpr NumberRange kRepetitionRange = {0.0, 100.0, false};
constexpr NumberRange kPenaltyRange = {-100.0, 100.0};
constexpr int kMaxCount = 1 << 30;

bool opens_stream(Verb verb) { return verb == Verb::kGenerate || verb == Verb::kScore; }

std::optional<StreamId> stream_id_of(std::string_view value) {
  StreamId id = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), id);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return id;
}

// The stream id of a payload that may be broken: what stands for it before the break.
std::optional<StreamId> scan_stream_id(std::string_view payload) {
  const std::optional<std::string_view> value =
      find_raw_field(payload, field_name(Field::kStreamId));
  return value ? stream_id_of(*value) : std::nullopt;
}

// Shown in an answer, so anything but plain letters of a verb is left out.
std::string shown_verb(std::string_view verb) {
  std::string shown;
  for (const char c : verb.substr(0, kMaxShownVerbBytes)) {
    shown += c > ' ' && c < '\x7f' ? c : '?';
  }
  return verb.size() > kMaxShownVerbBytes ? shown + "..." : shown;
}

std::string why_broken(simdjson::error_code code) {
  switch (code) {
    case simdjson::NUMBER_ERROR:
      return "holds a number that is badly written or too large; allowed are JSON numbers up to "
             "1.7e308, whole ones of 64 bits";
    case simdjson::DEPTH_ERROR:
      return "is nested deeper than " + std::to_string(kMaxJsonDepth) +
             " levels; no message needs that";
    case simdjson::STRING_ERROR:
    case simdjson::UNCLOSED_STRING:
    case simdjson::UNESCAPED_CHARS:
      return "holds a string that is not closed or not escaped as JSON asks";
    case simdjson::CAPACITY:
    case simdjson::MEMALLOC:
      return "is too large for the memory there is";
    default:
      return "is not JSON; allowed are JSON values (no NaN, Infinity, None or single quotes)";
  }
}

// Which field breaks the payload, and how: found by parsing its values one by one.
std::string explain_broken(std::string_view payload, simdjson::error_code code,
                           JsonParser& parser) {
  ObjectScanner scanner(payload);
  for (std::size_t i = 0; i < kMaxScannedFields && scanner.next(); ++i) {
    const std::string_view value = scanner.skip_value();
    const simdjson::error_code field_code = parser.parse(value).error();
    if (field_code == simdjson::SUCCESS) continue;
    const bool can_be_shown = scanner.key().size() <= kMaxShownVerbBytes &&
                              std::all_of(scanner.key().begin(), scanner.key().end(),
                                          [](char c) { return c > ' ' && c < '\x7f'; });
    return (can_be_shown ? std::string(scanner.key()) : "payload") + ": " + why_broken(field_code);
  }
  const bool inside = code == simdjson::DEPTH_ERROR || code == simdjson::NUMBER_ERROR;
  if (inside) return "payload: " + why_broken(code);
  return "payload: is not valid JSON; one JSON object is expected after the verb";
}

// The payload's document; a bias that has been seen before is found by its text and cut out.
struct Payload {
  simdjson::simdjson_result<element> document;
  std::shared_ptr<const LogitBias> known_bias;
  std::string_view bias_text;  // the text of a bias that is still to be read
};

Payload parse_payload(std::string_view text, BiasCache& bias_cache, JsonParser& parser) {
  ObjectScanner scanner(text);
  std::string_view bias_text;
  while (scanner.next()) {
    const bool is_bias =
        scanner.key() == field_name(Field::kLogitBias) && text[scanner.value_begin()] == '{';
    if (!is_bias) {
      scanner.skip_value();
      continue;
    }
    const std::size_t begin = scanner.value_begin();
    BiasCache::PrefixHit hit = bias_cache.find_at_front(text.substr(begin));
    if (!hit.bias) {
      bias_text = scanner.skip_value();
      hit = {bias_cache.find(bias_text), bias_text.size()};
    }
    if (!hit.bias) break;
    // What is in the cache is a whole and valid JSON object, so the rest decides alone.
    return {parser.parse_with_replacement(text, begin, hit.num_bytes, "null"), hit.bias, {}};
  }
  return {parser.parse(text), nullptr, bias_text};
}

SamplingParams read_params(FieldReader& reader, const Payload& payload, BiasCache& bias_cache) {
  SamplingParams params;
  params.temperature = reader.number(Field::kTemperature, params.temperature, kTemperatureRange);
  params.top_p = reader.number(Field::kTopP, params.top_p, kTopPRange);
  params.top_k = reader.whole(Field::kTopK, params.top_k, 0, kMaxCount);
  params.repetition_penalty =
      reader.number(Field::kRepetitionPenalty, params.repetition_penalty, kRepetitionRange);
  params.presence_penalty =
      reader.number(Field::kPresencePenalty, params.presence_penalty, kPenaltyRange);
  params.frequency_penalty =
      reader.number(Field::kFrequencyPenalty, params.frequency_penalty, kPenaltyRange);
  params.top_logprobs = reader.whole(Field::kTopLogprobs, params.top_logprobs, 0, kMaxTopLogprobs);
  params.max_tokens = reader.whole(Field::kMaxTokens, params.max_tokens, 1, kMaxCount);
  const std::optional<std::uint64_t> seed = reader.optional_seed();
  params.has_seed = seed.has_value();
  params.seed = seed.value_or(0);
  params.logit_bias = payload.known_bias;
  if (!params.logit_bias) {
    params.logit_bias = reader.optional_bias();
    const bool can_be_kept = params.logit_bias && !payload.bias_text.empty();
    if (can_be_kept) bias_cache.insert(payload.bias_text, params.logit_bias);
  }
  return params;
}

ClientMessage read_message(Verb verb, FieldReader& reader, const Payload& payload,
                           BiasCache& bias_cache) {
  const StreamId stream_id = reader.required_stream_id();
  if (verb == Verb::kCancel) return CancelMessage{stream_id};
  std::string model = reader.optional_string(Field::kModel, kMaxModelNameBytes);
  if (verb == Verb::kModelInfo) return ModelInfoMessage{stream_id, std::move(model)};
  if (verb == Verb::kScore) {
    std::vector<TokenId> prompt = reader.required_tokens(Field::kPrompt, true);
    std::vector<TokenId> scored = reader.required_tokens(Field::kScored, false);
    return ScoreMessage{stream_id, std::move(model), std::move(prompt), std::move(scored),
                        reader.take_unknown_keys()};
  }
  std::vector<TokenId> prompt = reader.required_tokens(Field::kPrompt, false);
  SamplingParams params = read_params(reader, payload, bias_cache);
  return GenerateMessage{stream_id, std::move(model), std::move(prompt), std::move(params),
                         reader.take_unknown_keys()};
}

std::variant<ClientMessage, ParseError> parse_object(Verb verb, std::string_view text,
                                                     BiasCache& bias_cache) {
  JsonParser& parser = thread_parser();
  const ParserTrimmer trimmer(parser);
  const Payload payload = parse_payload(text, bias_cache, parser);
  if (payload.document.error() != simdjson::SUCCESS) {
    return ParseError{explain_broken(text, payload.document.error(), parser), scan_stream_id(text),
                      opens_stream(verb)};
  }
  simdjson::dom::object object;
  if (payload.document.get_object().get(object) != simdjson::SUCCESS) {
    return ParseError{"payload: is not a JSON object; one object is expected after the verb",
                      std::nullopt, opens_stream(verb)};
  }
  FieldReader reader(object);
  ClientMessage message = read_message(verb, reader, payload, bias_cache);
  if (reader.failed()) {
    return ParseError{reader.error(), reader.peek_stream_id(), opens_stream(verb)};
  }
  return message;
}

}  // namespace

std::variant<ClientMessage, ParseError> parse_client_message(std::string_view text,
                                                             BiasCache& bias_cache) {
  if (text.find_first_not_of(kBlanks) == std::string_view::npos) {
    return ParseError{"message: is empty; expected is a verb, a space and a JSON object",
                      std::nullopt, false};
  }
  const std::size_t space = std::min(text.find(' '), text.size());
  const std::string_view verb_text = text.substr(0, space);
  const std::string_view payload = text.substr(std::min(space + 1, text.size()));
  const auto* const verb = std::find_if(
      kVerbs.begin(), kVerbs.end(), [&](const auto& known) { return known.first == verb_text; });
  if (verb == kVerbs.end()) {
    return ParseError{"verb: '" + shown_verb(verb_text) +
                          "' is unknown; allowed are GENERATE, SCORE, MODEL_INFO and CANCEL",
                      scan_stream_id(payload), false};
  }
  if (payload.find_first_not_of(kBlanks) == std::string_view::npos) {
    return ParseError{"payload: is missing; one JSON object is expected after the verb",
                      std::nullopt, opens_stream(verb->second)};
  }
  return parse_object(verb->second, payload, bias_cache);
}

}  // namespace lmtp::protocol
