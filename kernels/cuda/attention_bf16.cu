#include "cuda/attention_launch.cuh"

namespace lmtp::kernels::cuda {

void launch_attention_bf16(const AttentionLaunch& launch, StreamHandle stream) {
  launch_attention<BF16>(launch, stream);
}

}  // namespace lmtp::kernels::cuda
