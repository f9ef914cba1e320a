// Which tensors of a file a quantised matrix is, and whether they are as they should be.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_files.h"
#include "quantized_matrix.h"

namespace lmtp::model {
namespace {

std::string either(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " or ") + name;
  return text;
}

using Shapes = std::vector<std::vector<std::int64_t>>;

// The tensor, if its type and its shape are among those allowed.
Result<StoredTensor> find(const TensorSource& file, const std::string& name,
                          const std::vector<std::string>& types, const Shapes& shapes) {
  auto tensor = file.stored(name);
  if (!tensor.has_value()) {
    return Error{ErrorCode::kInvalid, file.origin() + ": tensor '" + name +
                                          "' is missing, and quantization_config asks for it"};
  }
  if (std::ranges::find(types, tensor->type) == types.end()) {
    return tensor_error(*tensor, "its type is " + tensor->type +
                                     ", and quantization_config asks for " + either(types));
  }
  if (std::ranges::find(shapes, tensor->shape) == shapes.end()) {
    return tensor_error(*tensor, "its shape is " + shape_text(tensor->shape) +
                                     ", and config.json asks for " + shape_text(shapes.front()));
  }
  return *tensor;
}

}  // namespace

Error tensor_error(const StoredTensor& tensor, const std::string& what) {
  return {ErrorCode::kInvalid, tensor.path + ": tensor '" + tensor.name + "': " + what};
}

Result<std::shared_ptr<QuantizedMatrix>> QuantizedMatrix::describe(const TensorSource& file,
                                                                   const Quantization& quantization,
                                                                   const QuantScheme& scheme,
                                                                   const std::string& module,
                                                                   std::int64_t n, std::int64_t k) {
  std::shared_ptr<QuantizedMatrix> matrix(new QuantizedMatrix(module, n, k));
  const auto found = matrix->find_tensors(file, quantization, scheme);
  if (!found.ok()) return found.error();
  return matrix;
}

Result<void> QuantizedMatrix::find_tensors(const TensorSource& file,
                                           const Quantization& quantization,
                                           const QuantScheme& scheme) {
  group_ = scheme.block_inputs > 0 ? std::min(scheme.block_inputs, k_) : k_;
  outputs_per_scale_ = scheme.strategy == QuantStrategy::kTensor ? n_ : scheme.block_outputs;
  is_float_ = scheme.is_float;
  // Integer products of 4 bits have a group of that size, though a matrix may have fewer inputs.
  rounds_inputs_ = scheme.rounds_activations && !(scheme.num_bits == 4 && quantization.ordered);
  if (rounds_inputs_ && scheme.num_bits == 4) group_ = scheme.block_inputs;
  is_ordered_ = quantization.ordered;
  num_bits_ = scheme.packed ? scheme.num_bits : 8;
  base_ = num_bits_ == 4 && !is_float_ ? 8 : 0;
  if (quantization.method == QuantMethod::kGptq || quantization.method == QuantMethod::kAwq) {
    return find_packed_by_columns(file, quantization);
  }
  layout_ = scheme.is_fp4() ? Layout::kPairs : scheme.packed ? Layout::kWords : Layout::kBytes;
  const bool is_model_opt = quantization.method == QuantMethod::kModelOpt;
  auto codes = scheme.is_fp4() ? find(file, module_ + (is_model_opt ? ".weight" : ".weight_packed"),
                                      {"U8"}, {{n_, quotient(k_, 2)}})
               : scheme.packed
                   ? find(file, module_ + ".weight_packed", {"I32"},
                          {{n_, quotient(k_ * num_bits_, kWordBits)}})
                   : find(file, module_ + ".weight", {is_float_ ? "F8_E4M3" : "I8"}, {{n_, k_}});
  if (!codes.ok()) return codes.error();
  codes_ = std::move(*codes);
  if (scheme.packed && !scheme.is_fp4()) {
    auto shape = find(file, module_ + ".weight_shape", {"I64", "I32"}, {{2}});
    if (!shape.ok()) return shape.error();
    shape_ = std::move(*shape);
  }
  if (auto scales = find_scales(file, quantization, scheme); !scales.ok()) return scales;
  if (auto zeros = find_zeros(file, scheme); !zeros.ok()) return zeros;
  return find_order(file, ".weight_g_idx");
}

