#include "kv_copy.h"

#include <algorithm>

#include "kernels/e4m3.h"
#include "lmtp/base/half.h"
#include "round_bf16.h"

namespace lmtp::kernels::plain {
namespace {

// Tokens that one task stores.
constexpr std::int64_t kTokensPerTask = kBlockSize;

template <ElementType kType>
void round_row(const float* from, int count, int padded, std::uint16_t* to) {
  for (int i = 0; i < count; ++i) {
    to[i] = static_cast<std::uint16_t>(kType == ElementType::kF16 ? round_to_half(from[i])
                                                                  : round_to_bf16(from[i]));
  }
  std::fill(to + count, to + padded, std::uint16_t{0});
}

// Stores the rows [row, end) to consecutive slots of one block, where each dimension's keys are
// contiguous.
void store_run_f32(const KvStoreArgs& args, std::int64_t row, std::int64_t end) {
  const KvLayer& cache = args.cache;
  const std::int32_t slot = args.slots[row];
  float* keys = cache.key_units(slot / kBlockSize) + slot % kBlockSize;
  const std::int64_t width = std::int64_t{cache.num_kv_heads} * cache.head_dim;
  for (std::int64_t i = 0; i < width; ++i, keys += kBlockSize) {
    for (std::int64_t r = row; r < end; ++r) keys[r - row] = args.keys.row(r)[i];
  }
  const int padded = padded_head_dim(cache.head_dim);
  for (std::int64_t r = row; r < end; ++r) {
    float* values = cache.value_units(slot / kBlockSize) + (slot % kBlockSize + r - row) * padded;
    const float* value = args.values.row(r);
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      std::copy_n(value, cache.head_dim, values);
      std::fill(values + cache.head_dim, values + padded, 0.0F);
      value += cache.head_dim;
      values += std::int64_t{kBlockSize} * padded;
    }
  }
}

// Other code reads the cache as f32 units.
using Half [[gnu::may_alias]] = std::uint16_t;

// store_run_f32 in bf16 or f16. A unit of keys belongs to one token, one of values to two: each
// token writes its half.
template <ElementType kType>
void store_run_16(const KvStoreArgs& args, std::int64_t row, std::int64_t end) {
  const KvLayer& cache = args.cache;
  const std::int32_t slot = args.slots[row];
  const int padded = padded_head_dim(cache.head_dim);
  std::uint16_t rounded[kHeadDimMax];
  for (std::int64_t r = row; r < end; ++r) {
    const std::int64_t token = slot % kBlockSize + r - row;
    auto* keys = reinterpret_cast<Half*>(cache.key_units(slot / kBlockSize) + token);
    auto* values =
        reinterpret_cast<Half*>(cache.value_units(slot / kBlockSize) + token / 2 * padded) +
        token % 2;
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      round_row<kType>(args.keys.row(r) + head * cache.head_dim, cache.head_dim, padded, rounded);
      for (int d = 0; d < padded; d += 2, keys += 2 * kBlockSize) std::copy_n(rounded + d, 2, keys);
      round_row<kType>(args.values.row(r) + head * cache.head_dim, cache.head_dim, padded, rounded);
      for (int d = 0; d < padded; ++d) values[2 * d] = rounded[d];
      values += std::int64_t{kBlockSize} * padded;
    }
  }
}

using Byte [[gnu::may_alias]] = std::uint8_t;

