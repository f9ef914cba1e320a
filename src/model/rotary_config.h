// Reads the rotary embedding of a config.json.
#pragma once

#include "config_reader.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// The keys and defaults of a family's config.json.
struct RotaryKeys {
  const char* theta = "rope_theta";  // the base of the periods
  const char* fraction = nullptr;    // the part of a head that is rotated; nullptr: all of it
  double default_fraction = 1.0;
  // longrope: the context of the short factors if no key gives it; in such a family "su" and "yarn"
  // are old names of longrope. 0: max_position_embeddings, and no old names.
  int default_short_context = 0;
};

// Fills config.rotary, and sets config.context_length to the context that results. Reads rope_theta
// and rope_scaling, or rope_parameters, which transformers 5 writes instead, also by layer type if
// all types have the same. An unknown setting is refused unless forced.
// Kinds: default, linear, llama3, yarn; dynamic, which is the default kind up to the context the
// model was trained for; longrope, with its long factors where options().context_length is beyond
// its first context, else with its short ones, and so with the shorter context.
void read_rotary(ConfigReader& json, ModelConfig& config, const RotaryKeys& keys = {});

}  // namespace lmtp::model
