#include "rotary_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::model {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr const char* kOriginalContext = "original_max_position_embeddings";
constexpr const char* kAlpha = "alpha";
constexpr const char* kGrowth = "llama_4_scaling_beta";

// Inverse periods of the pairs among so many dimensions.
std::vector<float> periods_of(int dimensions, double theta) {
  std::vector<float> inverse_periods;
  for (int i = 0; i < dimensions; i += 2) {
    const float fraction = static_cast<float>(i) / static_cast<float>(dimensions);
    inverse_periods.push_back(1.0F / std::pow(static_cast<float>(theta), fraction));
  }
  return inverse_periods;
}

// Arguments of the scaling functions.
struct Rotation {
  ConfigReader& json;
  ConfigReader& settings;  // rope_scaling or rope_parameters in it
  ModelConfig& config;
  const RotaryKeys& keys;
  double theta;

  RotaryConfig& rotary() const { return config.rotaries.back(); }
  std::vector<float>& inverse_periods() const { return rotary().inverse_periods; }
  // A number above 0; required if `fallback` is 0.
  double positive(const char* key, double fallback = 0.0) const {
    const double value = settings.number(key, fallback);
    if (!(value > 0.0)) {
      settings.refuse(std::string(key) + ": a number above 0 is expected");
      return 1.0;
    }
    return value;
  }
};

void scale_not(const Rotation&) {}

// Linear interpolation (Chen et al. 2023).
void scale_linear(const Rotation& in) {
  const auto factor = static_cast<float>(in.positive("factor"));
  for (float& value : in.inverse_periods()) value /= factor;
}

// Llama 3.1's: long periods are stretched, short ones kept, those between blended.
void scale_llama3(const Rotation& in) {
  const double factor = in.positive("factor");
  const double low = in.positive("low_freq_factor");
  const double high = in.positive("high_freq_factor");
  const double context = in.positive(kOriginalContext, in.config.context_length);
  if (high <= low) {
    in.settings.refuse("high_freq_factor must be above low_freq_factor");
    return;
  }
  for (float& value : in.inverse_periods()) {
    const auto inverse = static_cast<double>(value);
    const double period = 2.0 * kPi / inverse;
    if (period > context / low) {
      value = static_cast<float>(inverse / factor);
    } else if (period >= context / high) {
      const double fraction = (context / period - low) / (high - low);
      value = static_cast<float>((1.0 - fraction) * inverse / factor + fraction * inverse);
    }
  }
}

// 0.1 * m * ln(factor) + 1, by which YaRN scales attention.
double yarn_scale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

double yarn_attention_factor(ConfigReader& settings, double factor) {
  const double m = settings.number("mscale", 0.0);
  const double m_all = settings.number("mscale_all_dim", 0.0);
  const double fallback = m != 0.0 && m_all != 0.0
                              ? yarn_scale(factor, m) / yarn_scale(factor, m_all)
                              : yarn_scale(factor, 1.0);
  return settings.number("attention_factor", fallback);
}

