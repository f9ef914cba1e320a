// Parses a client's text. Checks in the order of the text: the verb, whether the payload is JSON,
// whether it is an object, its stream id, its other fields.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "field_reader.h"
#include "json_parser.h"
#include "json_scan.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/bad_words.h"
#include "lmtp/request/error_text.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

using simdjson::dom::element;

enum class Verb {  // the first three open a stream
  kGenerate,
  kScore,
  kDecide,
  kModelInfo,
  kCancel,
  kTokenize,
  kDetokenize,
  kBuffer,
  kFree,
  kFork,
  kBacktrack,
  kController,
};

constexpr std::array<std::pair<std::string_view, Verb>, 12> kVerbs = {{
    {"GENERATE", Verb::kGenerate},
    {"SCORE", Verb::kScore},
    {"DECIDE", Verb::kDecide},
    {"MODEL_INFO", Verb::kModelInfo},
    {"CANCEL", Verb::kCancel},
    {"TOKENIZE", Verb::kTokenize},
    {"DETOKENIZE", Verb::kDetokenize},
    {"BUFFER", Verb::kBuffer},
    {"FREE", Verb::kFree},
    {"FORK", Verb::kFork},
    {"BACKTRACK", Verb::kBacktrack},
    {"CONTROLLER", Verb::kController},
}};

constexpr std::size_t kMaxModelNameBytes = 4096;
constexpr std::size_t kMaxShownVerbBytes = 32;
// Fields examined in an invalid payload; a message has at most thirty.
constexpr std::size_t kMaxScannedFields = 64;
// Shorter values are parsed without a check of their size.
constexpr std::size_t kLongValueBytes = std::size_t{16} << 10;
// Of an array or object that is neither tokens nor biases; no message needs one.
constexpr std::size_t kMaxOtherFieldBytes = std::size_t{1} << 20;
constexpr std::string_view kOfContext = " (the context)";
constexpr std::string_view kBlanks = " \t\r\n";

bool opens_stream(Verb verb) { return verb <= Verb::kDecide; }

std::optional<StreamId> stream_id_of(std::string_view value) {
  StreamId id = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), id);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return id;
}

// The stream id of a payload that may be invalid, if it is before the error.
std::optional<StreamId> scan_stream_id(std::string_view payload) {
  const std::optional<std::string_view> value =
      find_raw_field(payload, field_name(Field::kStreamId));
  return value ? stream_id_of(*value) : std::nullopt;
}

// For an answer: everything but a verb's letters is removed.
std::string shown_verb(std::string_view verb) {
  std::string shown;
  for (const char c : verb.substr(0, kMaxShownVerbBytes)) shown += c > ' ' && c < '\x7f' ? c : '?';
  return verb.size() > kMaxShownVerbBytes ? shown + "..." : shown;
}

