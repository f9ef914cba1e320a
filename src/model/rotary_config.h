// The rotary embedding that a config.json asks for.
#pragma once

#include "config_reader.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// Where a family's config.json has what others have elsewhere.
struct RotaryKeys {
  const char* theta = "rope_theta";  // the base of the periods
  const char* share = nullptr;       // the part of a head that turns; nullptr: all of it
  double usual_share = 1.0;
  // Of longrope: the context of its short factors, where no key says. Such a family's "su" and
  // "yarn" are old names of longrope. 0: max_position_embeddings, and no old names.
  int usual_short_context = 0;
};

// Fills config.rotary, and sets config.context_length to what holds with it. Reads rope_theta and
// rope_scaling, or rope_parameters, which transformers 5 writes in their place, also by layer type
// where all types have the same. A setting that is not known is doubted.
// Kinds: default, linear, llama3, yarn; dynamic, which is the default kind up to the context the
// model was trained for; longrope, with its long factors where options().context_length is beyond
// its first context, else with its short ones, and so with the shorter context.
void read_rotary(ConfigReader& json, ModelConfig& config, const RotaryKeys& keys = {});

}  // namespace lmtp::model
