#include "rotary_config.h"

#include <cmath>
#include <string>
#include <vector>

namespace lmtp::model {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Linear interpolation (Chen et al. 2023).
void scale_linear(ConfigReader& scaling, std::vector<float>& inverse_periods) {
  const auto factor = static_cast<float>(scaling.number("factor", 1.0));
  if (!(factor > 0.0F)) {
    scaling.refuse("factor: a number above 0 is expected");
    return;
  }
  for (float& value : inverse_periods) {
    value /= factor;
  }
}

// Llama 3.1's: long periods are stretched, short ones kept, those between blended.
void scale_llama3(ConfigReader& scaling, std::vector<float>& inverse_periods) {
  const double factor = scaling.number("factor", 8.0);
  const double low = scaling.number("low_freq_factor", 1.0);
  const double high = scaling.number("high_freq_factor", 4.0);
  const double context = scaling.number("original_max_position_embeddings", 8192.0);
  if (!(factor > 0.0 && low > 0.0 && high > low && context > 0.0)) {
    scaling.refuse(
        "factor, low_freq_factor, high_freq_factor and original_max_position_embeddings must be "
        "above 0, and high_freq_factor above low_freq_factor");
    return;
  }
  for (float& value : inverse_periods) {
    const auto inverse = static_cast<double>(value);
    const double period = 2.0 * kPi / inverse;
    if (period > context / low) {
      value = static_cast<float>(inverse / factor);
    } else if (period >= context / high) {
      const double share = (context / period - low) / (high - low);
      value = static_cast<float>((1.0 - share) * inverse / factor + share * inverse);
    }
  }
}

// LongRoPE (Ding et al. 2024). A sequence's length would choose between two sets of factors, and
// with them the keys of its first tokens: so that a token's bits depend on what is before it alone,
// the short ones hold for all, and the context ends where they do.
void scale_longrope(ConfigReader& json, ConfigReader& scaling, ModelConfig& config) {
  const auto factors = scaling.numbers("short_factor");
  std::vector<float>& inverse_periods = config.rotary.inverse_periods;
  if (factors.size() != inverse_periods.size()) {
    scaling.refuse("short_factor: " + std::to_string(inverse_periods.size()) +
                   " numbers are expected, one for each pair of dimensions");
    return;
  }
  for (std::size_t i = 0; i < factors.size(); ++i) {
    inverse_periods[i] /= static_cast<float>(factors[i]);
  }
  const auto trained = static_cast<int>(json.integer({"original_max_position_embeddings"},
                                                     config.context_length, 1, kContextLengthMax));
  const double factor = static_cast<double>(config.context_length) / trained;
  const double usual =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(trained)));
  config.rotary.factor = static_cast<float>(scaling.number("attention_factor", usual));
  config.context_length = trained;
}

void scale(ConfigReader& json, ConfigReader& scaling, ModelConfig& config) {
  std::string kind = scaling.text("rope_type", "");
  if (kind.empty()) {
    kind = scaling.text("type", "default");
  }
  if (kind == "linear") {
    scale_linear(scaling, config.rotary.inverse_periods);
  } else if (kind == "llama3") {
    scale_llama3(scaling, config.rotary.inverse_periods);
  } else if (kind == "longrope" || kind == "su") {
    scale_longrope(json, scaling, config);
  } else if (kind != "default" && kind != "dynamic") {
    scaling.refuse("rope_type: '" + kind +
                   "' is not supported; supported are default, linear, llama3, dynamic, longrope");
  }
}

}  // namespace

void read_rotary(ConfigReader& json, ModelConfig& config, int rotary_dim, const char* theta_key,
                 double theta) {
  if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > config.head_dim) {
    json.refuse("heads of " + std::to_string(config.head_dim) + " dimensions cannot turn " +
                std::to_string(rotary_dim) + " of them: an even number is needed");
    return;
  }
  auto parameters = json.object("rope_parameters");
  theta = json.number(theta_key, json.number("rope_theta", theta));
  if (parameters.has_value()) {
    theta = parameters->number("rope_theta", theta);
  }
  if (!(theta > 0.0)) {
    json.refuse(std::string(theta_key) + ": a number above 0 is expected");
    return;
  }
  for (int i = 0; i < rotary_dim; i += 2) {
    const float share = static_cast<float>(i) / static_cast<float>(rotary_dim);
    config.rotary.inverse_periods.push_back(1.0F / std::pow(static_cast<float>(theta), share));
  }
  auto scaling = json.object("rope_scaling");
  for (auto* object : {&parameters, &scaling}) {
    if (object->has_value()) {
      scale(json, **object, config);
      return;
    }
  }
}

}  // namespace lmtp::model