// A field by its name, if that is plain and short.
std::string shown_key(std::string_view key) {
  const bool is_plain = key.size() <= kMaxShownVerbBytes &&
                        std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
  return is_plain ? std::string(key) : "payload";
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

// Names the field that makes the payload invalid, by parsing the values one by one.
std::string explain_broken(std::string_view payload, simdjson::error_code code,
                           JsonParser& parser) {
  ObjectScanner scanner(payload);
  for (std::size_t i = 0; i < kMaxScannedFields && scanner.next(); ++i) {
    const std::string_view value = scanner.skip_value();
    const simdjson::error_code field_code = parser.parse(value).error();
    if (field_code == simdjson::SUCCESS) continue;
    return shown_key(scanner.key()) + ": " + why_broken(field_code);
  }
  const bool inside = code == simdjson::DEPTH_ERROR || code == simdjson::NUMBER_ERROR;
  if (inside) return "payload: " + why_broken(code);
  return "payload: is not valid JSON; one JSON object is expected after the verb";
}

// Whether there are more than `limit` entries, by the text's length and commas without parsing. (A
// value with commas inside would be of a wrong type anyway.)
bool has_more_entries(std::string_view container, std::size_t limit) {
  constexpr std::size_t kBlockBytes = 4096;
  if (container.size() / 2 <= limit) return false;  // each takes two bytes
  std::size_t num_commas = 0;
  while (!container.empty() && num_commas < limit) {
    const std::string_view block = container.substr(0, kBlockBytes);
    num_commas += static_cast<std::size_t>(std::count(block.begin(), block.end(), ','));
    container.remove_prefix(block.size());
  }
  return num_commas >= limit;
}

// The error about the size of a long array or object; empty if it may be parsed.
std::string why_too_long(std::string_view key, std::string_view container,
                         const RequestLimits& limits) {
  const auto too_many = [&](std::size_t limit, const std::string& what, std::string_view of_what) {
    if (!has_more_entries(container, limit)) return std::string();
    return "has more than " + std::to_string(limit) + what + "; allowed are at most " +
           std::to_string(limit) + std::string(of_what);
  };
  const bool is_prompt = key == field_name(Field::kPrompt);
  const bool is_long_list =
      key == field_name(Field::kTokens) && container.size() > kMaxOtherFieldBytes;
  if (is_prompt || key == field_name(Field::kScored) || is_long_list) {
    std::string why = too_many(limits.num_tokens, " tokens", kOfContext);
    if (why.empty() || !is_prompt || !is_nested(container)) return why;
    // A part may have two commas and no token.
    return count_commas(container) < limits.num_tokens + 2 * kMaxPromptParts ? "" : why;
  }
  if (key == kLogitBiasName) return too_many(limits.num_biases, " entries", " (the vocabulary)");
  if (container.size() <= kMaxOtherFieldBytes) return {};
  return "has " + std::to_string(container.size()) + " bytes; allowed are at most " +
         std::to_string(kMaxOtherFieldBytes);
}

// The payload's document, without a bias that is in the cache (found by its text), a mask (decoded
// from the text itself) and fields that are too long.
struct Payload {
  simdjson::simdjson_result<element> document;
  std::shared_ptr<const LogitBias> known_bias;
  std::shared_ptr<const TokenMask> mask;  // null: none, or an invalid one, which is in the document
  std::string_view bias_text;             // of a bias that is not in the cache
  std::string too_long_key;               // empty: none
  std::string too_long;                   // the error
};

// The mask of a JSON string without escapes; null if it is invalid.
std::shared_ptr<const TokenMask> read_mask(std::string_view value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return nullptr;
  std::shared_ptr<const TokenMask> mask = decode_mask(value.substr(1, value.size() - 2));
  return mask && allows_any(*mask) ? mask : nullptr;
}

Payload parse_payload(std::string_view text, BiasCache& bias_cache, const LimitsOf& limits_of,
                      JsonParser& parser) {
  Payload payload;
  std::string_view model;
  std::vector<std::string_view> left_out;
  std::vector<std::pair<std::string_view, std::string_view>> long_values;  // by key
  ObjectScanner scanner(text);
  while (scanner.next()) {
    const std::string_view key = scanner.key();
    const std::string_view rest = text.substr(scanner.value_begin());
    const bool is_first_bias =
        key == kLogitBiasName && rest[0] == '{' && payload.bias_text.empty() && !payload.known_bias;
    BiasCache::PrefixHit hit;
    if (is_first_bias) hit = bias_cache.find_at_front(rest);
    if (hit.bias) scanner.skip_bytes(hit.num_bytes);
    const std::string_view value = hit.bias ? rest.substr(0, hit.num_bytes) : scanner.skip_value();
    if (is_first_bias && !hit.bias) hit.bias = bias_cache.find(value);
    if (hit.bias) {
      // A cached text is a complete, valid JSON object, so only the rest needs to be parsed.
      payload.known_bias = hit.bias;
      left_out.push_back(value);
      continue;
    }
    if (is_first_bias) payload.bias_text = value;
    if (key == field_name(Field::kMask) && !payload.mask) {
      payload.mask = read_mask(value);
      if (payload.mask) {
        left_out.push_back(value);
        continue;
      }
    }
    if (key == field_name(Field::kModel) && value.size() >= 2 && rest[0] == '"') {
      model = value.substr(1, value.size() - 2);
    }
    const bool is_container = rest[0] == '[' || rest[0] == '{';
    if (is_container && value.size() >= kLongValueBytes) long_values.emplace_back(key, value);
  }
  RequestLimits limits;
  if (!long_values.empty() && limits_of) limits = limits_of(model);
  for (const auto& [key, value] : long_values) {
    std::string why = why_too_long(key, value, limits);
    if (why.empty()) continue;
    left_out.push_back(value);
    if (!payload.too_long.empty()) continue;
    payload.too_long_key = shown_key(key);
    payload.too_long = std::move(why);
  }
  std::ranges::sort(left_out, {}, [](std::string_view value) { return value.data(); });
  payload.document = parser.parse_without(text, left_out);
  return payload;
}

SamplingParams read_params(FieldReader& reader, const Payload& payload, BiasCache& bias_cache) {
  SamplingParams params = reader.params();
  if (payload.mask) params.mask = payload.mask;
  if (payload.known_bias) {
    params.logit_bias = payload.known_bias;
  } else if (params.logit_bias && !payload.bias_text.empty()) {
    bias_cache.insert(payload.bias_text, params.logit_bias);
  }
  return params;
}

// What any stream may have.
void read_common(FieldReader& reader, StreamOptions& options) {
  options.notices = reader.optional_bool(Field::kNotices).value_or(false);
  options.first_token_timeout_ms =
      reader.whole_within(Field::kFirstTokenTimeoutMs, 0, 1, kMaxTimeoutMs);
  options.timeout_ms = reader.whole_within(Field::kTimeoutMs, 0, 1, kMaxTimeoutMs);
  options.cache_salt = reader.optional_string(Field::kCacheSalt, kMaxCacheSaltBytes);
}

void read_options(FieldReader& reader, StreamOptions& options) {
  options.add_special_tokens = reader.optional_bool(Field::kAddSpecialTokens).value_or(true);
  options.text = reader.optional_bool(Field::kText);
  options.skip_special_tokens = reader.optional_bool(Field::kSkipSpecialTokens).value_or(true);
  read_common(reader, options);
}

// Exactly one of tokens and text.
std::variant<std::vector<TokenId>, std::string> read_content(FieldReader& reader) {
  if (!reader.has(Field::kText)) return reader.required_tokens(Field::kTokens, true);
  if (reader.has(Field::kTokens)) reader.fail(Field::kText, "stands beside tokens; one is allowed");
  return reader.required_string(Field::kText);
}

void read_controller(FieldReader& reader, GenerateMessage& message) {
  if (!reader.has(Field::kController)) {
    if (reader.has(Field::kControllerArg)) {
      reader.fail(Field::kControllerArg, "stands without controller; allowed is one beside it");
    }
    return;
  }
  message.controller = reader.required_string(Field::kController);
  message.controller_arg = reader.text_or_json(Field::kControllerArg);
  if (message.controller.empty()) {
    reader.fail(Field::kController, "is empty; allowed is a tag or a module's id");
  } else if (message.grammar) {
    reader.fail(Field::kController, "stands beside grammar; one is allowed");
  } else if (!message.bad_words.empty()) {
    reader.fail(Field::kController, "stands beside bad_words; one is allowed");
  } else if (message.num_samples > 1) {
    reader.fail(Field::kController, "is given with n " + std::to_string(message.num_samples) +
                                        "; allowed is n 1: a controller forks by itself");
  }
}

GenerateMessage read_generate(StreamId stream_id, std::string model, FieldReader& reader,
                              const Payload& payload, BiasCache& bias_cache) {
  GenerateMessage message;
  message.stream_id = stream_id;
  message.model = std::move(model);
  message.chat = reader.chat();
  message.reading = reader.reading();
  if (!message.chat || reader.has(Field::kPrompt)) {
    message.prompt = reader.required_prompt(false, message.options.prompt_parts);
  }
  message.params = read_params(reader, payload, bias_cache);
  read_options(reader, message.options);
  message.stop = reader.strings(Field::kStop, kMaxStops, kMaxStopBytes);
  message.include_stop = reader.optional_bool(Field::kIncludeStop).value_or(false);
  message.bad_words = reader.strings(Field::kBadWords, kMaxBadWords, kMaxBadWordBytes);
  message.num_resumed = reader.whole(Field::kResumed, 0, {0, kMaxCount});
  message.num_samples = reader.whole_within(Field::kN, 1, 1, kMaxSamples);
  if (reader.has(Field::kInto)) message.into = reader.required_name(Field::kInto);
  message.grammar = reader.grammar();
  if (message.reading && message.grammar && message.grammar->triggers) {
    reader.fail("grammar.triggers",
                "stand beside parsed, which has its own; allowed is a grammar without");
  }
  read_controller(reader, message);
  const auto num_resumed = static_cast<std::size_t>(message.num_resumed);
  if (message.chat && reader.has(Field::kPrompt) &&
      (message.prompt.empty() || num_resumed != message.prompt.size())) {
    reader.fail(Field::kPrompt,
                "stands beside messages; allowed there are the token ids that came of it before, "
                "as many as resumed says");
  }
  if (message.options.prompt_parts.empty() && num_resumed > message.prompt.size()) {
    reader.fail(Field::kResumed, beyond_prompt(num_resumed, message.prompt.size()));
  }
  if (!message.into.empty() && message.num_samples > 1) {
    reader.fail(Field::kInto,
                "is given with n " + std::to_string(message.num_samples) + "; allowed is n 1");
  }
  message.unknown_keys = reader.take_unknown_keys();
  return message;
}

// In the place of what is scored.
void read_candidates(FieldReader& reader, ScoreMessage& message) {
  constexpr std::string_view kBeside = "stands beside candidates; allowed is one beside scored";
  if (reader.has(Field::kScored)) {
    reader.fail(Field::kCandidates, "stands beside scored; one is allowed");
  }
  if (message.top_logprobs > 0) reader.fail(kTopLogprobsName, kBeside);
  if (message.logprob_token_ids != nullptr) reader.fail(Field::kLogprobTokenIds, kBeside);
  if (message.measures.entropy) reader.fail(Field::kEntropy, kBeside);
  if (message.measures.rank) reader.fail(Field::kRank, kBeside);
  if (message.options.text.value_or(false)) reader.fail(Field::kText, kBeside);
  message.candidates = reader.candidates();
}

ScoreMessage read_score(StreamId stream_id, std::string model, FieldReader& reader) {
  ScoreMessage message;
  message.stream_id = stream_id;
  message.model = std::move(model);
  message.prompt = reader.required_prompt(true, message.options.prompt_parts);
  const bool has_candidates = reader.has(Field::kCandidates);
  if (reader.is_text(Field::kScored)) {
    message.scored_text = reader.required_string(Field::kScored);
    if (message.scored_text.empty()) {
      reader.fail(Field::kScored, "is empty; at least one character is needed");
    }
  } else if (!has_candidates) {
    message.scored = reader.required_tokens(Field::kScored, false);
  }
  message.top_logprobs = reader.top_logprobs();
  message.logprob_token_ids = reader.logprob_token_ids(message.top_logprobs);
  message.measures = reader.measures();
  read_options(reader, message.options);
  if (has_candidates) read_candidates(reader, message);
  message.unknown_keys = reader.take_unknown_keys();
  return message;
}

DecideMessage read_decide(StreamId stream_id, std::string model, FieldReader& reader) {
  DecideMessage message = reader.decision(stream_id, std::move(model));
  read_common(reader, message.options);
  message.unknown_keys = reader.take_unknown_keys();
  return message;
}

// Exactly one of text and messages.
TokenizeMessage read_tokenize(StreamId stream_id, std::string model, FieldReader& reader) {
  TokenizeMessage message;
  message.stream_id = stream_id;
  message.model = std::move(model);
  message.chat = reader.chat();
  if (!message.chat) {
    message.text = reader.required_string(Field::kText);
  } else if (reader.has(Field::kText)) {
    reader.fail(Field::kMessages, "stands beside text; one is allowed");
  }
  message.add_special_tokens = reader.optional_bool(Field::kAddSpecialTokens).value_or(true);
  return message;
}

BacktrackMessage read_backtrack(StreamId stream_id, FieldReader& reader) {
  BacktrackMessage message{stream_id, reader.count(Field::kDrop), {}};
  if (reader.has(Field::kAppend)) message.appended = reader.required_tokens(Field::kAppend, true);
  return message;
}

ControllerMessage read_controller_verb(StreamId stream_id, std::string model, FieldReader& reader) {
  ControllerMessage message = reader.controller();
  message.stream_id = stream_id;
  message.model = std::move(model);
  return message;
}

ClientMessage read_message(Verb verb, FieldReader& reader, const Payload& payload,
                           BiasCache& bias_cache) {
  const bool is_without_id = verb == Verb::kFree && !reader.has(Field::kStreamId);
  const StreamId stream_id = is_without_id ? 0 : reader.required_stream_id();
  if (!payload.too_long.empty()) {
    const bool is_context = payload.too_long.ends_with(kOfContext);
    reader.fail(payload.too_long_key, payload.too_long,
                is_context ? ErrorCode::kTooLong : ErrorCode::kInvalid);
  }
  if (verb == Verb::kCancel) return CancelMessage{stream_id};
  if (verb == Verb::kFree) {
    return FreeMessage{reader.peek_stream_id(), reader.required_name(Field::kBuffer)};
  }
  if (verb == Verb::kFork) return ForkMessage{stream_id, reader.streams(), reader.changes()};
  if (verb == Verb::kBacktrack) return read_backtrack(stream_id, reader);
  std::string model = reader.optional_string(Field::kModel, kMaxModelNameBytes);
  switch (verb) {
    case Verb::kGenerate:
      return read_generate(stream_id, std::move(model), reader, payload, bias_cache);
    case Verb::kScore:
      return read_score(stream_id, std::move(model), reader);
    case Verb::kDecide:
      return read_decide(stream_id, std::move(model), reader);
    case Verb::kTokenize:
      return read_tokenize(stream_id, std::move(model), reader);
    case Verb::kDetokenize:
      return DetokenizeMessage{stream_id, std::move(model),
                               reader.required_tokens(Field::kTokens, true),
                               reader.optional_bool(Field::kSkipSpecialTokens).value_or(true)};
    case Verb::kBuffer:
      return BufferMessage{stream_id,
                           std::move(model),
                           reader.required_name(Field::kBuffer),
                           read_content(reader),
                           reader.optional_bool(Field::kAppend).value_or(false),
                           reader.optional_bool(Field::kAddSpecialTokens)};
    case Verb::kController:
      return read_controller_verb(stream_id, std::move(model), reader);
    default:
      return ModelInfoMessage{stream_id, std::move(model)};
  }
}

std::variant<ClientMessage, ParseError> parse_object(Verb verb, std::string_view text,
                                                     BiasCache& bias_cache,
                                                     const LimitsOf& limits_of) {
  JsonParser& parser = thread_parser();
  const ParserTrimmer trimmer(parser);
  const Payload payload = parse_payload(text, bias_cache, limits_of, parser);
  if (payload.document.error() != simdjson::SUCCESS) {
    const std::string parsed(parser.parsed_text());
    return ParseError{explain_broken(parsed, payload.document.error(), parser),
                      scan_stream_id(parsed), opens_stream(verb)};
  }
  simdjson::dom::object object;
  if (payload.document.get_object().get(object) != simdjson::SUCCESS) {
    return ParseError{"payload: is not a JSON object; one object is expected after the verb",
                      std::nullopt, opens_stream(verb)};
  }
  FieldReader reader(object);
  ClientMessage message = read_message(verb, reader, payload, bias_cache);
  if (reader.failed()) {
    return ParseError{.message = reader.error().message,
                      .stream_id = reader.peek_stream_id(),
                      .opens_stream = opens_stream(verb),
                      .code = reader.error().code};
  }
  return message;
}

}  // namespace

