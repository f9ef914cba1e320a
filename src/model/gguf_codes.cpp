#include "gguf_codes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/gguf/codes.h"

namespace lmtp::model {
namespace {

// Of a layer: what architectures stack.
constexpr std::string_view kStacks[][3] = {{"attn_q", "attn_k", "attn_v"},
                                           {"ffn_gate", "ffn_up", ""},
                                           {"ffn_gate_exps", "ffn_up_exps", ""}};
constexpr std::string_view kWeightLeaf = ".weight";

// Whether the tensor is packed as one with others of another type.
bool is_mixed(const gguf::GgufFile& file, const gguf::Tensor& tensor) {
  const std::string_view name = tensor.name;
  if (!name.starts_with("blk.") || !name.ends_with(kWeightLeaf)) return false;
  const std::string_view module = name.substr(0, name.size() - kWeightLeaf.size());
  const std::size_t point = module.rfind('.');
  const std::string layer(module.substr(0, point + 1));
  for (const auto& stack : kStacks) {
    const std::string_view stem = module.substr(point + 1);
    if (std::find(std::begin(stack), std::end(stack), stem) == std::end(stack)) continue;
    return std::any_of(std::begin(stack), std::end(stack), [&](std::string_view part) {
      const gguf::Tensor* other =
          file.find_tensor(layer + std::string(part) + std::string(kWeightLeaf));
      return other != nullptr && other->type != tensor.type;
    });
  }
  return false;
}

}  // namespace

std::optional<kernels::Grouping> gguf_grouping(const gguf::GgufFile& file,
                                               const gguf::Tensor& tensor) {
  const auto layout = gguf::code_layout(*tensor.type);
  if (!layout || tensor.shape.size() < 2) return std::nullopt;
  kernels::Grouping grouping;
  grouping.has_offsets = layout->has_offsets;
  grouping.scales = layout->has_half_scales ? kernels::ElementType::kF16
                    : layout->is_float      ? kernels::ElementType::kBF16
                                            : kernels::ElementType::kF32;
  if (is_mixed(file, tensor)) {
    grouping.codes = kernels::CodeType::kInt8;
    grouping.group = kernels::kGroupMin;
  } else {
    grouping.codes = layout->is_float    ? kernels::CodeType::kE2M1
                     : layout->bits == 4 ? kernels::CodeType::kInt4
                                         : kernels::CodeType::kInt8;
    grouping.group = layout->group;
  }
  return grouping;
}

bool unpack_row(const gguf::Tensor& tensor, const kernels::Grouping& grouping, const void* blocks,
                const kernels::CodePiece& to) {
  const gguf::CodeLayout layout = *gguf::code_layout(*tensor.type);
  const std::int64_t k = tensor.shape.back();
  std::vector<float> scales(static_cast<std::size_t>(k / layout.group));
  std::vector<float> offsets(scales.size());
  const bool all_finite =
      gguf::unpack_codes(*tensor.type, blocks, k / tensor.type->block_elements,
                         {.codes = to.codes, .scales = scales.data(), .offsets = offsets.data()});
  // Codes that stand for another number than themselves, as a byte says it.
  const bool is_byte = grouping.codes == kernels::CodeType::kInt8;
  if (layout.is_float && is_byte) {
    constexpr int kHalves[] = {0, 1, 2, 3, 4, 6, 8, 12};
    std::for_each(to.codes, to.codes + k, [&](std::uint8_t& code) {
      code = static_cast<std::uint8_t>(code < 8 ? kHalves[code] : -kHalves[code & 7U]);
    });
    for (float& scale : scales) scale *= 0.5F;
  } else if (layout.bits == 4 && !layout.has_offsets && is_byte) {
    std::for_each(to.codes, to.codes + k,
                  [](std::uint8_t& code) { code = static_cast<std::uint8_t>(code - 8); });
  }
  for (std::int64_t group = 0; group < k / grouping.group; ++group) {
    const auto at = static_cast<std::size_t>(group * grouping.group / layout.group);
    to.scales[group] = scales[at];
    if (to.offsets != nullptr) to.offsets[group] = offsets[at];
  }
  return all_finite;
}

}  // namespace lmtp::model
