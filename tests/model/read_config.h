// A config.json as a text, read from a folder that has nothing else in it.
#pragma once

#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/model/model_config.h"
#include "temp_folder.h"

namespace lmtp {

// `generation`: generation_config.json; empty: there is none.
inline Result<model::ModelConfig> read(const std::string& config,
                                       const model::ConfigOptions& options = {},
                                       const std::string& generation = "") {
  const testing::TempFolder folder;
  folder.write("config.json", config);
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return model::read_model_config(folder.path(), options);
}

inline std::vector<int> windows_of(const model::ModelConfig& config) {
  std::vector<int> windows;
  for (const model::LayerSpec& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

inline std::string error_of(const std::string& config, const std::string& generation = "") {
  const auto result = read(config, {}, generation);
  return result.ok() ? "" : result.error().message;
}

}  // namespace lmtp
