#include "lmtp/catalog/dtype_choice.h"

namespace lmtp::catalog {
namespace {

struct Name {
  const char* name;
  std::optional<kernels::WeightType> type;
};

constexpr const char* kHalfNote =
    "float16 is computed as float32 on a CPU; bfloat16 takes half the memory";

const Name kNames[] = {
    {"auto", std::nullopt},
    {"float32", kernels::WeightType::kF32},
    {"fp32", kernels::WeightType::kF32},
    {"f32", kernels::WeightType::kF32},
    {"bfloat16", kernels::WeightType::kBF16},
    {"bf16", kernels::WeightType::kBF16},
    {"float16", kernels::WeightType::kF16},
    {"fp16", kernels::WeightType::kF16},
    {"f16", kernels::WeightType::kF16},
    {"half", kernels::WeightType::kF16},
    {"int8", kernels::WeightType::kInt8},
    {"8bit", kernels::WeightType::kInt8},
    {"int4", kernels::WeightType::kInt4},
    {"4bit", kernels::WeightType::kInt4},
};

struct KvName {
  const char* name;
  std::optional<kernels::ElementType> type;
};

const KvName kKvNames[] = {
    {"auto", std::nullopt},
    {"float32", kernels::ElementType::kF32},
    {"fp32", kernels::ElementType::kF32},
    {"f32", kernels::ElementType::kF32},
    {"bfloat16", kernels::ElementType::kBF16},
    {"bf16", kernels::ElementType::kBF16},
    {"float16", kernels::ElementType::kF16},
    {"fp16", kernels::ElementType::kF16},
    {"f16", kernels::ElementType::kF16},
    {"half", kernels::ElementType::kF16},
    {"fp8_e4m3", kernels::ElementType::kE4M3},
    {"fp8", kernels::ElementType::kE4M3},
};

}  // namespace

Result<DtypeChoice> parse_dtype(const std::string& name, bool on_device) {
  for (const Name& known : kNames) {
    if (name != known.name) continue;
    if (!on_device && known.type == kernels::WeightType::kF16) {
      return DtypeChoice{kernels::WeightType::kF32, kHalfNote};
    }
    return DtypeChoice{known.type, ""};
  }
  return Error{ErrorCode::kInvalid,
               "--dtype: '" + name +
                   "' is unknown; allowed are float32, bfloat16, float16, int8, int4 and auto"};
}

Result<std::optional<kernels::ElementType>> parse_kv_cache_dtype(const std::string& name) {
  for (const KvName& known : kKvNames) {
    if (name == known.name) return known.type;
  }
  return Error{ErrorCode::kInvalid, "--kv-cache-dtype: '" + name +
                                        "' is unknown; allowed are float32, bfloat16, float16, "
                                        "fp8_e4m3 (fp8) and auto"};
}

}  // namespace lmtp::catalog
