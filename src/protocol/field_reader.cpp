#include "field_reader.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <utility>

#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"

lmtp::FieldValue lmtp::FieldAccess<simdjson::dom::element>::value(
    const simdjson::dom::element& json) {
  using simdjson::dom::element_type;
  switch (json.type()) {
    case element_type::ARRAY:
      return ArrayValue{json.get_array().value().size()};
    case element_type::OBJECT:
      return ObjectValue{json.get_object().value().size()};
    case element_type::INT64:
      return json.get_int64().value();
    case element_type::UINT64:
      return json.get_uint64().value();
    case element_type::DOUBLE:
      return json.get_double().value();
    case element_type::STRING:
      return json.get_string().value();
    case element_type::BOOL:
      return json.get_bool().value();
    case element_type::NULL_VALUE:
      break;
  }
  return {};
}

namespace lmtp::protocol {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::string_view kTokensAllowed = "allowed is an array of token ids, whole numbers >= 0";
constexpr std::string_view kPartsAllowed =
    "allowed are strings, arrays of token ids and {\"buffer\": NAME, \"upto\": N}";

// Those that LMQL sends come first, and are found first.
constexpr std::array kFieldNames = [] {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Field::kFirstParam)> kFirst = {
      "stream_id", "model", "prompt", "scored", "data"};
  constexpr std::array<std::string_view, kNumFields - static_cast<std::size_t>(Field::kMask)>
      kLast = {"mask",
               "logprobs",
               "logprob_token_ids",
               "entropy",
               "rank",
               "candidates",
               "stop_token_ids",
               "stop",
               "include_stop",
               "bad_words",
               "resumed",
               "n",
               "into",
               "add_special_tokens",
               "text",
               "skip_special_tokens",
               "notices",
               "first_token_timeout_ms",
               "timeout_ms",
               "cache_salt",
               "tokens",
               "buffer",
               "append",
               "messages",
               "tools",
               "add_generation_prompt",
               "chat_template_kwargs",
               "parsed",
               "tool_choice",
               "parallel_tool_calls",
               "thinking_token_budget",
               "grammar",
               "controller",
               "controller_arg",
               "streams",
               "params",
               "drop",
               "op",
               "binary",
               "module_id",
               "tags",
               "state",
               "questions",
               "scoring",
               "diagnostics",
               "instructions"};
  static_assert(!kLast.back().empty());
  std::array<std::string_view, kNumFields> names;
  auto at = std::ranges::copy(kFirst, names.begin()).out;
  at = std::ranges::transform(kSamplingTable, at, &SamplingParam::name).out;
  std::ranges::copy(kLast, at);
  return names;
}();

// Appends the ids of an array up to the first entry that is not one, which is returned.
std::optional<element> read_ids(const simdjson::dom::array& array, std::vector<TokenId>& ids) {
  ids.reserve(array.size());
  for (const element item : array) {
    std::int64_t id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS || id < 0 ||
        id > std::numeric_limits<TokenId>::max()) {
      return item;
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return std::nullopt;
}

GrammarValue grammar_value(const element& value) {
  using Kind = GrammarValue::Kind;
  switch (value.type()) {
    case element_type::NULL_VALUE:
      return {};
    case element_type::STRING:
      return {Kind::kText, std::string(value.get_string().value())};
    case element_type::ARRAY:
      return {Kind::kList, simdjson::minify(value)};
    case element_type::OBJECT:
      return {Kind::kObject, simdjson::minify(value)};
    default:
      return {Kind::kOther, {}};
  }
}

}  // namespace

std::string_view field_name(Field field) { return kFieldNames[static_cast<std::size_t>(field)]; }

