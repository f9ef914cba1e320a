#include "cuda/attention_launch.cuh"

namespace lmtp::kernels::cuda {

void launch_attention_e4m3(const AttentionLaunch& launch, StreamHandle stream) {
  launch_attention<E4M3>(launch, stream);
}

}  // namespace lmtp::kernels::cuda
