// The rotary embedding that a config.json asks for.
#pragma once

#include "config_reader.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// Fills config.rotary for heads of which `rotary_dim` dimensions turn; reads rope_theta and
// rope_scaling, or rope_parameters, which newer versions of transformers write in their place.
// Kinds: default, linear, llama3; dynamic, which is the default kind up to the context the model
// was trained for; longrope (Phi 3) with its short factors, and so with the shorter context.
// `theta_key` and `theta` are the key and the default of the period's base.
void read_rotary(ConfigReader& json, ModelConfig& config, int rotary_dim,
                 const char* theta_key = "rope_theta", double theta = 10000.0);

}  // namespace lmtp::model