FieldReader::FieldReader(simdjson::dom::object object) {
  std::bitset<kNumFields> seen_fields;
  for (const auto& [key, value] : object) {
    const auto* const found = std::find(kFieldNames.begin(), kFieldNames.end(), key);
    if (found == kFieldNames.end()) {
      if (unknown_keys_.size() < kMaxUnknownKeysKept) {
        unknown_keys_.push_back(shortened(key, kShownKeyBytes));
      }
      continue;
    }
    const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
    if (seen_fields.test(index)) {
      fail(*found, "is given twice; once is allowed");
      elements_[index].reset();  // of two stream ids, neither is used
      continue;
    }
    seen_fields.set(index);
    if (!value.is_null()) elements_[index] = value;
  }
}

std::optional<StreamId> FieldReader::peek_stream_id() const {
  const auto& value = element(Field::kStreamId);
  if (!value || !value->is_int64()) return std::nullopt;
  return value->get_int64().value();
}

StreamId FieldReader::required_stream_id() {
  const std::optional<StreamId> id = peek_stream_id();
  if (id) return *id;
  constexpr std::string_view kAllowed = "; allowed is a whole number of 64 bits";
  const auto& value = element(Field::kStreamId);
  fail(Field::kStreamId, (value ? seen(*value) : "is missing") + std::string(kAllowed));
  return 0;
}

std::string FieldReader::optional_string(Field field, std::size_t max_bytes) {
  const auto& value = element(field);
  if (!value) return {};
  if (!value->is_string()) {
    fail(field, seen(*value) + "; allowed is a string");
    return {};
  }
  const std::string_view text = value->get_string().value();
  if (text.size() > max_bytes) {
    fail(field, "has " + std::to_string(text.size()) + " bytes; allowed are at most " +
                    std::to_string(max_bytes));
    return {};
  }
  return std::string(text);
}

std::string FieldReader::required_string(Field field) {
  if (is_text(field)) return std::string(element(field)->get_string().value());
  fail(field, (has(field) ? seen(*element(field)) : "is missing") + "; allowed is a string");
  return {};
}

std::optional<bool> FieldReader::optional_bool(Field field) {
  return has(field) ? as_bool(field_name(field), value(field)) : std::nullopt;
}

std::vector<TokenId> FieldReader::required_tokens(Field field, bool may_be_empty,
                                                  std::vector<PromptPart>* parts) {
  std::vector<TokenId> tokens;
  const auto& value = element(field);
  if (!value || !value->is_array()) {
    fail(field, (value ? seen(*value) : "is missing") + "; " + std::string(kTokensAllowed));
    return tokens;
  }
  const simdjson::dom::array array = value->get_array().value();
  const std::optional<simdjson::dom::element> other = read_ids(array, tokens);
  if (!other) {
    if (tokens.empty() && !may_be_empty) fail(field, "is empty; at least one token id is needed");
    return tokens;
  }
  if (parts != nullptr && (other->is_string() || other->is_array() || other->is_object())) {
    read_parts(array, *parts);
  } else {
    fail(field, "entry " + std::to_string(tokens.size()) + " " + seen(*other) + "; " +
                    std::string(kTokensAllowed));
  }
  return {};
}

std::vector<TokenId> FieldReader::required_prompt(bool may_be_empty,
                                                  std::vector<PromptPart>& parts) {
  if (!is_text(Field::kPrompt)) return required_tokens(Field::kPrompt, may_be_empty, &parts);
  parts.emplace_back(required_string(Field::kPrompt));
  return {};
}

void FieldReader::read_parts(simdjson::dom::array array, std::vector<PromptPart>& parts) {
  if (array.size() > kMaxPromptParts) {
    return fail(Field::kPrompt, "has " + std::to_string(array.size()) +
                                    " parts; allowed are at most " +
                                    std::to_string(kMaxPromptParts));
  }
  for (const simdjson::dom::element item : array) {
    const std::string where = "prompt[" + std::to_string(parts.size()) + "]";
    if (item.is_string()) {
      parts.emplace_back(std::string(item.get_string().value()));
    } else if (item.is_array()) {
      std::vector<TokenId> ids;
      if (const auto other = read_ids(item.get_array().value(), ids)) {
        fail(where, "entry " + std::to_string(ids.size()) + " " + seen(*other) + "; " +
                        std::string(kTokensAllowed));
      }
      parts.emplace_back(std::move(ids));
    } else if (item.is_object()) {
      parts.emplace_back(buffer_part(where, item.get_object().value()));
    } else {
      fail(where, seen(item) + "; " + std::string(kPartsAllowed));
    }
    if (failed()) return;
  }
}

