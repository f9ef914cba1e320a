#include "kv_copy.h"

#include <algorithm>

namespace lmtp::kernels::plain {
namespace {

// Tokens that one task stores.
constexpr std::int64_t kTokensPerTask = 8;

void store_token(const KvStoreArgs& args, std::int64_t row) {
  const KvLayer& cache = args.cache;
  const std::int32_t slot = args.slots[row];
  float* keys = cache.keys + slot / kBlockSize * cache.key_block_size() + slot % kBlockSize;
  const float* key = args.keys.row(row);
  const std::int64_t width = std::int64_t{cache.num_kv_heads} * cache.head_dim;
  for (std::int64_t i = 0; i < width; ++i) {
    keys[i * kBlockSize] = key[i];
  }
  const int padded = padded_head_dim(cache.head_dim);
  float* values = cache.values + slot / kBlockSize * cache.value_block_size() +
                  std::int64_t{slot % kBlockSize} * padded;
  const float* value = args.values.row(row);
  for (int head = 0; head < cache.num_kv_heads; ++head) {
    std::copy_n(value, cache.head_dim, values);
    std::fill(values + cache.head_dim, values + padded, 0.0F);
    value += cache.head_dim;
    values += std::int64_t{kBlockSize} * padded;
  }
}

}  // namespace

void kv_store(Stream& stream, const KvStoreArgs& args) {
  const std::int64_t rows = args.keys.rows;
  const auto num_tasks = static_cast<int>((rows + kTokensPerTask - 1) / kTokensPerTask);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * kTokensPerTask);
    for (std::int64_t row = task * kTokensPerTask; row < end; ++row) {
      store_token(args, row);
    }
  });
}

void kv_copy(Stream&, const KvLayer& cache, const KvCopy* copies, std::int64_t num_copies) {
  const std::int64_t padded = padded_head_dim(cache.head_dim);
  for (std::int64_t i = 0; i < num_copies; ++i) {
    const KvCopy& copy = copies[i];
    const float* key_from = cache.keys + copy.from * cache.key_block_size();
    float* key_to = cache.keys + copy.to * cache.key_block_size();
    for (std::int64_t d = 0; d < std::int64_t{cache.num_kv_heads} * cache.head_dim; ++d) {
      std::copy_n(key_from + d * kBlockSize, copy.num_tokens, key_to + d * kBlockSize);
    }
    const float* value_from = cache.values + copy.from * cache.value_block_size();
    float* value_to = cache.values + copy.to * cache.value_block_size();
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      std::copy_n(value_from + head * kBlockSize * padded, copy.num_tokens * padded,
                  value_to + head * kBlockSize * padded);
    }
  }
}

}  // namespace lmtp::kernels::plain
