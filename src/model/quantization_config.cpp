#include "quantization_config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "kernels/grouping.h"
#include "name_pattern.h"

namespace lmtp::model {
namespace {

constexpr std::int64_t kGroupSizeMax = 1 << 20;
constexpr const char* kHowToWiden =
    "; serve the repository that this one was made from, or write the weights as bfloat16 with "
    "transformers: model.dequantize(), then model.save_pretrained()";
constexpr const char* kServed =
    "; served are compressed-tensors (int-quantized, float-quantized, naive-quantized, "
    "pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized), modelopt (FP8, NVFP4), "
    "smooth_quant, fp8, gptq, awq and mxfp4";

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// What a reader of one method gets: its settings, and how it refuses.
class Settings {
 public:
  Settings(ConfigReader& root, ConfigReader& settings, const std::string& start)
      : json(settings), root_(root), start_(start) {}

  ConfigReader& json;

  void refuse(const std::string& what) {
    if (!refused_) root_.refuse_unless_forced(start_ + what + kHowToWiden);
    refused_ = true;
  }
  void note(const std::string& what) { root_.note(what); }
  bool refused() const { return refused_; }

 private:
  ConfigReader& root_;
  const std::string start_;
  bool refused_ = false;
};

// "group", or what the size of a group means where nothing is said.
std::string strategy_name(ConfigReader& args, std::int64_t group_size) {
  std::string name = lower(args.text("strategy", ""));
  if (!name.empty()) return name;
  return group_size > 0 ? "group" : group_size == -1 ? "channel" : "tensor";
}

// [128, 128], or in old releases of compressed-tensors "128x128".
void read_blocks(Settings& in, ConfigReader& args, const char* key, QuantScheme& scheme) {
  std::vector<double> sizes;
  if (!args.is_text(key)) {
    sizes = args.numbers(key);
  } else {
    std::istringstream text(args.text(key, ""));
    for (std::string size; std::getline(text, size, 'x');) {
      sizes.push_back(std::strtod(size.c_str(), nullptr));
    }
  }
  const auto is_size = [](double size) { return size >= 1 && size <= kGroupSizeMax; };
  if (sizes.size() != 2 || !std::ranges::all_of(sizes, is_size)) {
    return in.refuse(std::string(key) + " is not two sizes, [128, 128]");
  }
  scheme.strategy = QuantStrategy::kBlock;
  scheme.block_outputs = static_cast<std::int64_t>(sizes[0]);
  scheme.block_inputs = static_cast<std::int64_t>(sizes[1]);
}

// `weights` of a group of compressed-tensors.
void read_weights(Settings& in, ConfigReader& args, bool is_fp4_format, QuantScheme& scheme) {
  const std::int64_t group_size = args.integer({"group_size"}, 0, -1, kGroupSizeMax);
  scheme.num_bits = static_cast<int>(args.integer({"num_bits"}, 8, 1, 64));
  scheme.symmetric = args.boolean("symmetric", true);
  const std::string type = lower(args.text("type", "int"));
  scheme.is_float = type == "float";
  if ((type != "int" && type != "float") || (scheme.num_bits != 8 && scheme.num_bits != 4) ||
      scheme.is_fp4() != is_fp4_format) {
    return in.refuse("weights of " + std::to_string(scheme.num_bits) + " bits of type '" + type +
                     "' are not served: int of 4 and 8 bits and float of 8 are, and float of 4 in "
                     "nvfp4-pack-quantized and mxfp4-pack-quantized");
  }
  std::string strategy = strategy_name(args, group_size);
  if (is_fp4_format && strategy == "tensor_group") strategy = "group";  // NVFP4's
  if (strategy == "tensor") {
    scheme.strategy = QuantStrategy::kTensor;
  } else if (strategy == "channel") {
    scheme.strategy = QuantStrategy::kChannel;
  } else if (strategy == "group" && group_size > 0) {
    scheme.strategy = QuantStrategy::kGroup;
    scheme.block_inputs = group_size;
  } else if (strategy == "block") {
    read_blocks(in, args, "block_structure", scheme);
  } else {
    in.refuse("the strategy '" + strategy +
              "' of weights is not served: tensor, channel, group "
              "and block are");
  }
}

// Integer products are for w8a8, where an output has a scale and so has a row of x, and for 4 bits
// where groups of both have one: what tools/quantize writes.
void read_activations(Settings& in, ConfigReader& group, QuantScheme& scheme) {
  auto args = group.object("input_activations");
  if (!args.has_value()) return;
  const std::int64_t bits = args->integer({"num_bits"}, 8, 1, 64);
  const bool is_int = lower(args->text("type", "int")) == "int";
  const bool by_output =
      scheme.strategy == QuantStrategy::kTensor || scheme.strategy == QuantStrategy::kChannel;
  const bool by_group =
      scheme.strategy == QuantStrategy::kGroup && args->text("strategy", "") == "group" &&
      args->integer({"group_size"}, -1, -1, kGroupSizeMax) == scheme.block_inputs &&
      kernels::is_int4_group(scheme.block_inputs);
  scheme.rounds_activations = is_int && bits == 8 && !scheme.is_float && scheme.symmetric &&
                              (scheme.num_bits == 8 ? by_output : by_group);
  if (bits != 8 && !scheme.is_fp4()) {
    in.refuse("activations of " + std::to_string(bits) + " bits are not served: 8 are");
  }
}

// Whether groups are of inputs in another order. "weight" and "static" keep theirs.
bool is_ordered(ConfigReader& weights) {
  if (!weights.is_text("actorder")) return weights.boolean("actorder", false);
  const std::string order = lower(weights.text("actorder", ""));
  return order == "group" || order == "dynamic";
}

void read_group(Settings& in, const std::string& name, const std::string& format,
                Quantization& to) {
  auto groups = in.json.object("config_groups");
  auto group = groups->is_object(name) ? groups->object(name) : std::nullopt;
  auto weights = group.has_value() ? group->object("weights") : std::nullopt;
  if (!group.has_value()) return in.refuse("config_groups." + name + " is not an object");
  if (!weights.has_value()) return;  // activations alone
  QuantScheme scheme;
  scheme.targets = group->texts("targets");
  const std::string own = group->text("format", format);
  const bool is_fp4 = own == "nvfp4-pack-quantized" || own == "mxfp4-pack-quantized";
  scheme.packed = own == "pack-quantized" || is_fp4;
  if (!scheme.packed && own != "int-quantized" && own != "float-quantized" &&
      own != "naive-quantized") {
    return in.refuse("the format '" + own +
                     "' is not served: int-quantized, float-quantized, "
                     "naive-quantized, pack-quantized, nvfp4-pack-quantized and "
                     "mxfp4-pack-quantized are");
  }
  read_weights(in, *weights, is_fp4, scheme);
  read_activations(in, *group, scheme);
  to.ordered = to.ordered || is_ordered(*weights);
  if (scheme.packed && scheme.is_float && !is_fp4) {
    in.refuse("packed weights of type 'float' are not served");
  }
  to.schemes.push_back(std::move(scheme));
}

void note_kv_cache(Settings& in, Quantization& to) {
  const std::string algorithm = in.json.text("kv_cache_quant_algo", "");
  if (!in.json.is_object("kv_cache_scheme") && algorithm.empty()) return;
  to.scales_kv_cache = true;
  in.note("kv_cache_scheme: keys and values are kept without its scales");
}

void read_compressed_tensors(Settings& in, Quantization& to) {
  const std::string format = in.json.text("format", "");
  if (auto sparsity = in.json.object("sparsity_config")) {
    const std::string kind = sparsity->text("format", "dense");
    if (kind != "dense") return in.refuse("sparsity ('" + kind + "') is not served");
  }
  if (auto transforms = in.json.object("transform_config")) {
    auto groups = transforms->object("config_groups");
    if (groups.has_value() && !groups->keys().empty()) {
      return in.refuse("transforms of activations (transform_config) are not served");
    }
  }
  note_kv_cache(in, to);
  auto groups = in.json.object("config_groups");
  for (const std::string& name : groups.has_value() ? groups->keys() : std::vector<std::string>()) {
    read_group(in, name, format, to);
  }
  to.ignored = in.json.texts("ignore");
}

void read_smooth_quant(Settings& in, Quantization& to) {
  const std::string type = in.json.text("quant_dtype", "int8");  // the first release has int8 alone
  QuantScheme scheme;
  scheme.is_float = type == "fp8" || type == "float8_e4m3fn";
  scheme.rounds_activations = !scheme.is_float;
  if (!scheme.is_float && type != "int8") {
    in.refuse("the quant_dtype '" + type + "' is not served: int8 and fp8 are");
  }
  to.schemes.push_back(std::move(scheme));
  to.ignored = in.json.texts("modules_to_not_convert");
}

void read_fp8(Settings& in, Quantization& to) {
  const std::string format = in.json.text("fmt", "e4m3");
  if (format != "e4m3" && format != "float8_e4m3fn") {
    in.refuse("fp8 of the kind '" + format + "' is not served: e4m3 is");
  }
  QuantScheme scheme;
  scheme.is_float = true;
  scheme.strategy = QuantStrategy::kTensor;
  if (in.json.is_set("weight_block_size")) read_blocks(in, in.json, "weight_block_size", scheme);
  to.schemes.push_back(std::move(scheme));
  to.ignored =
      in.json.texts(in.json.is_set("ignored_layers") ? "ignored_layers" : "modules_to_not_convert");
}

// What GPTQ and AWQ have in common: packed whole numbers in groups of inputs.
QuantScheme packed_groups(Settings& in, bool takes_8_bits) {
  QuantScheme scheme;
  scheme.packed = true;
  scheme.num_bits = static_cast<int>(in.json.integer({"bits", "w_bit"}, 4, 1, 64));
  if (scheme.num_bits != 4 && (scheme.num_bits != 8 || !takes_8_bits)) {
    in.refuse("weights of " + std::to_string(scheme.num_bits) + " bits are not served: 4 " +
              (takes_8_bits ? "and 8 are" : "are"));
  }
  const std::int64_t group =
      in.json.integer({"group_size", "q_group_size"}, 128, -1, kGroupSizeMax);
  scheme.strategy = group > 0 ? QuantStrategy::kGroup : QuantStrategy::kChannel;
  scheme.block_inputs = group > 0 ? group : 0;
  scheme.symmetric = false;  // zero points are always stored
  return scheme;
}

void read_gptq(Settings& in, Quantization& to) {
  const std::string format = in.json.text("checkpoint_format", in.json.text("format", "gptq"));
  if ((format != "gptq" && format != "gptq_v2") || in.json.boolean("is_marlin_format", false)) {
    in.refuse("the checkpoint_format '" + (format == "gptq" ? "marlin" : format) +
              "' is not served: gptq and gptq_v2 are");
  }
  if (const std::string word = in.json.text("pack_dtype", "int32"); word != "int32") {
    in.refuse("the pack_dtype '" + word + "' is not served: int32 is");
  }
  auto settings = in.json.object("dynamic");  // by module; "-:" leaves it unquantised
  for (const std::string& name :
       settings.has_value() ? settings->keys() : std::vector<std::string>()) {
    if (!name.starts_with("-:")) in.refuse("settings by module (dynamic) are not served");
  }
  to.zeros_minus_one = format == "gptq";
  to.ordered = in.json.boolean("desc_act", false);
  to.schemes.push_back(packed_groups(in, true));
}

void read_awq(Settings& in, Quantization& to) {
  const std::string version = lower(in.json.text("version", "gemm"));
  if (version != "gemm") in.refuse("the version '" + version + "' is not served: gemm is");
  to.schemes.push_back(packed_groups(in, false));
  to.ignored = in.json.texts("modules_to_not_convert");
}

// gpt-oss: experts alone, all of a layer in one tensor.
void read_mxfp4(Settings& in, Quantization& to) {
  QuantScheme scheme;
  scheme.num_bits = 4;
  scheme.is_float = scheme.packed = true;
  scheme.strategy = QuantStrategy::kGroup;
  scheme.block_inputs = 32;
  scheme.targets = {"re:.*\\.experts\\..*"};
  to.schemes.push_back(std::move(scheme));
  to.ignored = in.json.texts("modules_to_not_convert");
}

// A name with asterisks as a target that is an expression.
std::string as_expression(const std::string& name) {
  std::string expression = "re:";
  for (const char c : name) {
    if (c == '*') expression += '.';
    if (c == '.') expression += '\\';
    expression += c;
  }
  return expression;
}

// NVIDIA's Model Optimizer: what its config_groups say follows from the algorithm.
void read_model_opt(Settings& in, Quantization& to) {
  const std::string algorithm = in.json.text("quant_algo", "");
  if (algorithm != "NVFP4" && algorithm != "FP8") {
    return in.refuse("the quant_algo '" + algorithm + "' is not served: FP8 and NVFP4 are");
  }
  QuantScheme scheme;
  scheme.is_float = true;
  scheme.strategy = QuantStrategy::kTensor;
  if (algorithm == "NVFP4") {
    scheme.num_bits = 4;
    scheme.packed = true;
    scheme.strategy = QuantStrategy::kGroup;
    scheme.block_inputs = 16;
  }
  note_kv_cache(in, to);
  to.schemes.push_back(std::move(scheme));
  // Its names may have asterisks.
  for (std::string name : in.json.texts(in.json.is_set("ignore") ? "ignore" : "exclude_modules")) {
    if (name.find('*') != std::string::npos) name = as_expression(name);
    to.ignored.push_back(std::move(name));
  }
}

struct Method {
  const char* name;
  QuantMethod method;
  void (*read)(Settings& in, Quantization& to);
};
constexpr Method kMethods[] = {
    {"compressed-tensors", QuantMethod::kCompressedTensors, read_compressed_tensors},
    {"smooth_quant", QuantMethod::kSmoothQuant, read_smooth_quant},
    {"fp8", QuantMethod::kFp8, read_fp8},
    {"gptq", QuantMethod::kGptq, read_gptq},
    {"awq", QuantMethod::kAwq, read_awq},
    {"mxfp4", QuantMethod::kMxFp4, read_mxfp4},
    {"modelopt", QuantMethod::kModelOpt, read_model_opt},
    {"modelopt_fp4", QuantMethod::kModelOpt, read_model_opt},
};

// compressed-tensors' first releases write no quant_method, and more deeply.
std::string method_of(ConfigReader& settings) {
  const std::string unnamed = settings.is_set("quant_algo") ? "modelopt" : "";
  std::string method = settings.text("quant_method", unnamed);
  if (method == "sparseml") return "compressed-tensors";
  if (!method.empty()) return method;
  if (settings.has("load_in_4bit") || settings.has("load_in_8bit")) return "bitsandbytes";
  return settings.has("config_groups") ? "compressed-tensors" : "";
}

}  // namespace

Quantization read_quantization(ConfigReader& json, const std::string& model_type) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (!json.is_object(key)) continue;
    auto settings = json.object(key);
    if (settings->is_object("quantization_config")) {
      settings = settings->object("quantization_config");
    }
    const std::string method = method_of(*settings);
    if (method.empty() && settings->keys().empty()) continue;
    const auto* const found =
        std::ranges::find_if(kMethods, [&](const Method& known) { return method == known.name; });
    Settings in(json, *settings,
                std::string(key) + ": the weights are quantised" +
                    (method.empty() ? "" : " (" + method + ")") + ", and ");
    Quantization result;
    // Model Optimizer's, of keys and values alone.
    if (method.empty() && settings->has("quant_algo")) {
      note_kv_cache(in, result);
      return result;
    }
    if (found == std::end(kMethods)) {
      in.refuse(std::string("such are not read") + kServed);
      return {};
    }
    result.method = found->method;
    result.name = method;
    found->read(in, result);
    if (model_type == "gpt2") in.refuse("its matrices are stored inputs by outputs");
    if (result.method == QuantMethod::kMxFp4 && model_type != "gpt_oss") {
      in.refuse("that is read of gpt_oss alone");
    }
    if (result.schemes.empty()) in.refuse("config_groups says nothing of weights");
    return in.refused() ? Quantization() : result;
  }
  return {};
}