std::vector<Candidate> FieldReader::candidates() {
  std::vector<Candidate> candidates;
  simdjson::dom::array array;
  if (element(Field::kCandidates)->get_array().get(array) != simdjson::SUCCESS) {
    fail(Field::kCandidates, seen(*element(Field::kCandidates)) +
                                 "; allowed is an array of candidates, each an array of token ids "
                                 "or a string");
    return candidates;
  }
  if (array.size() == 0) fail(Field::kCandidates, "is empty; at least one candidate is needed");
  for (const simdjson::dom::element item : array) {
    const std::string where = "candidates[" + std::to_string(candidates.size()) + "]";
    std::vector<TokenId> ids;
    if (item.is_string()) {
      candidates.emplace_back(std::string(item.get_string().value()));
      continue;
    }
    if (!item.is_array()) {
      fail(where, seen(item) + "; allowed are an array of token ids and a string");
    } else if (const auto other = read_ids(item.get_array().value(), ids)) {
      fail(where, "entry " + std::to_string(ids.size()) + " " + seen(*other) + "; " +
                      std::string(kTokensAllowed));
    }
    if (failed()) break;
    candidates.emplace_back(std::move(ids));
  }
  return candidates;
}

BufferPart FieldReader::buffer_part(std::string_view where, simdjson::dom::object object) {
  BufferPart part;
  simdjson::dom::element name;
  simdjson::dom::element upto;
  const bool has_name = object.at_key("buffer").get(name) == simdjson::SUCCESS;
  const bool has_upto = object.at_key("upto").get(upto) == simdjson::SUCCESS;
  // What is misspelt or given twice would change the prompt without a word.
  if (!has_name || object.size() != (has_upto ? 2U : 1U)) {
    fail(where, "is an object of other fields; " + std::string(kPartsAllowed));
    return part;
  }
  part.name = as_short_text(std::string(where) + ".buffer", field_value(name), kMaxBufferNameBytes);
  if (!has_upto || upto.is_null()) return part;
  std::uint64_t count = 0;
  if (upto.get_uint64().get(count) != simdjson::SUCCESS) {
    fail(std::string(where) + ".upto", seen(upto) + "; allowed is a whole number >= 0");
  }
  part.upto = count;
  return part;
}

std::string FieldReader::required_name(Field field) {
  if (has(field)) return as_short_text(field_name(field), value(field), kMaxBufferNameBytes);
  fail(field, "is missing; allowed is a buffer's name");
  return {};
}

std::vector<std::string> FieldReader::strings(Field field, std::size_t num_max,
                                              std::size_t bytes_max) {
  if (!has(field)) return {};
  return as_short_texts(field_name(field), *element(field), num_max, bytes_max);
}

std::string FieldReader::optional_json(Field field, element_type type) {
  const auto& value = element(field);
  if (!value) return {};
  if (value->type() == type) return simdjson::minify(*value);
  fail(field, seen(*value) + (type == element_type::ARRAY ? "; allowed is an array"
                                                          : "; allowed is an object"));
  return {};
}

std::optional<Chat> FieldReader::chat() {
  const bool has_messages = has(Field::kMessages);
  Chat chat;
  if (has_messages) chat.messages = messages();
  chat.tools = optional_json(Field::kTools, element_type::ARRAY);
  chat.template_kwargs = optional_json(Field::kChatTemplateKwargs, element_type::OBJECT);
  chat.add_generation_prompt = optional_bool(Field::kAddGenerationPrompt).value_or(true);
  return has_messages ? std::optional(std::move(chat)) : std::nullopt;
}