std::variant<ClientMessage, ParseError> parse_client_message(std::string_view text,
                                                             BiasCache& bias_cache,
                                                             const LimitsOf& limits_of) {
  if (text.find_first_not_of(kBlanks) == std::string_view::npos) {
    return ParseError{"message: is empty; expected is a verb, a space and a JSON object",
                      std::nullopt, false};
  }
  const std::string_view verb_text = text.substr(0, text.find(' '));
  const std::string_view payload = text.substr(std::min(verb_text.size() + 1, text.size()));
  const auto* const verb = std::find_if(
      kVerbs.begin(), kVerbs.end(), [&](const auto& known) { return known.first == verb_text; });
  if (verb == kVerbs.end()) {
    return ParseError{"verb: '" + shown_verb(verb_text) +
                          "' is unknown; allowed are GENERATE, SCORE, DECIDE, MODEL_INFO, CANCEL, "
                          "TOKENIZE, DETOKENIZE, BUFFER, FREE, FORK, BACKTRACK and CONTROLLER",
                      scan_stream_id(payload), false, true};
  }
  if (payload.find_first_not_of(kBlanks) == std::string_view::npos) {
    return ParseError{"payload: is missing; one JSON object is expected after the verb",
                      std::nullopt, opens_stream(verb->second)};
  }
  return parse_object(verb->second, payload, bias_cache, limits_of);
}

}  // namespace lmtp::protocol