Result<void> QuantizedMatrix::find_scales(const TensorSource& file,
                                          const Quantization& quantization,
                                          const QuantScheme& scheme) {
  std::string name = module_ + (quantization.method == QuantMethod::kSmoothQuant ? ".scale"
                                : quantization.method == QuantMethod::kFp8 ? ".weight_scale_inv"
                                                                           : ".weight_scale");
  // fp8 by a matrix or an output has either name.
  if (!file.stored(name).has_value() && file.stored(module_ + ".weight_scale").has_value()) {
    name = module_ + ".weight_scale";
  }
  Shapes shapes = {{num_scales(), num_groups()}};
  if (num_groups() == 1) shapes.push_back({num_scales()});
  if (num_groups() == 1 && num_scales() == 1) shapes.emplace_back();
  // fp8 by vLLM: config.json does not say whether a tensor or an output has a scale.
  if (scheme.strategy == QuantStrategy::kTensor) {
    const auto there = file.stored(name);
    const Shapes by_output = {{n_, 1}, {n_}};
    if (there.has_value() && std::ranges::find(by_output, there->shape) != by_output.end()) {
      outputs_per_scale_ = 1;
      shapes = by_output;
    }
  }
  std::vector<std::string> types = {"F32", "F16", "BF16"};
  if (scheme.is_fp4()) types = {scheme.block_inputs == 32 ? "U8" : "F8_E4M3"};  // MXFP4, NVFP4
  auto scales = find(file, name, types, shapes);
  if (!scales.ok()) return scales.error();
  scales_ = std::move(*scales);
  if (scales_.type != "F8_E4M3") return {};
  divides_by_global_ = quantization.method != QuantMethod::kModelOpt;
  auto global =
      find(file, module_ + (divides_by_global_ ? ".weight_global_scale" : ".weight_scale_2"),
           {"F32"}, {{1}, {}, {1, 1}});
  if (!global.ok()) return global.error();
  global_ = std::move(*global);
  return {};
}

// Whole numbers as the scales lie, or packed along the outputs.
Result<void> QuantizedMatrix::find_zeros(const TensorSource& file, const QuantScheme& scheme) {
  const std::string name = module_ + ".weight_zero_point";
  const auto there = file.stored(name);
  if (is_float_ || (scheme.symmetric && !there.has_value())) return {};
  const bool packed = there.has_value() && there->type == "I32";
  // Zeros that nobody needs, of whatever type.
  if (scheme.symmetric && !packed && there->type != "I8") return {};
  auto zeros = packed ? find(file, name, {"I32"},
                             {{quotient(num_scales() * num_bits_, kWordBits), num_groups()}})
                      : find(file, name, {"I8"}, {scales_.shape});
  if (!zeros.ok()) return zeros.error();
  zeros_ = std::move(*zeros);
  return {};
}

Result<void> QuantizedMatrix::find_packed_by_columns(const TensorSource& file,
                                                     const Quantization& quantization) {
  const bool is_gptq = quantization.method == QuantMethod::kGptq;
  layout_ = is_gptq ? Layout::kGptq : Layout::kAwq;
  zeros_plus_ = quantization.zeros_minus_one ? 1 : 0;
  const std::int64_t of_inputs = quotient(k_ * num_bits_, kWordBits);
  const std::int64_t of_outputs = quotient(n_ * num_bits_, kWordBits);
  auto codes = find(file, module_ + ".qweight", {"I32"},
                    {is_gptq ? std::vector{of_inputs, n_} : std::vector{k_, of_outputs}});
  if (!codes.ok()) return codes.error();
  auto scales = find(file, module_ + ".scales", {"F16", "BF16", "F32"}, {{num_groups(), n_}});
  if (!scales.ok()) return scales.error();
  auto zeros = find(file, module_ + ".qzeros", {"I32"}, {{num_groups(), of_outputs}});
  if (!zeros.ok()) return zeros.error();
  codes_ = std::move(*codes);
  scales_ = std::move(*scales);
  zeros_ = std::move(*zeros);
  return is_gptq ? find_order(file, ".g_idx") : Result<void>();
}

Result<void> QuantizedMatrix::find_order(const TensorSource& file, const char* leaf) {
  if (!file.stored(module_ + leaf).has_value()) return {};
  auto order = find(file, module_ + leaf, {"I32"}, {{k_}});
  if (!order.ok()) return order.error();
  order_ = std::move(*order);
  return {};
}

}  // namespace lmtp::model