std::string QuantScheme::text() const {
  std::string codes = (is_float ? "fp" : "int") + std::to_string(num_bits);
  switch (strategy) {
    case QuantStrategy::kGroup:
      return codes + " in groups of " + std::to_string(block_inputs);
    case QuantStrategy::kBlock:
      return codes + " in blocks of " + std::to_string(block_outputs) + "x" +
             std::to_string(block_inputs);
    case QuantStrategy::kTensor:
    case QuantStrategy::kChannel:
      break;
  }
  return codes;
}

std::int64_t coded_bytes(const QuantScheme& scheme, std::int64_t num_elements) {
  constexpr std::int64_t kInputsOfOutput = 64;  // at least, where an output has one scale
  // A power of two as bf16, a float, or two.
  const std::int64_t group_bytes = !scheme.is_fp4() ? 8 : scheme.block_inputs == 32 ? 2 : 4;
  const std::int64_t bits = scheme.packed ? scheme.num_bits : 8;
  const std::int64_t group = scheme.block_inputs > 0 ? scheme.block_inputs : kInputsOfOutput;
  return num_elements * bits / 8 + num_elements / group * group_bytes + group_bytes;
}

const QuantScheme* find_scheme(const Quantization& quantization, const std::string& module) {
  const auto matches = [&](const std::string& pattern) { return matches_name(pattern, module); };
  if (std::ranges::any_of(quantization.ignored, matches)) return nullptr;
  for (const bool by_class : {false, true}) {  // a name says more than a class
    for (const QuantScheme& scheme : quantization.schemes) {
      const bool found =
          by_class ? scheme.targets.empty() || std::ranges::count(scheme.targets, "Linear") > 0
                   : std::ranges::any_of(scheme.targets, matches);
      if (found) return &scheme;
    }
  }
  return nullptr;
}

}  // namespace lmtp::model
