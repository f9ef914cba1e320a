#include "repl_params.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "common/edit_distance.h"
#include "lmtp/base/json.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::tools {
namespace {

// A key's value as a number of the parameter's own type.
template <typename T>
Result<void> set_number(T& target, std::string_view key, std::string_view value) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool good = error == std::errc() && end == value.data() + value.size();
  if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(number);
  if (!good) {
    return Error{ErrorCode::kInvalid,
                 std::string(key) + ": '" + std::string(value) + "' is not a " +
                     (std::is_floating_point_v<T> ? "number" : "whole number in range")};
  }
  target = number;
  return {};
}

Result<void> set_bool(bool& target, std::string_view key, std::string_view value) {
  const bool yes = value == "true" || value == "True" || value == "1";
  if (!yes && value != "false" && value != "False" && value != "0") {
    return Error{ErrorCode::kInvalid,
                 std::string(key) + ": '" + std::string(value) + "' is neither true nor false"};
  }
  target = yes;
  return {};
}

Result<void> set_seed(SamplingParams& params, std::string_view value) {
  if (value == "none" || value == "None") {
    params.has_seed = false;
    return {};
  }
  auto set = set_number(params.seed, "seed", value);
  if (set) params.has_seed = true;
  return set;
}

// {50256:-100,11:5}, with or without quotes around keys; {} or none removes it.
Result<void> set_logit_bias(SamplingParams& params, std::string_view value) {
  const Error wrong{ErrorCode::kInvalid,
                    "logit_bias: write {TOKEN:VALUE,...} without spaces, as {50256:-100,11:2.5}"};
  if (value == "none" || value == "None" || value == "{}") {
    params.logit_bias = nullptr;
    return {};
  }
  if (value.size() < 2 || value.front() != '{' || value.back() != '}') return wrong;
  value = value.substr(1, value.size() - 2);
  std::vector<std::pair<TokenId, float>> entries;
  while (!value.empty()) {
    const std::size_t end = std::min(value.find(','), value.size());
    const std::string_view entry = value.substr(0, end);
    value.remove_prefix(std::min(end + 1, value.size()));
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return wrong;
    std::string_view key = entry.substr(0, colon);
    if (key.size() > 2 && (key.front() == '"' || key.front() == '\'') &&
        key.back() == key.front()) {
      key = key.substr(1, key.size() - 2);
    }
    TokenId id = 0;
    float bias = 0.0F;
    if (!set_number(id, "", key) || id < 0 || !set_number(bias, "", entry.substr(colon + 1))) {
      return wrong;
    }
    entries.emplace_back(id, bias);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  auto bias = std::make_shared<LogitBias>();
  for (const auto& [id, number] : entries) {
    if (!bias->ids.empty() && bias->ids.back() == id) {
      bias->values.back() = number;
      continue;
    }
    bias->ids.push_back(id);
    bias->values.push_back(number);
  }
  params.logit_bias = std::move(bias);
  return {};
}

Result<void> set(SamplingParams& params, const SamplingParam& param, std::string_view value) {
  const auto set_member = [&]<typename T>(T SamplingParams::*member) {
    if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
      return set_logit_bias(params, value);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return set_seed(params, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      return set_bool(params.*member, param.name, value);
    } else {
      return set_number(params.*member, param.name, value);
    }
  };
  return std::visit(set_member, param.member);
}

// END, "\n", ["\n", "END"], or none.
Result<void> set_stop(std::vector<std::string>& stop, std::string_view value) {
  const Error wrong{ErrorCode::kInvalid,
                    "stop: write END, \"\\n\" or [\"\\n\",\"END\"]; none takes them away"};
  if (value == "none" || value == "None") value = "[]";
  if (!value.starts_with('[') && !value.starts_with('"')) {
    stop = {std::string(value)};
    return {};
  }
  auto parsed = parse_json(value, "stop");
  if (!parsed) return wrong;
  if (parsed->is_string()) *parsed = Json::array({*parsed});
  const auto is_string = [](const Json& item) { return item.is_string(); };
  if (!parsed->is_array() || !std::ranges::all_of(*parsed, is_string)) return wrong;
  stop = parsed->get<std::vector<std::string>>();
  return {};
}

// {"type":"regex","value":"[0-9]+"} without spaces, or none.
Result<void> set_grammar(std::optional<Grammar>& grammar, std::string_view value) {
  if (value == "none" || value == "None") {
    grammar.reset();
    return {};
  }
  const Error wrong{
      ErrorCode::kInvalid,
      "grammar: write {\"type\":\"regex\",\"value\":\"[0-9]+\"} without spaces (\\u0020 "
      "is one); none takes it away"};
  const auto parsed = parse_ordered_json(value, "grammar");
  if (!parsed || !parsed->is_object() || !parsed->contains("type")) return wrong;
  GrammarValue given;
  if (const auto found = parsed->find("value"); found != parsed->end()) {
    using Kind = GrammarValue::Kind;
    given = {found->is_object() ? Kind::kObject : Kind::kList, found->dump()};
    if (found->is_string()) given = {Kind::kText, found->get<std::string>()};
  }
  const auto* type = (*parsed)["type"].get_ptr<const std::string*>();
  auto made = make_grammar(type != nullptr ? *type : "", std::move(given));
  if (!made) return Error{ErrorCode::kInvalid, "grammar" + made.error().message};
  grammar = std::move(*made);
  return {};
}

std::string grammar_text(const std::optional<Grammar>& grammar) {
  if (!grammar) return "none";
  std::string text = R"({"type":")" + std::string(grammar_type(grammar->kind)) + "\"";
  if (grammar->kind == Grammar::Kind::kChoice) {
    text += ",\"value\":" + grammar->text;
  } else if (grammar->kind != Grammar::Kind::kJson) {
    append_json_string(grammar->text, text += ",\"value\":");
  }
  return text + "}";
}