// YaRN (Peng et al. 2023): periods with enough rotations within the original context are kept,
// those with too few are stretched, those between are blended along a ramp over the dimensions.
void scale_yarn(const Rotation& in) {
  std::vector<float>& inverse_periods = in.inverse_periods();
  const double dimensions = 2.0 * static_cast<double>(inverse_periods.size());
  const double context = in.positive(kOriginalContext, in.config.context_length);
  const double default_factor = in.settings.has(kOriginalContext)
                                    ? static_cast<double>(in.config.context_length) / context
                                    : 0.0;
  const double factor = in.positive("factor", default_factor);
  // 0 means the default, as null does.
  const auto turns = [&](const char* key, double fallback) {
    const double value = in.settings.number(key, fallback);
    return value == 0.0 ? fallback : value;
  };
  const auto dimension_of = [&](double num_turns) {
    return dimensions * std::log(context / (num_turns * 2.0 * kPi)) / (2.0 * std::log(in.theta));
  };
  double low = dimension_of(turns("beta_fast", 32.0));
  double high = dimension_of(turns("beta_slow", 1.0));
  if (in.settings.boolean("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dimensions - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inverse_periods.size(); ++i) {
    const auto inverse = static_cast<double>(inverse_periods[i]);
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse_periods[i] =
        static_cast<float>(inverse / factor * stretched + inverse * (1.0 - stretched));
  }
  in.rotary().factor = static_cast<float>(yarn_attention_factor(in.settings, factor));
  if (in.settings.has("attn_factor")) {
    in.settings.note("attn_factor of the rotary settings has no effect, as in transformers");
  }
  // max_position_embeddings is the original context in some files and the extended one in others;
  // without original_max_position_embeddings it is taken as the extended one, as in transformers.
  if (in.settings.has(kOriginalContext)) {
    in.config.context_length =
        static_cast<int>(std::clamp(context * factor, static_cast<double>(in.config.context_length),
                                    static_cast<double>(kContextLengthMax)));
  }
}

bool are_factors(const Rotation& in, const char* key, const std::vector<double>& factors) {
  const std::size_t expected = in.inverse_periods().size();
  const bool right = factors.size() == expected &&
                     std::all_of(factors.begin(), factors.end(), [](double f) { return f > 0.0; });
  if (!right) {
    in.settings.refuse(std::string(key) + ": " + std::to_string(expected) +
                       " numbers above 0 are expected, one for each pair of dimensions");
  }
  return right;
}

// LongRoPE (Ding et al. 2024) chooses between two sets of factors by a sequence's length, which
// would change the keys of its first tokens. So that a token's bits depend only on the tokens
// before it, one set is used for all streams; with the short one, the context is limited to its
// own.
void scale_longrope(const Rotation& in) {
  const int whole = in.config.context_length;
  const int fallback = in.keys.default_short_context > 0 ? in.keys.default_short_context : whole;
  const auto own = in.settings.integer({kOriginalContext}, fallback, 2, kContextLengthMax);
  const auto first =
      static_cast<int>(in.json.integer({kOriginalContext}, own, 2, kContextLengthMax));
  const bool is_long = whole > first && in.json.options().context_length > first;
  const auto short_factors = in.settings.numbers("short_factor");
  const auto long_factors = in.settings.numbers("long_factor");
  if (!are_factors(in, "short_factor", short_factors) ||
      !are_factors(in, "long_factor", long_factors)) {
    return;
  }
  std::vector<float>& inverse_periods = in.inverse_periods();
  for (std::size_t i = 0; i < inverse_periods.size(); ++i) {
    inverse_periods[i] /= static_cast<float>(is_long ? long_factors[i] : short_factors[i]);
  }
  const double factor = in.settings.number("factor", static_cast<double>(whole) / first);
  const double default_attention =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(first)));
  in.rotary().factor =
      static_cast<float>(in.settings.number("attention_factor", default_attention));
  if (is_long) {
    in.json.note("longrope's long factors hold for all streams, short ones too, as " +
                 std::to_string(in.json.options().context_length) + " tokens are asked for");
  } else {
    in.config.context_length = std::min(first, whole);
  }
}

// The periods are those of a base stretched for all lengths.
void scale_by_alpha(const Rotation& in) {
  const double alpha = in.keys.has_alpha ? in.settings.number(kAlpha, 0.0) : 0.0;
  if (alpha == 0.0) return;  // as in transformers, where it is false
  std::vector<float>& inverse_periods = in.inverse_periods();
  const double dimensions = 2.0 * static_cast<double>(inverse_periods.size());
  const double base = in.theta * std::pow(in.positive(kAlpha), dimensions / (dimensions - 2.0));
  if (!std::isfinite(base) || base <= 0.0) {
    in.settings.refuse("alpha gives a rotary base that is no number above 0, which is needed");
    return;
  }
  inverse_periods = periods_of(2 * static_cast<int>(inverse_periods.size()), base);
}

struct RotaryKind {
  std::string_view name;
  void (*scale)(const Rotation&);
  std::initializer_list<std::string_view> keys;  // besides those that all kinds have
};

const RotaryKind kKinds[] = {
    {"default", scale_not, {}},
    {"linear", scale_linear, {"factor"}},
    {"llama3", scale_llama3, {"factor", "low_freq_factor", "high_freq_factor", kOriginalContext}},
    {"dynamic", scale_by_alpha, {"factor", kOriginalContext}},
    {"yarn",
     scale_yarn,
     {"factor", "attention_factor", "attn_factor", "beta_fast", "beta_slow", "mscale",
      "mscale_all_dim", "truncate", kOriginalContext}},
    {"longrope",
     scale_longrope,
     {"short_factor", "long_factor", "factor", "attention_factor", kOriginalContext}},
};
constexpr std::string_view kCommonKeys[] = {"rope_type", "type", "rope_theta",
                                            "partial_rotary_factor",
                                            // of images and videos: a text's positions are one
                                            "mrope_section", "mrope_interleaved"};

