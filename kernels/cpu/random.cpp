#include "kernels/random.h"

#include <cstring>

#include "lmtp/base/check.h"
#include "round_bf16.h"

namespace lmtp::kernels {

void fill_random(const FillRandomArgs& args) {
  const RandomTensor tensor = args.tensor;
  LMTP_CHECK(tensor.type != ElementType::kF16);
  auto* bytes = static_cast<unsigned char*>(args.to);
  for (std::int64_t i = 0; i < args.count; ++i) {
    const float value = random_element(tensor, args.first + i);
    if (tensor.type == ElementType::kF32) {
      std::memcpy(bytes + i * 4, &value, 4);
    } else {
      const auto rounded = static_cast<std::uint16_t>(round_to_bf16(value));
      std::memcpy(bytes + i * 2, &rounded, 2);
    }
  }
}

}  // namespace lmtp::kernels
