// Reads what config.json says of quantised weights.
#pragma once

#include "config_reader.h"
#include "lmtp/model/quantization.h"

namespace lmtp::model {

// Refuses, or with force notes, what is not served; `model_type`: whose weights they are.
Quantization read_quantization(ConfigReader& json, const std::string& model_type);

}  // namespace lmtp::model
