// Paged attention: a task is a tile of queries of one sequence that share a key-value head.
#pragma once

#include "kernel_attention_bf16.h"
#include "kernel_attention_f16.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// One task: up to count_max queries of a sequence from `first_query` on, (row, head) pairs in order
// of position, which share a head of the cache.
struct TileTask {
  std::int64_t sequence;
  int kv_head;
  std::int64_t first_query;
};

// tile_ends[s]: tiles of one head in the sequences up to s. Head by head within a sequence: the
// tiles of one head read the same keys and values while they are cached.
inline TileTask tile_task(const AttentionArgs& args, const std::int32_t* tile_ends, int task,
                          int count_max) {
  const int num_kv_heads = args.cache.num_kv_heads;
  std::int64_t low = 0;
  std::int64_t high = args.num_sequences - 1;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (task < tile_ends[middle] * num_kv_heads) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const std::int32_t tiles_before = low == 0 ? 0 : tile_ends[low - 1];
  const std::int32_t tiles_each = tile_ends[low] - tiles_before;
  const std::int32_t at = task - tiles_before * num_kv_heads;
  return {low, at / tiles_each, std::int64_t{at % tiles_each} * count_max};
}

inline HeadBlocks blocks_of(const AttentionArgs& args, const TileTask& task,
                            const HeadBlocks* next) {
  const std::int64_t num_new = args.cu_seqlens[task.sequence + 1] - args.cu_seqlens[task.sequence];
  const std::int64_t num_tokens = args.first_positions[task.sequence] + num_new;
  const std::int64_t row = task.first_query / (args.num_heads / args.cache.num_kv_heads);
  const std::int64_t seen = args.first_positions[task.sequence] + row + 1;
  return {.cache = args.cache,
          .table = args.block_tables + args.table_starts[task.sequence],
          .head = task.kv_head,
          .begin = args.window > 0 && args.window < seen ? (seen - args.window) / kBlockSize : 0,
          .end = (num_tokens + kBlockSize - 1) / kBlockSize,
          .next = next};
}

inline void attend_tile(const AttentionArgs& args, const TileTask& task, const HeadBlocks& blocks,
                        int count_max, Attend attend) {
  const int group = args.num_heads / args.cache.num_kv_heads;
  const std::int64_t row0 = args.cu_seqlens[task.sequence];
  const std::int64_t num_queries = (args.cu_seqlens[task.sequence + 1] - row0) * group;
  QueryTile tile;
  tile.has_sinks = args.sinks != nullptr;
  while (tile.count < count_max && task.first_query + tile.count < num_queries) {
    const std::int64_t query = task.first_query + tile.count;
    const std::int64_t row = row0 + query / group;
    const std::int64_t head = task.kv_head * group + query % group;
    const std::int64_t column = head * args.cache.head_dim;
    if (tile.has_sinks) tile.sinks[tile.count] = args.sinks[head];
    tile.queries[tile.count] = args.queries.row(row) + column;
    tile.outputs[tile.count] = args.y.row(row) + column;
    const std::int64_t end = args.first_positions[task.sequence] + query / group + 1;
    tile.num_visible[tile.count] = end;
    tile.first_visible[tile.count] = args.window > 0 && args.window < end ? end - args.window : 0;
    ++tile.count;
  }
  attend(tile, blocks, args.scale, args.soft_cap);
}

// Tiles, Row: what computes the products with units of bf16 (attend_contained).
template <class Tiles, class Row>
void paged_attention_with(Stream& stream, const AttentionArgs& args) {
  const ElementType type = args.cache.type;
  const bool is_bf16 = type == ElementType::kBF16 || type == ElementType::kE4M3;
  const int count_max = is_bf16 ? kUnitQueriesMax : kGroupedQueriesMax;
  const Attend attend = type == ElementType::kF32    ? attend_f32
                        : type == ElementType::kF16  ? attend_f16
                        : type == ElementType::kE4M3 ? attend_e4m3<Tiles, Row>
                                                     : attend_bf16<Tiles, Row>;
  auto* tile_ends = static_cast<std::int32_t*>(
      stream.scratch(sizeof(std::int32_t) * static_cast<std::uint64_t>(args.num_sequences)));
  const int group = args.num_heads / args.cache.num_kv_heads;
  std::int32_t num_tiles = 0;
  for (std::int64_t s = 0; s < args.num_sequences; ++s) {
    const std::int32_t num_queries = (args.cu_seqlens[s + 1] - args.cu_seqlens[s]) * group;
    num_tiles += (num_queries + count_max - 1) / count_max;
    tile_ends[s] = num_tiles;
  }
  const int num_tasks = num_tiles * args.cache.num_kv_heads;
  const int num_workers = stream.pool().num_threads();
  stream.pool().parallel_for(num_tasks, [&](int number, int) {
    const TileTask task = tile_task(args, tile_ends, number, count_max);
    // What this worker will probably do then.
    const int next = number + num_workers < num_tasks ? number + num_workers : num_tasks - 1;
    const HeadBlocks next_blocks =
        blocks_of(args, tile_task(args, tile_ends, next, count_max), nullptr);
    const HeadBlocks blocks = blocks_of(args, task, &next_blocks);
    attend_tile(args, task, blocks, count_max, attend);
  });
}

inline void paged_attention(Stream& stream, const AttentionArgs& args) {
  paged_attention_with<VectorProducts, VectorProducts>(stream, args);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
