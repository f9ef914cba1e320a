// adapter_config.json of a LoRA adapter: which layers it adds to, and by how much.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/result.h"
#include "name_pattern.h"

namespace lmtp::model {

// What an adapter adds to a layer.
struct LoraTarget {
  int rank = 0;
  float scale = 0.0F;  // finite
};

// Names are those of layers in the model's checkpoint, without .weight. Rules are PEFT's (of its
// version 0.21: tuners_utils.py check_target_module_exists, utils/other.py get_pattern_key).
// One thread.
class LoraConfig {
 public:
  // The error names the file, the key, and what is not supported.
  static Result<LoraConfig> read(const std::string& path);

  // None: it adds nothing to the layer of this name. The error names the file and the key.
  Result<std::optional<LoraTarget>> find(const std::string& name);
  // The entries of target_modules that name none of these; none where it is an expression.
  std::vector<std::string> unknown_targets(const std::vector<std::string>& names) const;
  // base_model_name_or_path; may be empty.
  const std::string& base() const { return base_; }

 private:
  // A list of names or endings of names, or an expression.
  struct Names {
    bool is_all = false;
    std::vector<std::string> endings;
    std::optional<NamePattern> pattern;
  };
  using Numbers = std::vector<std::pair<NamePattern, double>>;

  friend class LoraConfigReading;
  Result<bool> has(const Names& names, const char* key, const std::string& name);
  Result<bool> has_layer(const std::string& name);
  Result<double> number_of(const Numbers& numbers, const char* key, const std::string& name,
                           double otherwise);
  Error broken(const char* key, const std::string& what) const;

  std::string path_;
  MatchBudget budget_;
  Names targets_;
  Names excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  // layers_to_transform; none: all
  std::vector<NamePattern> layer_patterns_;          // with a group "idx"
  int rank_ = 8;
  double alpha_ = 8.0;
  bool is_rank_stabilized_ = false;
  Numbers ranks_;   // rank_pattern: the first that matches
  Numbers alphas_;  // alpha_pattern
  std::string base_;
};

}  // namespace lmtp::model