const RotaryKind* find_kind(ConfigReader& settings, const RotaryKeys& keys) {
  const auto name_of = [&](const char* key, const std::string& fallback) {
    const std::string name = settings.text(key, fallback);
    const bool is_old = keys.default_short_context > 0 && name == "yarn";
    if (name == "mrope") return std::string("default");
    return is_old || name == "su" ? std::string("longrope") : name;
  };
  const std::string name = name_of("rope_type", settings.text("type", "default"));
  if (name_of("type", name) != name) {
    settings.refuse("rope_type and type name different kinds");
    return nullptr;
  }
  std::string known;
  for (const RotaryKind& kind : kKinds) {
    if (kind.name == name) return &kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  settings.refuse("rope_type: '" + name + "' is not supported; supported are " + known);
  return nullptr;
}

constexpr std::string_view kGrowthKeys[] = {kGrowth, "max_position_embeddings"};
// Beside the alpha stand yarn's, which transformers does not read either.
constexpr std::string_view kAlphaKeys[] = {kAlpha, "beta_fast", "beta_slow", "mscale",
                                           "mscale_all_dim"};

void check_keys(ConfigReader& settings, const RotaryKind& kind, const RotaryKeys& keys) {
  const auto holds = [](const auto& list, const std::string& key) {
    return std::find(std::begin(list), std::end(list), key) != std::end(list);
  };
  for (const std::string& key : settings.keys()) {
    const bool is_known = holds(kCommonKeys, key) || holds(kind.keys, key) ||
                          (keys.queries_grow && holds(kGrowthKeys, key)) ||
                          (keys.has_alpha && kind.name == "dynamic" && holds(kAlphaKeys, key));
    if (!is_known) {
      settings.refuse_unless_forced(key + ": is no known setting of '" + std::string(kind.name) +
                                    "', and may change what a model computes");
    }
  }
}

// The settings of all layers if they are given by layer type.
std::optional<ConfigReader> settings_of_types(ConfigReader& json, ConfigReader& settings) {
  auto types = json.texts("layer_types");
  if (types.empty()) types = settings.keys();
  for (const std::string& key : settings.keys()) {
    if (!settings.is_object(key)) {
      settings.refuse_unless_forced(key +
                                    ": stands beside settings by layer type, which have their own");
    }
  }
  std::optional<ConfigReader> common;
  for (const std::string& type : types) {
    auto own = settings.object(type);
    if (!own.has_value()) {
      settings.refuse(type + ": is missing, and layers that do not turn are not supported");
      return std::nullopt;
    }
    if (common.has_value() && !common->equals(*own)) {
      settings.refuse(type + ": turns in another way than other layers, which is not supported");
      return std::nullopt;
    }
    common = own;
  }
  return common;
}

std::optional<ConfigReader> find_settings(ConfigReader& json) {
  // If both keys are present, transformers 5 uses only the older one, and so drops the theta of the
  // other.
  if (auto older = json.object("rope_scaling"), newer = json.object("rope_parameters");
      older.has_value() && newer.has_value() && !older->keys().empty() && !newer->keys().empty() &&
      !older->equals(*newer)) {
    json.refuse_unless_forced(
        "rope_scaling and rope_parameters differ; keep one of them, with rope_theta and all else "
        "in it");
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    auto settings = json.object(key);
    if (!settings.has_value() || settings->keys().empty()) continue;
    const auto keys = settings->keys();
    const bool by_type = std::any_of(keys.begin(), keys.end(),
                                     [&](const auto& inner) { return settings->is_object(inner); });
    return by_type ? settings_of_types(json, *settings) : settings;
  }
  return std::nullopt;
}

// The rotated dimensions of a head; 0 if the file is refused.
int rotary_dimensions(ConfigReader& json, std::optional<ConfigReader>& settings, int head_dim,
                      const RotaryKeys& keys) {
  const char* key = keys.fraction != nullptr ? keys.fraction : "partial_rotary_factor";
  double fraction = json.number(key, keys.default_fraction);
  if (settings.has_value()) fraction = settings->number("partial_rotary_factor", fraction);
  if (keys.fraction == nullptr && fraction != 1.0) {
    json.refuse("partial_rotary_factor: heads of this family turn whole");
    return 0;
  }
  const double dimensions = std::trunc(fraction * head_dim);
  if (!(dimensions >= 2.0 && dimensions <= head_dim) || std::fmod(dimensions, 2.0) != 0.0) {
    json.refuse("heads of " + std::to_string(head_dim) + " dimensions cannot turn a share of " +
                std::to_string(fraction) + " of them: an even number is needed");
    return 0;
  }
  return static_cast<int>(dimensions);
}

void add_rotary(ConfigReader& json, std::optional<ConfigReader> settings, ModelConfig& config,
                const RotaryKeys& keys) {
  const int dimensions = rotary_dimensions(json, settings, config.head_dim, keys);
  double theta = json.number(keys.theta, keys.default_theta);
  if (settings.has_value()) {
    const double own = settings->number("rope_theta", theta);
    if (own != theta && json.is_set(keys.theta)) {
      json.refuse_unless_forced(std::string(keys.theta) +
                                ": differs from the rope_theta of the rotary settings, which "
                                "transformers 5 takes and transformers 4 does not; keep one");
    }
    theta = own;
  }
  if (!(theta > 1.0)) json.refuse(std::string(keys.theta) + ": a number above 1 is expected");
  if (json.error().has_value()) return;
  config.rotaries.push_back({periods_of(dimensions, theta)});
  const RotaryKind* kind = settings.has_value() ? find_kind(*settings, keys) : nullptr;
  if (kind == nullptr) return;
  check_keys(*settings, *kind, keys);
  kind->scale({json, *settings, config, keys, theta});
  const RotaryConfig& rotary = config.rotaries.back();
  if (!std::isfinite(rotary.factor) ||
      !std::ranges::all_of(rotary.inverse_periods, [](float p) { return std::isfinite(p); })) {
    settings->refuse("the numbers are beyond those a float holds");
  }
  if (!keys.queries_grow || json.error().has_value()) return;
  RotaryConfig queries = rotary;
  queries.growth = settings->positive(kGrowth, 0.0);
  queries.growth_period = static_cast<int>(
      settings->integer({kOriginalContext}, config.context_length, 1, kContextLengthMax));
  const auto index = static_cast<int>(config.rotaries.size());
  config.rotaries.push_back(std::move(queries));
  for (LayerSpec& layer : config.layers) layer.query_rotary = index;
}

}  // namespace

