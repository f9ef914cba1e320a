#include "guest_json.h"

#include <limits>

namespace lmtp::aici {

namespace {

using Element = simdjson::dom::element;

constexpr std::size_t kResultBytesMax = std::size_t{1} << 20;

template <typename T>
void append_list(std::string_view key, const std::vector<T>& values, std::string& out) {
  out += key;
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(values[i]);
  }
  out += ']';
}

Error bad_field(std::string_view key, std::string_view allowed) {
  return {ErrorCode::kInvalid, "its result: " + std::string(key) +
                                   " is missing or of a wrong type; allowed is " +
                                   std::string(allowed)};
}

// The value of a key, which is missing where it is null.
std::optional<Element> find(const Element& object, std::string_view key) {
  Element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return {};
  return value;
}

// A whole number from 0 on.
std::optional<int> int_of(const Element& value) {
  std::int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS) return {};
  if (number < 0 || number > std::numeric_limits<int>::max()) return {};
  return static_cast<int>(number);
}

std::optional<int> find_int(const Element& object, std::string_view key) {
  const std::optional<Element> value = find(object, key);
  return value ? int_of(*value) : std::nullopt;
}

std::optional<bool> find_bool(const Element& object, std::string_view key) {
  const std::optional<Element> value = find(object, key);
  bool is_true = false;
  if (!value || value->get(is_true) != simdjson::SUCCESS) return {};
  return is_true;
}

std::optional<simdjson::dom::array> find_list(const Element& object, std::string_view key) {
  const std::optional<Element> value = find(object, key);
  simdjson::dom::array list;
  if (!value || value->get(list) != simdjson::SUCCESS) return {};
  return list;
}

Result<std::vector<TokenId>> find_tokens(const Element& object, std::string_view key) {
  const std::optional<simdjson::dom::array> list = find_list(object, key);
  if (!list) return bad_field(key, "a list of token ids");
  std::vector<TokenId> tokens;
  for (const Element each : *list) {
    const std::optional<int> token = int_of(each);
    if (!token) return bad_field(key, "a list of token ids");
    tokens.push_back(*token);
  }
  return tokens;
}

Result<GuestSplice> parse_splice(const Element& object, bool has_when_sampled) {
  GuestSplice splice;
  const std::optional<int> backtrack = find_int(object, "backtrack");
  if (!backtrack) return bad_field("backtrack", "a number of tokens");
  splice.backtrack = *backtrack;
  Result<std::vector<TokenId>> tokens = find_tokens(object, "ff_tokens");
  if (!tokens) return tokens.error();
  splice.ff_tokens = std::move(*tokens);
  if (!has_when_sampled) return splice;
  tokens = find_tokens(object, "when_sampled");
  if (!tokens) return tokens.error();
  splice.when_sampled = std::move(*tokens);
  return splice;
}

Result<GuestBranch> parse_branch(const Element& object) {
  GuestBranch branch;
  if (const std::optional<Element> mask = find(object, "sample_mask"); mask) {
    branch.mask = int_of(*mask);
    if (!branch.mask) return bad_field("sample_mask", "what aici_host_return_logit_bias gave");
  }
  if (const std::optional<Element> temperature = find(object, "temperature"); temperature) {
    double value = -1;
    if (temperature->get(value) != simdjson::SUCCESS || value < 0) {
      return bad_field("temperature", "a number of at least 0");
    }
    branch.temperature = static_cast<float>(value);
  }
  const std::optional<simdjson::dom::array> splices = find_list(object, "splices");
  if (!splices) return bad_field("splices", "a list");
  for (const Element each : *splices) {
    Result<GuestSplice> splice = parse_splice(each, true);
    if (!splice) return splice.error();
    branch.splices.push_back(std::move(*splice));
  }
  return branch;
}

}  // namespace

std::string prompt_arg(const std::vector<TokenId>& prompt) {
  std::string text;
  append_list(R"({"prompt":)", prompt, text);
  return text + "}";
}

std::string post_arg(int num_dropped, const std::vector<TokenId>& tokens) {
  std::string text;
  append_list(R"({"tokens":)", tokens, text);
  return text + R"(,"backtrack":)" + std::to_string(num_dropped) + "}";
}

