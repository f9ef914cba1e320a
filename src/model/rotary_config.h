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
  double default_theta = 10000.0;
  // longrope: the context of the short factors if no key gives it; in such a family "su" and "yarn"
  // are old names of longrope. 0: max_position_embeddings, and no old names.
  int default_short_context = 0;
  // "dynamic" may have an alpha, of Hunyuan: the base times alpha^(d / (d - 2)), d the dimensions
  // that turn.
  bool has_alpha = false;
  // llama_4_scaling_beta, by which queries grow with their position: a second table, of all layers'
  // queries.
  bool queries_grow = false;
};

// Appends to config.rotaries, and sets config.context_length to the context that results. Reads
// rope_theta and rope_scaling, or rope_parameters, which transformers 5 writes instead, also by
// layer type if all types have the same. An unknown setting is refused unless forced. Kinds:
// default, linear, llama3, yarn; dynamic, which is the default kind up to the context the model was
// trained for; longrope, with its long factors where options().context_length is beyond its first
// context, else with its short ones, and so with the shorter context.
void read_rotary(ConfigReader& json, ModelConfig& config, const RotaryKeys& keys = {});

// For families whose layers with a window turn in another way than those that see all: fills both,
// and the layers' `rotary`, by their windows. rope_scaling is of the layers that see all.
void read_rotary_by_type(ConfigReader& json, ModelConfig& config, const RotaryKeys& full,
                         const RotaryKeys& sliding);

// The same without settings: the first `dimensions` of each head turn, of periods to `theta`.
void add_plain_rotary(ConfigReader& json, ModelConfig& config, int dimensions, double theta);

}  // namespace lmtp::model
