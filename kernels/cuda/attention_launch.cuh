// Launches of decode and prefill for one element type: a source file for each, since one takes nvcc
// minutes.
#pragma once

#include "cuda/attention_decode.cuh"
#include "cuda/attention_prefill.cuh"

namespace lmtp::kernels::cuda {

struct AttentionLaunch {
  AttentionParams params;
  bool decode = false;
  bool prefill = false;
  int chunk_max = 0;
};

void launch_attention_bf16(const AttentionLaunch& launch, StreamHandle stream);
void launch_attention_f16(const AttentionLaunch& launch, StreamHandle stream);
void launch_attention_e4m3(const AttentionLaunch& launch, StreamHandle stream);

// kDimTiles: at least the tiles of a head's dimensions.
template <typename T, int kDimTiles>
void launch_attention(const AttentionLaunch& attention, StreamHandle stream) {
  const AttentionParams& p = attention.params;
  if (attention.decode) {
    launch<attention_decode_kernel<T, kDimTiles>>(
        {.grid = {p.num_parts > 0 ? p.num_parts : p.splits_max, p.cache.num_kv_heads,
                  p.num_parts > 0 ? 1 : p.num_sequences},
         .num_threads = kDecodeThreads,
         .shared_bytes = decode_shared_bytes(p.value_tiles, element_size(p.cache.type))},
        stream, p);
  }
  if (attention.prefill) {
    const int tiles = ceil_divide(attention.chunk_max * p.group, kPrefillRows);
    launch<attention_prefill_kernel<T, kDimTiles>>(
        {.grid = {tiles, p.cache.num_kv_heads, p.num_sequences},
         .num_threads = kPrefillThreads,
         .shared_bytes = sizeof(PrefillShared<T, kDimTiles>)},
        stream, p);
  }
}

template <typename T>
void launch_attention(const AttentionLaunch& attention, StreamHandle stream) {
  const int dim_tiles = attention.params.dim_tiles;
  if (dim_tiles <= 2) {
    launch_attention<T, 2>(attention, stream);
  } else if (dim_tiles <= 4) {
    launch_attention<T, 4>(attention, stream);
  } else if (dim_tiles <= 6) {
    launch_attention<T, 6>(attention, stream);
  } else if (dim_tiles <= 8) {
    launch_attention<T, 8>(attention, stream);
  } else {
    launch_attention<T, 16>(attention, stream);
  }
}

}  // namespace lmtp::kernels::cuda