void round_row_e4m3(const float* from, int count, int padded, std::uint8_t* to) {
  for (int i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(round_to_e4m3(from[i]));
  std::fill(to + count, to + padded, std::uint8_t{0});
}

// store_run_f32 in e4m3, where units of values are of four tokens.
void store_run_e4m3(const KvStoreArgs& args, std::int64_t row, std::int64_t end) {
  const KvLayer& cache = args.cache;
  const std::int32_t slot = args.slots[row];
  const int padded = padded_head_dim(cache.head_dim);
  std::uint8_t rounded[kHeadDimMax];
  for (std::int64_t r = row; r < end; ++r) {
    const auto token = static_cast<int>(slot % kBlockSize + r - row);
    auto* keys = reinterpret_cast<Byte*>(cache.key_units(slot / kBlockSize) + token);
    auto* values = reinterpret_cast<Byte*>(cache.value_units(slot / kBlockSize) +
                                           std::int64_t{token / 4} * padded) +
                   byte_of_e4m3(token % 4);
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      round_row_e4m3(args.keys.row(r) + head * cache.head_dim, cache.head_dim, padded, rounded);
      for (int d = 0; d < padded; d += 4, keys += 4 * kBlockSize) {
        for (int i = 0; i < 4; ++i) keys[byte_of_e4m3(i)] = rounded[d + i];
      }
      round_row_e4m3(args.values.row(r) + head * cache.head_dim, cache.head_dim, padded, rounded);
      for (int d = 0; d < padded; ++d) values[4 * d] = rounded[d];
      values += std::int64_t{kBlockSize} * padded;
    }
  }
}

using StoreRun = void (*)(const KvStoreArgs&, std::int64_t row, std::int64_t end);

StoreRun store_run_of(ElementType type) {
  return type == ElementType::kF32    ? store_run_f32
         : type == ElementType::kE4M3 ? store_run_e4m3
         : type == ElementType::kF16  ? store_run_16<ElementType::kF16>
                                      : store_run_16<ElementType::kBF16>;
}

// Does row + 1 go to the slot after that of `row`, in the same block?
bool is_next(const KvStoreArgs& args, std::int64_t row) {
  const std::int32_t next = args.slots[row] + 1;
  return args.slots[row + 1] == next && next % kBlockSize != 0;
}

// Of a block of the cache, or of the host behind them.
float* units_of(const KvLayer& cache, void* own, void* host, std::int64_t block) {
  const bool is_own = block < cache.num_blocks;
  return static_cast<float*>(is_own ? own : host) +
         (is_own ? block : block - cache.num_blocks) * (cache.block_size() / cache.per_unit());
}

}  // namespace

void kv_store(Stream& stream, const KvStoreArgs& args) {
  const std::int64_t rows = args.keys.rows;
  const auto num_tasks = static_cast<int>((rows + kTokensPerTask - 1) / kTokensPerTask);
  const StoreRun store_run = store_run_of(args.cache.type);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * kTokensPerTask);
    for (std::int64_t row = task * kTokensPerTask; row < end;) {
      std::int64_t run_end = row + 1;
      while (run_end < end && is_next(args, run_end - 1)) ++run_end;
      store_run(args, row, run_end);
      row = run_end;
    }
  });
}

void kv_copy(Stream&, const KvLayer& cache, const KvCopies& copies) {
  const std::int64_t padded = padded_head_dim(cache.head_dim);
  for (std::int64_t i = 0; i < copies.count; ++i) {
    const KvCopy& copy = copies.copies[i];
    const float* key_from = units_of(cache, cache.keys, copies.host_keys, copy.from);
    float* key_to = units_of(cache, cache.keys, copies.host_keys, copy.to);
    for (std::int64_t row = 0; row < std::int64_t{cache.num_kv_heads} * cache.key_rows(); ++row) {
      std::copy_n(key_from + row * kBlockSize, copy.num_tokens, key_to + row * kBlockSize);
    }
    const float* value_from = units_of(cache, cache.values, copies.host_values, copy.from);
    float* value_to = units_of(cache, cache.values, copies.host_values, copy.to);
    const std::int64_t head_size = cache.value_rows() * padded;
    // Whole units: tokens beyond num_tokens are copied too, but not read.
    const std::int64_t num_rows = (copy.num_tokens + cache.per_unit() - 1) / cache.per_unit();
    for (int head = 0; head < cache.num_kv_heads; ++head) {
      std::copy_n(value_from + head * head_size, num_rows * padded, value_to + head * head_size);
    }
  }
}

}  // namespace lmtp::kernels::plain
