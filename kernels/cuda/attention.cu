#include "cuda/attention.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/attention_launch.cuh"
#include "cuda/attention_plain.cuh"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

int group_of(const AttentionArgs& args) { return args.num_heads / args.cache.num_kv_heads; }

int splits_of(const AttentionArgs& args) {
  return std::max(1, ceil_divide<int>(args.context_max, kAttentionSplit));
}

int partial_rows_of(const AttentionArgs& args) {
  return std::clamp(args.chunk_max * group_of(args), 1, kDecodePairsMax);
}

bool is_aligned(const Matrix<const float>& queries, int head_dim) {
  return queries.stride % 4 == 0 && head_dim % 4 == 0 &&
         std::bit_cast<std::uintptr_t>(queries.data) % 16 == 0;
}

// How many blocks decode takes by parts; 0 where the splits of the longest are not many more, since
// a block finds its own by two more rounds of loads.
int num_parts_of(const AttentionArgs& args) {
  if (num_tiles(args.cache.head_dim) > kPartsDimTilesMax) return 0;
  const std::int64_t parts = first_part_of(args.num_sequences, args.num_table_blocks);
  const std::int64_t splits = std::int64_t{splits_of(args)} * args.num_sequences;
  return splits > 2 * parts ? static_cast<int>(parts) : 0;
}

AttentionParams params_of(const AttentionArgs& args, const AttentionMemory& memory) {
  const auto dim_tiles = static_cast<int>(num_tiles(args.cache.head_dim));
  return {
      .queries = args.queries.data,
      .query_stride = args.queries.stride,
      .y = args.y.data,
      .y_stride = args.y.stride,
      .cache = args.cache,
      .dim_tiles = dim_tiles,
      .value_tiles = value_tiles_of(dim_tiles, element_size(args.cache.type), shared_bytes_max()),
      .group = group_of(args),
      .scale = args.scale,
      .soft_cap = args.soft_cap,
      .window = args.window,
      .sinks = args.sinks,
      .num_sequences = static_cast<int>(args.num_sequences),
      .cu_seqlens = args.cu_seqlens,
      .first_positions = args.first_positions,
      .block_offsets = args.block_offsets,
      .block_tables = args.block_tables,
      .table_starts = args.table_starts,
      .queries_aligned = is_aligned(args.queries, args.cache.head_dim),
      .decode_pairs_max = kDecodePairsMax,
      .partials = static_cast<float*>(memory.scratch),
      .counters = memory.counters,
      .splits_max = splits_of(args),
      .num_parts = num_parts_of(args),
      .partial_rows = partial_rows_of(args)};
}

// Not sequences x the longest one's: a long one may run among many short ones.
AttentionSizes sizes_of(const OpLimits& limits, int partial_rows) {
  const auto parts = static_cast<std::size_t>(
      first_part_of(limits.num_sequences, limits.num_table_blocks) * limits.num_kv_heads);
  const int part = partial_floats(partial_rows, static_cast<int>(num_tiles(limits.head_dim)));
  return {.scratch_bytes = parts * static_cast<std::size_t>(part) * sizeof(float),
          .counter_bytes = parts * sizeof(std::uint32_t)};
}

}  // namespace

std::int64_t num_decode_blocks(const AttentionArgs& args) {
  const int parts = num_parts_of(args);
  return (parts > 0 ? parts : splits_of(args) * args.num_sequences) * args.cache.num_kv_heads;
}

AttentionSizes attention_sizes(const AttentionArgs& args) {
  if (args.cache.type == ElementType::kF32 || splits_of(args) == 1) return {};
  LMTP_CHECK(args.num_table_blocks >= args.num_sequences, args.num_table_blocks,
             args.num_sequences);
  return sizes_of({.num_kv_heads = args.cache.num_kv_heads,
                   .head_dim = args.cache.head_dim,
                   .num_sequences = args.num_sequences,
                   .num_table_blocks = args.num_table_blocks},
                  partial_rows_of(args));
}

AttentionSizes attention_sizes_max(const OpLimits& limits) {
  if (limits.kv_type == ElementType::kF32) return {};
  return sizes_of(limits, kDecodePairsMax);
}

void paged_attention(const AttentionArgs& args, const AttentionMemory& memory, StreamHandle stream,
                     AttentionKernel kernel) {
  LMTP_CHECK(args.cache.head_dim <= kDeviceHeadDimMax, args.cache.head_dim);
  if (args.num_sequences == 0 || args.queries.rows == 0) return;
  AttentionLaunch attention = {.params = params_of(args, memory), .chunk_max = args.chunk_max};
  AttentionParams& params = attention.params;
  if (args.cache.type == ElementType::kF32) {
    const int heads = ceil_divide(args.num_heads, kPlainWarps);
    launch<attention_plain_kernel<kPlainWarps>>(
        {.grid = {static_cast<int>(args.queries.rows), heads},
         .num_threads = kPlainWarps * kWarpSize},
        stream, params);
    return;
  }
  if (kernel == AttentionKernel::kPrefill || params.group > kDecodePairsMax) {
    params.decode_pairs_max = 0;
  }
  attention.decode = params.decode_pairs_max > 0;
  attention.prefill = args.chunk_max * params.group > params.decode_pairs_max;
  if (args.cache.type == ElementType::kBF16) {
    launch_attention_bf16(attention, stream);
  } else if (args.cache.type == ElementType::kE4M3) {
    launch_attention_e4m3(attention, stream);
  } else {
    launch_attention_f16(attention, stream);
  }
}

}  // namespace lmtp::kernels::cuda