std::optional<ReplyReading> FieldReader::reading() {
  ReplyReading reading;
  if (has(Field::kToolChoice)) reading.tool_choice = simdjson::minify(*element(Field::kToolChoice));
  reading.parallel_tool_calls = optional_bool(Field::kParallelToolCalls).value_or(true);
  reading.thinking_token_budget = whole_within(Field::kThinkingTokenBudget, -1, 0, kMaxCount);
  const bool parsed = optional_bool(Field::kParsed).value_or(false);
  for (const Field field :
       {Field::kToolChoice, Field::kParallelToolCalls, Field::kThinkingTokenBudget}) {
    if (has(field) && !parsed) {
      fail(field, "stands without parsed; allowed is one beside \"parsed\": true");
    }
  }
  if (!parsed) return std::nullopt;
  if (!has(Field::kMessages)) {
    fail(Field::kParsed, "stands without messages; allowed is one beside them");
  }
  return reading;
}

GrammarTriggers FieldReader::triggers(simdjson::dom::element given) {
  constexpr std::string_view kWhere = "grammar.triggers";
  constexpr std::size_t kOpeningsMax = 4096;
  constexpr std::size_t kOpeningBytesMax = 256;
  constexpr std::int64_t kTokensMax = std::numeric_limits<std::int32_t>::max();
  GrammarTriggers triggers;
  simdjson::dom::object object;
  if (given.get_object().get(object) != simdjson::SUCCESS) {
    fail(kWhere, seen(given) + "; allowed is an object");
    return triggers;
  }
  for (const auto& member : object) {
    const std::string_view key = member.key;
    const simdjson::dom::element json = member.value;
    const std::string where = std::string(kWhere) + "." + shortened(key, kShownKeyBytes);
    const FieldValue value = field_value(json);
    const auto text = [&] { return as_short_text(where, value, kOpeningBytesMax); };
    const auto number = [&](int absent) {
      return static_cast<int>(as_whole(where, value, 0, kTokensMax).value_or(absent));
    };
    const auto texts = [&] { return as_short_texts(where, json, kOpeningsMax, kOpeningBytesMax); };
    if (key == "reasoning_begin") {
      triggers.reasoning_begin = text();
    } else if (key == "reasoning_end") {
      triggers.reasoning_end = text();
    } else if (key == "in_reasoning") {
      triggers.in_reasoning = as_bool(where, value).value_or(false);
    } else if (key == "reasoning_tokens_max") {
      triggers.reasoning_tokens_max = number(-1);
    } else if (key == "min_tokens") {
      triggers.min_tokens = number(0);
    } else if (key == "openings") {
      triggers.openings = texts();
    } else if (key == "first_openings") {
      triggers.first_openings = texts();
    } else if (key == "dropped") {
      triggers.dropped = texts();
    } else if (key == "repeats") {
      triggers.repeats = as_bool(where, value).value_or(false);
    } else {
      fail(where, "is unknown");
    }
  }
  const bool reasons = !triggers.reasoning_begin.empty() || triggers.in_reasoning;
  if (triggers.reasoning_end.empty() == reasons) {
    fail(kWhere, "reasoning_end belongs to reasoning_begin or in_reasoning, and these to it");
  }
  return triggers;
}