std::string mid_arg_a(const std::vector<Sequence>& fork_group) {
  std::string text;
  append_list(R"({"fork_group":)", fork_group, text);
  return text + "}";
}

std::string mid_arg_c(const Report& report, const std::vector<Sequence>& fork_group) {
  std::string text = R"({"backtrack":)" + std::to_string(report.num_dropped);
  append_list(R"(,"tokens":)", report.appended, text);
  text += R"(,"sampled":)";
  text += report.sampled ? std::to_string(*report.sampled) : "null";
  append_list(R"(,"fork_group":)", fork_group, text);
  return text + "}";
}

Result<Element> ResultReader::parse(std::string_view text) {
  if (text.size() > kResultBytesMax) {
    return Error{ErrorCode::kInvalid, "its result has " + std::to_string(text.size()) +
                                          " bytes; allowed are " + std::to_string(kResultBytesMax)};
  }
  Element root;
  const simdjson::error_code error = parser_.parse(text.data(), text.size()).get(root);
  if (error == simdjson::SUCCESS) return root;
  return Error{ErrorCode::kInvalid,
               std::string("its result is not JSON: ") + simdjson::error_message(error)};
}

Result<std::optional<std::vector<TokenId>>> ResultReader::prompt(std::string_view text) {
  using Prompt = std::optional<std::vector<TokenId>>;
  if (text.empty()) return Prompt();
  const Result<Element> object = parse(text);
  if (!object) return object.error();
  if (!find(*object, "prompt")) return Prompt();
  Result<std::vector<TokenId>> tokens = find_tokens(*object, "prompt");
  if (!tokens) return tokens.error();
  return Prompt(std::move(*tokens));
}

Result<PreResult> ResultReader::pre(std::string_view text) {
  const Result<Element> object = parse(text);
  if (!object) return object.error();
  const std::optional<int> num_forks = find_int(*object, "num_forks");
  if (!num_forks) return bad_field("num_forks", "a number of at least 0");
  const std::optional<bool> suspends = find_bool(*object, "suspend");
  if (!suspends) return bad_field("suspend", "true or false");
  Result<std::vector<TokenId>> tokens = find_tokens(*object, "ff_tokens");
  if (!tokens) return tokens.error();
  return PreResult{*num_forks, *suspends, std::move(*tokens)};
}

Result<bool> ResultReader::post(std::string_view text) {
  const Result<Element> object = parse(text);
  if (!object) return object.error();
  const std::optional<bool> stops = find_bool(*object, "stop");
  if (!stops) return bad_field("stop", "true or false");
  return *stops;
}

Result<MidResultA> ResultReader::mid_a(std::string_view text) {
  const Result<Element> value = parse(text);
  if (!value) return value.error();
  MidResultA result;
  std::string_view word;
  if (find(*value, "SampleWithBias")) return result;
  if (find(*value, "Stop") || (value->get(word) == simdjson::SUCCESS && word == "Stop")) {
    result.kind = MidResultA::Kind::kStop;
    return result;
  }
  const std::optional<Element> object = find(*value, "Splice");
  if (!object) {
    return bad_field("it",
                     R"("Stop", {"SampleWithBias":{}} and {"Splice":{"backtrack","ff_tokens"}})");
  }
  Result<GuestSplice> splice = parse_splice(*object, false);
  if (!splice) return splice.error();
  result.kind = MidResultA::Kind::kSplice;
  result.splice = std::move(*splice);
  return result;
}

Result<std::vector<GuestBranch>> ResultReader::mid_c(std::string_view text) {
  const Result<Element> object = parse(text);
  if (!object) return object.error();
  const std::optional<simdjson::dom::array> list = find_list(*object, "branches");
  if (!list) return bad_field("branches", "a list");
  std::vector<GuestBranch> branches;
  for (const Element each : *list) {
    Result<GuestBranch> branch = parse_branch(each);
    if (!branch) return branch.error();
    branches.push_back(std::move(*branch));
  }
  return branches;
}

}  // namespace lmtp::aici
