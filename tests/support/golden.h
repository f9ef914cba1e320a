// Goldens: results of `transformers` for a model, as written by tests/goldens/make_goldens.py.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::testing {

struct GoldenStep {
  TokenId token = 0;
  float logprob = 0.0F;
};

struct Golden {
  std::string name;
  bool is_score = false;
  std::vector<TokenId> prompt;
  std::vector<GoldenStep> steps;  // a Score's first step after an empty prompt is not computed
  std::shared_ptr<LogitBias> logit_bias;  // null: none
};

inline simdjson::dom::array golden_array(const simdjson::dom::element& element, const char* key) {
  simdjson::dom::array array;
  if (element[key].get(array) != simdjson::SUCCESS) {
    throw std::runtime_error(std::string(key) + " is missing");
  }
  return array;
}

inline std::vector<TokenId> golden_ids(simdjson::dom::array array) {
  std::vector<TokenId> ids;
  for (const simdjson::dom::element element : array) {
    ids.push_back(static_cast<TokenId>(element.get_int64().value()));
  }
  return ids;
}

inline std::shared_ptr<LogitBias> golden_bias(simdjson::dom::object object) {
  std::vector<std::pair<TokenId, float>> entries;
  for (const auto field : object) {
    entries.emplace_back(std::stoi(std::string(field.key)),
                         static_cast<float>(field.value.get_double().value()));
  }
  std::sort(entries.begin(), entries.end());
  auto bias = std::make_shared<LogitBias>();
  for (const auto& [id, value] : entries) {
    bias->ids.push_back(id);
    bias->values.push_back(value);
  }
  return bias;
}

// Throws if the file is malformed: the test then fails with the reason.
inline std::vector<Golden> read_goldens(const std::string& path) {
  simdjson::dom::parser parser;
  std::vector<Golden> goldens;
  simdjson::dom::array entries;
  if (parser.load(path).get(entries) != simdjson::SUCCESS) {
    throw std::runtime_error(path + " is not a JSON list");
  }
  for (const simdjson::dom::element entry : entries) {
    Golden golden;
    golden.name = std::string(entry["name"].get_string().value());
    golden.is_score = entry["kind"].get_string().value() == "score";
    golden.prompt = golden_ids(golden_array(entry, "prompt_ids"));
    if (golden.is_score) {
      const auto ids = golden_ids(golden_array(entry, "scored_ids"));
      std::size_t i = 0;
      const auto logprobs = golden_array(entry, "logprobs");
      for (const simdjson::dom::element value : logprobs) {
        golden.steps.push_back({ids.at(i++), static_cast<float>(value.get_double().value())});
      }
    } else {
      const auto steps = golden_array(entry, "steps");
      for (const simdjson::dom::element step : steps) {
        golden.steps.push_back({static_cast<TokenId>(step["token"].get_int64().value()),
                                static_cast<float>(step["logprob"].get_double().value())});
      }
    }
    simdjson::dom::object bias;
    if (entry["logit_bias"].get(bias) == simdjson::SUCCESS) golden.logit_bias = golden_bias(bias);
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

}  // namespace lmtp::testing
