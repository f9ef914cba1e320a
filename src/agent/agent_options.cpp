#include "lmtp/agent/agent_options.h"

namespace lmtp::agent {

const char* dtype_name(kernels::WeightType type) {
  switch (type) {
    case kernels::WeightType::kF32:
    case kernels::WeightType::kF32AsBF16:
    case kernels::WeightType::kF32AsF16:
      return "float32";
    case kernels::WeightType::kBF16:
      return "bfloat16";
    case kernels::WeightType::kInt8:
      return "int8";
    case kernels::WeightType::kF16:
      return "float16";
    case kernels::WeightType::kInt4:
      return "int4";
    case kernels::WeightType::kWidened:
      return "widened";
  }
  return "";
}

const char* kv_dtype_name(kernels::ElementType type) {
  switch (type) {
    case kernels::ElementType::kF32:
      return "float32";
    case kernels::ElementType::kF16:
      return "float16";
    case kernels::ElementType::kBF16:
      return "bfloat16";
    case kernels::ElementType::kE4M3:
      return "fp8_e4m3";
  }
  return "";
}

kernels::ElementType kv_type(const AgentOptions& options) {
  return options.kv_cache_type.value_or(kernels::element_type(options.weight_type));
}

std::string device_name(const AgentOptions& options) {
  if (!options.cuda_device.has_value()) return "cpu";
  std::string name = "cuda:" + std::to_string(*options.cuda_device);
  for (int rank = 1; rank < options.num_ranks; ++rank) {
    name += "," + std::to_string(*options.cuda_device + rank);
  }
  return name;
}

}  // namespace lmtp::agent
