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

// Names are those of layers in the model's checkpoint, without .weight. Rules are PEFT's.
class LoraConfig {
 public:
  // The error names the file, the key, and what is not supported.
  static Result<LoraConfig> read(const std::string& path);

  bool targets(const std::string& name) const;
  // The entries of target_modules that name none of these; none where it is an expression.
  std::vector<std::string> unknown_targets(const std::vector<std::string>& names) const;
  int rank(const std::string& name) const;
  // Of what it adds.
  float scale(const std::string& name) const;
  // base_model_name_or_path; may be empty.
  const std::string& base() const { return base_; }

 private:
  // A list of names or endings of names, or an expression.
  struct Names {
    bool is_all = false;
    std::vector<std::string> endings;
    std::optional<NamePattern> pattern;

    bool has(const std::string& name) const;
  };
  using Numbers = std::vector<std::pair<NamePattern, double>>;

  friend class LoraConfigReading;
  bool has_layer(const std::string& name) const;

  Names targets_;
  Names excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  // layers_to_transform; none: all
  std::vector<std::string> layer_words_;             // before a layer's number; empty: any
  int rank_ = 8;
  double alpha_ = 8.0;
  bool is_rank_stabilized_ = false;
  Numbers ranks_;   // rank_pattern: the first that matches
  Numbers alphas_;  // alpha_pattern
  std::string base_;
};

}  // namespace lmtp::model
