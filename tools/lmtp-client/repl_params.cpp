#include "repl_params.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

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

// {50256:-100,11:5}, the keys quoted or not; {} or none takes it away.
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

template <typename T>
std::string number_text(T value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return {text, end};
}

std::string bias_text(const SamplingParams& params) {
  if (!params.logit_bias) return "none";
  std::string text = "{";
  for (std::size_t i = 0; i < params.logit_bias->ids.size(); ++i) {
    if (i > 0) text += ',';
    text +=
        std::to_string(params.logit_bias->ids[i]) + ":" + number_text(params.logit_bias->values[i]);
  }
  return text + "}";
}

struct Param {
  std::string_view key;
  Result<void> (*set)(ReplParams&, std::string_view key, std::string_view value);
  std::string (*text)(const ReplParams&);
};

template <auto kMember>
Param number_param(std::string_view key) {
  return {key,
          [](ReplParams& p, std::string_view name, std::string_view value) {
            return set_number(p.sampling.*kMember, name, value);
          },
          [](const ReplParams& p) { return number_text(p.sampling.*kMember); }};
}

const std::array kParams = {
    number_param<&SamplingParams::temperature>("temperature"),
    number_param<&SamplingParams::max_tokens>("max_tokens"),
    number_param<&SamplingParams::top_p>("top_p"),
    number_param<&SamplingParams::top_k>("top_k"),
    number_param<&SamplingParams::top_logprobs>("top_logprobs"),
    number_param<&SamplingParams::repetition_penalty>("repetition_penalty"),
    number_param<&SamplingParams::presence_penalty>("presence_penalty"),
    number_param<&SamplingParams::frequency_penalty>("frequency_penalty"),
    Param{"seed",
          [](ReplParams& p, std::string_view, std::string_view value) {
            return set_seed(p.sampling, value);
          },
          [](const ReplParams& p) {
            return p.sampling.has_seed ? std::to_string(p.sampling.seed) : std::string("none");
          }},
    Param{"logit_bias",
          [](ReplParams& p, std::string_view, std::string_view value) {
            return set_logit_bias(p.sampling, value);
          },
          [](const ReplParams& p) { return bias_text(p.sampling); }},
    Param{"bos",
          [](ReplParams& p, std::string_view key, std::string_view value) {
            bool bos = false;
            if (auto set = set_bool(bos, key, value); !set) return set;
            p.bos = bos;
            return Result<void>();
          },
          [](const ReplParams& p) {
            return std::string(!p.bos ? "as the tokenizer says" : *p.bos ? "true" : "false");
          }},
};

const Param* find_param(std::string_view key) {
  const auto* found = std::find_if(kParams.begin(), kParams.end(),
                                   [key](const Param& param) { return param.key == key; });
  return found == kParams.end() ? nullptr : found;
}

// Levenshtein's distance, up to what a slip of the finger makes.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// The known key that `key` was probably meant to be.
std::optional<std::string_view> meant_key(std::string_view key) {
  constexpr std::size_t kShortestKey = 4;  // shorter ones are near to everything
  for (const Param& param : kParams) {
    if (std::min(key.size(), param.key.size()) >= kShortestKey && distance(key, param.key) <= 2) {
      return param.key;
    }
  }
  return std::nullopt;
}

// "key=value" as its two parts; an empty key where the word is not of that form.
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
  const Param* param = find_param(key);
  if (param == nullptr) return unknown_param(key);
  return param->set(params, key, value);
}

std::string describe_params(const ReplParams& params) {
  std::string text;
  for (const Param& param : kParams) {
    text += std::string(param.key) + "=" + param.text(params) + "\n";
  }
  return text;
}

std::string param_names() {
  std::string names;
  for (const Param& param : kParams) {
    if (!names.empty()) names += ", ";
    names += param.key;
  }
  return names;
}

bool is_param(std::string_view word) { return find_param(split_word(word).first) != nullptr; }

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
    if (find_param(word.first) == nullptr) {
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