std::optional<Grammar> FieldReader::grammar() {
  constexpr std::string_view kAllowed =
      "; allowed is {\"type\": TYPE, \"value\": VALUE, \"triggers\": {...}}, the last one optional";
  const auto& given = element(Field::kGrammar);
  if (!given) return std::nullopt;
  simdjson::dom::element type;
  simdjson::dom::element value;
  std::string_view name;
  if (!given->is_object()) {
    fail(Field::kGrammar, seen(*given) + std::string(kAllowed));
    return std::nullopt;
  }
  const bool has_value = given->at_key("value").get(value) == simdjson::SUCCESS;
  const bool has_type = given->at_key("type").get(type) == simdjson::SUCCESS;
  simdjson::dom::element triggers;
  const bool has_triggers = given->at_key("triggers").get(triggers) == simdjson::SUCCESS;
  // What is misspelt or given twice would change what is allowed without a word.
  if (!has_type || type.get_string().get(name) != simdjson::SUCCESS ||
      given->get_object().value().size() != 1U + (has_value ? 1U : 0U) + (has_triggers ? 1U : 0U)) {
    fail(Field::kGrammar, "is an object of other fields" + std::string(kAllowed));
    return std::nullopt;
  }
  if (name == "free" && !has_value && has_triggers) {
    Grammar free{Grammar::Kind::kFree, {}, this->triggers(triggers)};
    if (!free.triggers->openings.empty() || !free.triggers->first_openings.empty()) {
      fail("grammar.triggers", "has openings, for which the type has to be another than \"free\"");
    }
    return free;
  }
  Result<Grammar> grammar = make_grammar(name, has_value ? grammar_value(value) : GrammarValue{});
  if (!grammar) {
    fail(std::string(field_name(Field::kGrammar)) + grammar.error().message);
    return std::nullopt;
  }
  if (has_triggers) grammar->triggers = this->triggers(triggers);
  return std::move(*grammar);
}

std::string FieldReader::text_or_json(Field field) {
  if (!has(field)) return {};
  if (is_text(field)) return std::string(element(field)->get_string().value());
  return simdjson::minify(*element(field));
}

DecideMessage FieldReader::decision(StreamId stream_id, std::string model) {
  DecideMessage message{.stream_id = stream_id, .model = std::move(model)};
  const auto& state = element(Field::kState);
  if (has(Field::kMessages)) {
    message.messages = messages();
    if (state) fail(Field::kState, "stands beside messages; one is allowed");
  } else if (state && (state->is_string() || state->is_array() || state->is_object())) {
    message.state = simdjson::minify(*state);
  } else {
    fail(Field::kState, (state ? seen(*state) : std::string("is missing")) +
                            "; allowed are a text, an object and a list, or messages instead");
  }
  message.questions = optional_json(Field::kQuestions, element_type::OBJECT);
  if (!has(Field::kQuestions)) {
    fail(Field::kQuestions, "is missing; needed is an object, questions by their names");
  }
  if (has(Field::kScoring)) message.scoring = required_string(Field::kScoring);
  message.diagnoses = optional_bool(Field::kDiagnostics).value_or(false);
  if (has(Field::kInstructions)) message.instructions = required_string(Field::kInstructions);
  message.template_kwargs = optional_json(Field::kChatTemplateKwargs, element_type::OBJECT);
  return message;
}

std::string FieldReader::messages() {
  constexpr std::string_view kAllowed =
      "; allowed is an array of messages, {\"role\": \"user\", \"content\": TEXT}";
  simdjson::dom::array messages;
  if (element(Field::kMessages)->get_array().get(messages) != simdjson::SUCCESS) {
    fail(Field::kMessages, seen(*element(Field::kMessages)) + std::string(kAllowed));
    return {};
  }
  if (messages.size() == 0) fail(Field::kMessages, "is empty" + std::string(kAllowed));
  std::size_t index = 0;
  for (const simdjson::dom::element item : messages) {
    std::string_view role;
    if (item["role"].get_string().get(role) == simdjson::SUCCESS) {
      ++index;
      continue;
    }
    fail("messages[" + std::to_string(index) + "]",
         (item.is_object() ? "has no role" : seen(item)) + std::string(kAllowed));
    break;
  }
  return simdjson::minify(*element(Field::kMessages));
}

}  // namespace lmtp::protocol
