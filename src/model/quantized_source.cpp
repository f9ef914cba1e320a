// The view of a quantised checkpoint that a model has: its matrices under their usual names.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/model/weights.h"
#include "quantized_matrix.h"
#include "source_view.h"

namespace lmtp::model {
namespace {

constexpr std::string_view kWeight = ".weight";

// Leaves that a quantised module has in place of its weight; those of `marks` say that it is one.
struct Leaves {
  QuantMethod method;
  std::vector<std::string_view> marks;
  std::vector<std::string_view> others;
};

const std::vector<Leaves>& known_leaves() {
  static const std::vector<Leaves> leaves = {
      {QuantMethod::kCompressedTensors,
       {".weight_packed", ".weight_scale"},
       {".weight_shape", ".weight_zero_point", ".weight_g_idx", ".weight_global_scale"}},
      {QuantMethod::kSmoothQuant, {".scale"}, {}},
      {QuantMethod::kFp8, {".weight_scale_inv", ".weight_scale"}, {}},
      {QuantMethod::kModelOpt, {".weight_scale", ".weight_scale_2"}, {}},
      {QuantMethod::kGptq, {".qweight", ".qzeros", ".scales"}, {".g_idx"}},
      {QuantMethod::kAwq, {".qweight", ".qzeros", ".scales"}, {}},
  };
  return leaves;
}

// Of activations, keys and values, which are rounded by what they are, if at all.
constexpr std::string_view kOfActivations[] = {
    ".input_scale",  ".input_zero_point",  ".output_scale", ".output_zero_point",
    ".k_scale",      ".v_scale",           ".q_scale",      ".k_zero_point",
    ".v_zero_point", ".input_global_scale"};

bool is_float(const std::optional<StoredTensor>& tensor) {
  return tensor.has_value() &&
         (tensor->type == "F32" || tensor->type == "F16" || tensor->type == "BF16");
}

bool is_code(const std::optional<StoredTensor>& tensor) {
  return tensor.has_value() && (tensor->type == "I8" || tensor->type == "F8_E4M3");
}

class QuantizedSource : public SourceView {
 public:
  QuantizedSource(std::unique_ptr<TensorSource> file, const Quantization& quantization)
      : SourceView(std::move(file)), quantization_(quantization) {
    const auto leaves = std::ranges::find(known_leaves(), quantization.method, &Leaves::method);
    for (const std::string& name : file_->names()) {
      for (const std::string_view mark : leaves->marks) {
        if (name.ends_with(mark)) modules_.insert(name.substr(0, name.size() - mark.size()));
      }
      // Its scales may be missing.
      if (is_code(file_->stored(name))) modules_.insert(module_of(name));
    }
    modules_.erase("");
    // A number may lie beside scales: "fake" quantisation. It is what it is.
    std::erase_if(modules_, [&](const std::string& module) {
      return is_float(file_->stored(module + std::string(kWeight)));
    });
    std::set<std::string> names;
    for (const std::string& name : file_->names()) {
      if (!is_part(name, *leaves)) names.insert(name);
    }
    for (const std::string& module : modules_) names.insert(module + std::string(kWeight));
    names_.assign(names.begin(), names.end());
  }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const std::string module = module_of(spec.name);
    if (!modules_.contains(module)) {
      if (spec.name.ends_with(".bias")) biases_.insert(spec.name);
      return file_->tensor(spec);
    }
    auto matrix = matrix_of(module, spec);
    if (!matrix.ok()) return matrix.error();
    asked_[module] = spec;
    return SourceTensor{
        .type = kernels::ElementType::kF32,
        .read = [matrix = std::move(*matrix)](std::uint64_t first, std::size_t count, void* to) {
          return matrix->read(static_cast<std::int64_t>(first / sizeof(float)),
                              static_cast<std::int64_t>(count / sizeof(float)),
                              static_cast<float*>(to));
        }};
  }

  Result<std::shared_ptr<CodedMatrix>> coded(const TensorSpec& spec) override {
    const std::string module = module_of(spec.name);
    if (!modules_.contains(module)) return std::shared_ptr<CodedMatrix>();
    auto matrix = matrix_of(module, spec);
    if (!matrix.ok()) return matrix.error();
    return std::shared_ptr<CodedMatrix>(std::move(*matrix));
  }

  Result<void> check_values() override {
    for (const auto& [module, spec] : asked_) {
      const auto matrix = matrix_of(module, spec);
      if (!matrix.ok()) return matrix.error();
      if (auto prepared = (*matrix)->prepare(); !prepared.ok()) return prepared;
      if (auto checked = check_bias(module + ".bias"); !checked.ok()) return checked;
    }
    return {};
  }

 private:
  // The module whose matrix a name is; empty for any other tensor.
  static std::string module_of(const std::string& name) {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
  }

  bool is_part(const std::string& name, const Leaves& leaves) const {
    const auto ends_so = [&](std::string_view leaf) { return name.ends_with(leaf); };
    if (std::ranges::any_of(kOfActivations, ends_so)) return true;
    const auto is_of_module = [&](std::string_view leaf) {
      return ends_so(leaf) && modules_.contains(name.substr(0, name.size() - leaf.size()));
    };
    return std::ranges::any_of(leaves.marks, is_of_module) ||
           std::ranges::any_of(leaves.others, is_of_module) || is_of_module(".bias");
  }

  Result<std::shared_ptr<QuantizedMatrix>> matrix_of(const std::string& module,
                                                     const TensorSpec& spec) const {
    const QuantScheme* scheme = quantization_.schemes.size() == 1
                                    ? &quantization_.schemes.front()
                                    : find_scheme(quantization_, module);
    if (spec.shape.size() == 3) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + spec.name +
                                            "' is quantised, and has all experts in one, which is "
                                            "not read; needed is the checkpoint that it was made "
                                            "from"};
    }
    if (scheme == nullptr || spec.shape.size() != 2) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + spec.name +
                                            "' is quantised, and quantization_config does not say "
                                            "how: no target of config_groups names it"};
    }
    return QuantizedMatrix::describe(*file_, quantization_, *scheme, module, spec.shape[0],
                                     spec.shape[1]);
  }

  // Some programs save a bias of zeros with every matrix, whether its model has one or not.
  Result<void> check_bias(const std::string& name) const {
    const auto bias = file_->stored(name);
    if (!bias.has_value() || biases_.contains(name)) return {};
    std::int64_t count = 1;
    for (const std::int64_t size : bias->shape) count *= size;
    const auto tensor = file_->tensor({name, bias->shape, {}});
    if (!tensor.ok()) return tensor.error();
    std::vector<unsigned char> bytes(
        static_cast<std::size_t>(count * kernels::element_size(tensor->type)));
    if (auto read = tensor->read(0, bytes.size(), bytes.data()); !read.ok()) return read;
    if (std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; })) return {};
    return Error{ErrorCode::kInvalid,
                 bias->path + ": tensor '" + name + "' is not 0, and config.json asks for no bias"};
  }

  const Quantization quantization_;
  std::set<std::string> modules_;            // those that are quantised
  std::map<std::string, TensorSpec> asked_;  // by module
  std::set<std::string> biases_;             // asked for
};

}  // namespace

std::unique_ptr<TensorSource> dequantized(std::unique_ptr<TensorSource> file,
                                          const Quantization& quantization) {
  const QuantMethod method = quantization.method;
  if (method == QuantMethod::kNone || method == QuantMethod::kGguf) return file;
  if (method == QuantMethod::kMxFp4) return fp4_source(std::move(file));
  return std::make_unique<QuantizedSource>(std::move(file), quantization);
}

}  // namespace lmtp::model
