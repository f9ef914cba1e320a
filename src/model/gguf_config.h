// The config of a GGUF file, out of its metadata.
#pragma once

#include <string>

#include "config_reader.h"
#include "lmtp/base/result.h"

namespace lmtp::model {

struct GgufConfig {
  ConfigReader json;
  Quantization quantization;  // of which codes the file's matrices are
};

// What transformers' config.json would hold, as far as the file says. The error names the file and
// what is wrong with it: a family or a type of tensors that is not supported, one file of several.
// Keys that are not known and may change what a model computes are refused unless forced.
Result<GgufConfig> read_gguf_config(const std::string& path, const ConfigOptions& options);

}  // namespace lmtp::model