// 65, or "65 66".
Result<void> set_controller_arg(std::string& arg, std::string_view value) {
  if (!value.starts_with('"')) {
    arg = value;
    return {};
  }
  const auto parsed = parse_json(value, "controller_arg");
  if (!parsed || !parsed->is_string()) {
    return Error{ErrorCode::kInvalid,
                 "controller_arg: write 65 or \"65\\u002066\" without spaces; \"\" takes it away"};
  }
  arg = parsed->get<std::string>();
  return {};
}

std::string stop_text(const std::vector<std::string>& stop) {
  return stop.empty() ? "none" : json_text(OrderedJson(stop));
}

constexpr std::string_view kBosName = "bos";
constexpr std::string_view kStopName = "stop";
constexpr std::string_view kGrammarName = "grammar";
constexpr std::string_view kControllerName = "controller";
constexpr std::string_view kControllerArgName = "controller_arg";

constexpr std::array kNames = [] {
  constexpr std::array kOthers = {kBosName, kStopName, kGrammarName, kControllerName,
                                  kControllerArgName};
  std::array<std::string_view, kSamplingTable.size() + kOthers.size()> names;
  auto at = std::ranges::transform(kSamplingTable, names.begin(), &SamplingParam::name).out;
  std::ranges::copy(kOthers, at);
  return names;
}();

bool is_name(std::string_view word) { return std::ranges::find(kNames, word) != kNames.end(); }

// The known key of which `key` is probably a misspelling.
std::optional<std::string_view> meant_key(std::string_view key) {
  constexpr std::size_t kShortestKey = 4;  // shorter ones resemble too many words
  for (const std::string_view name : kNames) {
    if (name == kStopName) continue;  // drop=1 may end a prompt
    if (std::min(key.size(), name.size()) < kShortestKey) continue;
    if (edit_distance(key, name) <= 2) return name;
  }
  return std::nullopt;
}

// The parts of "key=value"; an empty key if the word is not of that form.
std::pair<std::string_view, std::string_view> split_word(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals + 1 == word.size()) return {};
  const std::string_view key = word.substr(0, equals);
  const bool is_name = std::all_of(key.begin(), key.end(),
                                   [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  if (!is_name) return {};
  return {key, word.substr(equals + 1)};
}

Error unknown_param(std::string_view key) {
  const auto meant = meant_key(key);
  return Error{ErrorCode::kInvalid, "'" + std::string(key) + "' is not a parameter; " +
                                        (meant ? "did you mean " + std::string(*meant) + "?"
                                               : "known are " + param_names())};
}

}  // namespace

Result<void> set_param(ReplParams& params, std::string_view key, std::string_view value) {
  if (key == kBosName) {
    bool bos = false;
    if (auto done = set_bool(bos, key, value); !done) return done;
    params.bos = bos;
    return {};
  }
  if (key == kStopName) return set_stop(params.stop, value);
  if (key == kGrammarName) return set_grammar(params.grammar, value);
  if (key == kControllerArgName) return set_controller_arg(params.controller_arg, value);
  if (key == kControllerName) {
    params.controller = value == "none" || value == "None" ? std::string() : std::string(value);
    return {};
  }
  const auto* const param = std::ranges::find(kSamplingTable, key, &SamplingParam::name);
  if (param == kSamplingTable.end()) return unknown_param(key);
  return set(params.sampling, *param, value);
}

std::string describe_params(const ReplParams& params) {
  std::string text;
  for (const SamplingParam& param : kSamplingTable) {
    text.append(param.name).append("=").append(param_text(params.sampling, param)).append("\n");
  }
  const char* const bos = !params.bos ? "as the tokenizer says" : *params.bos ? "true" : "false";
  text.append(kBosName).append("=").append(bos).append("\n");
  text.append(kStopName).append("=").append(stop_text(params.stop)).append("\n");
  text.append(kGrammarName).append("=").append(grammar_text(params.grammar)).append("\n");
  text.append(kControllerName).append("=");
  text.append(params.controller.empty() ? "none" : params.controller).append("\n");
  append_json_string(params.controller_arg, text.append(kControllerArgName).append("="));
  return text.append("\n");
}

std::string param_names() {
  std::string names;
  for (const std::string_view name : kNames) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

bool is_param(std::string_view word) { return is_name(split_word(word).first); }

Result<PromptLine> parse_prompt_line(std::string_view line, const ReplParams& defaults) {
  std::vector<std::pair<std::string_view, std::string_view>> words;  // the last first
  std::string_view rest = line;
  for (;;) {
    std::string_view trimmed = rest;
    while (!trimmed.empty() && trimmed.back() == ' ') trimmed.remove_suffix(1);
    const std::size_t space = trimmed.rfind(' ');
    const std::size_t begin = space == std::string_view::npos ? 0 : space + 1;
    const auto word = split_word(trimmed.substr(begin));
    if (word.first.empty()) break;
    if (!is_name(word.first)) {
      if (meant_key(word.first)) return unknown_param(word.first);
      break;
    }
    words.push_back(word);
    rest = trimmed.substr(0, begin);
  }
  if (!words.empty()) {
    while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
  }
  PromptLine parsed{std::string(rest), defaults};
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (auto set = set_param(parsed.params, word->first, word->second); !set) return set.error();
  }
  return parsed;
}

}  // namespace lmtp::tools
