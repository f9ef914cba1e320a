#include "kv_copy.h"

#include <algorithm>

namespace lmtp::kernels::plain {
namespace {

// Tokens that one task stores.
constexpr std::int64_t kTokensPerTask = kBlockSize;

// The rows [row, end) go to slots of one block that follow one another: a dimension's keys lie
// together there, so they are written together.
void store_run(const KvStoreArgs& args, std::int64_t row, std::int64_t end) {
  const KvLayer& cache = args.cache;
  const std::int32_t slot = args.slots[row];
  float* keys = cache.f32_keys(slot / kBlockSize) + slot % kBlockSize;
  const std::int64_t width = std::int64_t{cache.num_kv_heads} * cache.head_dim;
  for (std::int64_t i = 0; i < width; ++i, keys += kBlockSize) {
    for (std::int64_t r = row; r < end; ++r) {
      keys[r - row] = args.keys.row(r)[i];
    }
  }
  const int padded = padded_head_dim(cache.head_dim);
  for (std::int64_t r = row; r < end; ++r) {
    float* values = cache.f32_values(slot / kBlockSize) + (slot % kBlockSize + r - row) * padded;
    const float* value = args.values.row(r);
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      std::copy_n(value, cache.head_dim, values);
      std::fill(values + cache.head_dim, values + padded, 0.0F);
      value += cache.head_dim;
      values += std::int64_t{kBlockSize} * padded;
    }
  }
}

// Does row + 1 go to the slot after that of `row`, in the same block?
bool is_next(const KvStoreArgs& args, std::int64_t row) {
  const std::int32_t next = args.slots[row] + 1;
  return args.slots[row + 1] == next && next % kBlockSize != 0;
}

}  // namespace

void kv_store(Stream& stream, const KvStoreArgs& args) {
  const std::int64_t rows = args.keys.rows;
  const auto num_tasks = static_cast<int>((rows + kTokensPerTask - 1) / kTokensPerTask);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * kTokensPerTask);
    for (std::int64_t row = task * kTokensPerTask; row < end;) {
      std::int64_t run_end = row + 1;
      while (run_end < end && is_next(args, run_end - 1)) {
        ++run_end;
      }
      store_run(args, row, run_end);
      row = run_end;
    }
  });
}

void kv_copy(Stream&, const KvLayer& cache, const KvCopy* copies, std::int64_t num_copies) {
  const std::int64_t padded = padded_head_dim(cache.head_dim);
  for (std::int64_t i = 0; i < num_copies; ++i) {
    const KvCopy& copy = copies[i];
    const float* key_from = cache.f32_keys(copy.from);
    float* key_to = cache.f32_keys(copy.to);
    for (std::int64_t d = 0; d < std::int64_t{cache.num_kv_heads} * cache.head_dim; ++d) {
      std::copy_n(key_from + d * kBlockSize, copy.num_tokens, key_to + d * kBlockSize);
    }
    const float* value_from = cache.f32_values(copy.from);
    float* value_to = cache.f32_values(copy.to);
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      std::copy_n(value_from + head * kBlockSize * padded, copy.num_tokens * padded,
                  value_to + head * kBlockSize * padded);
    }
  }
}

}  // namespace lmtp::kernels::plain