void read_rotary(ConfigReader& json, ModelConfig& config, const RotaryKeys& keys) {
  add_rotary(json, find_settings(json), config, keys);
}

void read_rotary_by_type(ConfigReader& json, ModelConfig& config, const RotaryKeys& full,
                         const RotaryKeys& sliding) {
  const auto not_empty = [&](const char* key) {
    auto settings = json.object(key);
    return settings.has_value() && !settings->keys().empty() ? settings : std::nullopt;
  };
  std::optional<ConfigReader> of_full = not_empty("rope_scaling");
  std::optional<ConfigReader> of_sliding;
  if (auto types = not_empty("rope_parameters")) {
    if (of_full.has_value()) {
      json.refuse_unless_forced("rope_scaling and rope_parameters: keep one of them");
    }
    for (const std::string& key : types->keys()) {
      if (key != "full_attention" && key != "sliding_attention") {
        types->refuse(key +
                      ": is not supported here; supported are full_attention and "
                      "sliding_attention, with settings of their own");
      }
    }
    if (!of_full.has_value()) of_full = types->object("full_attention");
    of_sliding = types->object("sliding_attention");
  }
  add_rotary(json, of_full, config, full);
  add_rotary(json, of_sliding, config, sliding);
  for (LayerSpec& layer : config.layers) layer.rotary = layer.window > 0 ? 1 : 0;
}

void add_plain_rotary(ConfigReader& json, ModelConfig& config, int dimensions, double theta) {
  if (dimensions > config.head_dim || dimensions % 2 != 0) {
    json.refuse("of " + std::to_string(config.head_dim) + " dimensions of a head " +
                std::to_string(dimensions) + " cannot turn: an even number, not more, is needed");
    return;
  }
  config.rotaries.push_back({periods_of(dimensions, theta)});
}

}  // namespace lmtp::model
