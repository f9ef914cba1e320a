#include "cuda/kv_store.h"

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {
namespace {

constexpr int kStoreThreads = 256;

struct StoreParams {
  const float* keys;
  const float* values;
  std::int64_t key_stride;
  std::int64_t value_stride;
  const std::int32_t* slots;
  KvLayer cache;
  int padded_dim;
};

template <typename T>
__device__ void store_pair(const StoreParams& p, std::int64_t head_at, int token, int dimension,
                           const float (&key)[2], const float (&value)[2]) {
  const std::int64_t tile = head_at + std::int64_t{dimension / kTileSide} * kTileElements;
  const int within = dimension % kTileSide;
  auto* keys = static_cast<std::uint32_t*>(p.cache.keys);
  keys[(tile + offset_in_tile(token, within)) / 2] = round_pair<T>(key[0], key[1]);
  auto* values = static_cast<std::uint16_t*>(p.cache.values) + tile;
  const std::uint32_t pair = round_pair<T>(value[0], value[1]);
  values[offset_of_value(token, within)] = static_cast<std::uint16_t>(pair);
  values[offset_of_value(token, within + 1)] = static_cast<std::uint16_t>(pair >> 16);
}

__device__ void store_pair_e4m3(const StoreParams& p, std::int64_t head_at, int token,
                                int dimension, const float (&key)[2], const float (&value)[2]) {
  const std::int64_t tile = head_at + std::int64_t{dimension / kTileSide} * kTileElements;
  auto* keys = static_cast<std::uint8_t*>(p.cache.keys) + tile;
  auto* values = static_cast<std::uint8_t*>(p.cache.values) + tile;
  for (int i = 0; i < 2; ++i) {
    const int within = dimension % kTileSide + i;
    keys[e4m3_offset(offset_in_tile(token, within))] =
        static_cast<std::uint8_t>(round_to_e4m3(key[i]));
    values[e4m3_offset(offset_of_value(token, within))] =
        static_cast<std::uint8_t>(round_to_e4m3(value[i]));
  }
}

// A thread stores two neighbouring dimensions of a token.
__global__ void __launch_bounds__(kStoreThreads) kv_store_kernel(StoreParams p) {
  grid_dependency_wait();
  const int row = block_index().x;
  const int pairs = p.padded_dim / 2;
  const int at = block_index().y * kStoreThreads + thread_index();
  if (at >= p.cache.num_kv_heads * pairs) return;
  const std::int32_t slot = load_where(true, p.slots + row);
  const int token = slot % kBlockSize;
  const int head_dim = p.cache.head_dim;
  const int head = at / pairs;
  const int dimension = at % pairs * 2;
  const float* key = p.keys + row * p.key_stride + head * head_dim + dimension;
  const float* value = p.values + row * p.value_stride + head * head_dim + dimension;
  const bool exists[2] = {dimension < head_dim, dimension + 1 < head_dim};
  const float key_pair[2] = {load_where(exists[0], key), load_where(exists[1], key + 1)};
  const float value_pair[2] = {load_where(exists[0], value), load_where(exists[1], value + 1)};
  const std::int64_t head_at =
      (std::int64_t{slot / kBlockSize} * p.cache.num_kv_heads + head) * kBlockSize * p.padded_dim;
  if (p.cache.type == ElementType::kBF16) {
    store_pair<BF16>(p, head_at, token, dimension, key_pair, value_pair);
  } else if (p.cache.type == ElementType::kF16) {
    store_pair<F16>(p, head_at, token, dimension, key_pair, value_pair);
  } else if (p.cache.type == ElementType::kE4M3) {
    store_pair_e4m3(p, head_at, token, dimension, key_pair, value_pair);
  } else {
    const std::int64_t to = head_at + token * p.padded_dim + dimension;
    for (int i = 0; i < 2; ++i) {
      static_cast<float*>(p.cache.keys)[to + i] = key_pair[i];
      static_cast<float*>(p.cache.values)[to + i] = value_pair[i];
    }
  }
}

}  // namespace

void kv_store(const KvStoreArgs& args, StreamHandle stream) {
  if (args.keys.rows == 0) return;
  const StoreParams params = {.keys = args.keys.data,
                              .values = args.values.data,
                              .key_stride = args.keys.stride,
                              .value_stride = args.values.stride,
                              .slots = args.slots,
                              .cache = args.cache,
                              .padded_dim = padded_head_dim(args.cache.head_dim)};
  const int blocks = ceil_divide(args.cache.num_kv_heads * params.padded_dim / 2, kStoreThreads);
  launch<kv_store_kernel>(
      {.grid = {static_cast<int>(args.keys.rows), blocks}, .num_threads = kStoreThreads}, stream,
      params);
}

}  // namespace lmtp::kernels::cuda
