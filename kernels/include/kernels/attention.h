// Causal attention over a paged cache of keys and values; prefill and decode are the same op.
#pragma once

#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"

namespace lmtp::kernels {

// Tokens of a split. Each split is summed on its own, and the splits of a row are merged in order
// from token 0 (FlashAttention's online softmax), so that a row's bits do not depend on load.
inline constexpr int kAttentionSplit = 256;
inline constexpr int kHeadDimMax = 512;
inline constexpr int kDeviceHeadDimMax = 256;  // limit of the CUDA kernels

// Elements of one token's value in a head: padded, so that vectors need no tail.
constexpr int padded_head_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// The KV blocks of one layer, aligned as Memory. The layout within a block is the backend's. CPU:
// 4-byte units; a unit of keys is one f32, bf16 or f16 of two dimensions or e4m3 of four (e4m3.h),
// a unit of values the same of one, two or four tokens:
//   keys    [num_blocks] blocks of [num_kv_heads][key_rows][kBlockSize]: one lane is one token
//   values  [num_blocks][num_kv_heads][value_rows][padded_head_dim]: one lane is one dimension
// CUDA: cuda/kv_store.h.
struct KvLayer {
  void* keys = nullptr;
  void* values = nullptr;
  std::int32_t num_blocks = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  ElementType type = ElementType::kF32;

  // Elements of a block's keys; its values have as many.
  std::int64_t block_size() const {
    return std::int64_t{num_kv_heads} * kBlockSize * padded_head_dim(head_dim);
  }
  // The CPU's layout, as all below.
  int per_unit() const { return 4 / element_size(type); }
  // But for f32, dimensions beyond head_dim are zero.
  int key_rows() const {
    return type == ElementType::kF32 ? head_dim : padded_head_dim(head_dim) / per_unit();
  }
  int value_rows() const { return kBlockSize / per_unit(); }
  float* key_units(std::int64_t block) const {
    return static_cast<float*>(keys) + block * (block_size() / per_unit());
  }
  float* value_units(std::int64_t block) const {
    return static_cast<float*>(values) + block * (block_size() / per_unit());
  }
};

// slots[i] = block * kBlockSize + offset is where token i's key and value go.
struct KvStoreArgs {
  Matrix<const float> keys;             // [m, num_kv_heads * head_dim] f32
  Matrix<const float> values;           // as keys
  const std::int32_t* slots = nullptr;  // [m], distinct, but in block 0
  KvLayer cache;
};
void kv_store(Stream& stream, const KvStoreArgs& args);

// The first num_tokens tokens of block `from` are copied to block `to`.
struct KvCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
  int num_tokens = 0;  // [1, kBlockSize]
};
// Copies of one layer, which run in order. Blocks of the host are numbered behind the cache's.
struct KvCopies {
  const KvCopy* copies = nullptr;
  std::int64_t count = 0;
  // Page-locked memory for a device, which reads and writes it in place; laid out as the cache's.
  void* host_keys = nullptr;
  void* host_values = nullptr;
  std::int64_t num_host_blocks = 0;
};
void kv_copy(Stream& stream, const KvLayer& cache, const KvCopies& copies);

// Packed ragged rows: sequence s owns the rows [cu_seqlens[s], cu_seqlens[s + 1]), whose positions
// are consecutive from first_positions[s]. The row at position p sees the tokens [0, p], or the
// last `window` of them, token t in block block_tables[table_starts[s] + t / kBlockSize]; they are
// in the cache already.
struct AttentionArgs {
  Matrix<const float> queries;  // [m, num_heads * head_dim] f32
  KvLayer cache;
  int num_heads = 0;   // a multiple of cache.num_kv_heads
  float scale = 1.0F;  // of the scores
  // A scaled score becomes cap * tanh(score / cap); 0: as it is.
  float soft_cap = 0.0F;
  std::int32_t window = 0;  // tokens that a row sees, itself included; 0: all before it
  // [num_heads] scores that a head's rows see beside their tokens', as they are and of no value
  // (attention sinks, Xiao et al. 2023); null: none.
  const float* sinks = nullptr;
  std::int64_t num_sequences = 0;
  // Upper bounds over all sequences, since the host cannot read arrays on a device.
  std::int32_t chunk_max = 0;                     // rows
  std::int32_t context_max = 0;                   // tokens that its last row may see
  std::int32_t num_table_blocks = 0;              // block_offsets[num_sequences], or more
  const std::int32_t* cu_seqlens = nullptr;       // [num_sequences + 1], from 0 to m, or less
  const std::int32_t* first_positions = nullptr;  // [num_sequences]
  // [num_sequences + 1]: the number of blocks of all earlier sequences.
  const std::int32_t* block_offsets = nullptr;
  const std::int32_t* block_tables = nullptr;
  // [num_sequences] where in block_tables each sequence's table begins; may be block_offsets.
  const std::int32_t* table_starts = nullptr;
  Matrix<float> y;  // [m, num_heads * head_dim] f32
};
void paged_attention(Stream& stream, const AttentionArgs& args);

}  // namespace lmtp::kernels
