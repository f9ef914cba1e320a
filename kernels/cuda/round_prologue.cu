#include "cuda/round_prologue.h"

#include <cstdint>
#include <type_traits>
#include <variant>

#include "cuda/gated_columns.cuh"
#include "cuda/held_row.cuh"
#include "cuda/round_inputs.cuh"

namespace lmtp::kernels::cuda {
namespace {

// For more a thread has no registers.
constexpr int kRoundedVectorsMax = 8;
constexpr std::int64_t kRoundedWidthMax = kRoundedVectorsMax * kVectorColumns * kRowThreadsMax;

// Where rounded rows go.
struct RoundedRows {
  Words4* tiles;
  int row_tiles;  // 0: not for wgmma()
  std::int64_t m;
  std::int64_t k;  // whole stages of inputs
};

// Four columns of a row into the tiles.
template <typename T>
__device__ void store_rounded(const RoundedRows& p, std::int64_t row, std::int64_t column,
                              const Floats4& four) {
  const auto in_tile = static_cast<int>(row % kTileSide);
  const auto t = static_cast<int>(column % kTileSide / 4);
  const std::int64_t row_tile = row / kTileSide;
  const std::int64_t k_tile = column / kTileSide;
  const std::int64_t k_tiles = p.k / kTileSide;
  const std::uint32_t pairs[2] = {round_pair<T>(four.values[0], four.values[1]),
                                  round_pair<T>(four.values[2], four.values[3])};
  auto* words = reinterpret_cast<std::uint32_t*>(p.tiles);
  constexpr int kWords = 4;  // of a vector
  if (p.row_tiles == 0) {
    const std::int64_t vector = (row_tile * k_tiles + k_tile) * kTileVectors + in_tile % 8 * 4 + t;
    words[vector * kWords + in_tile / 8] = pairs[0];
    words[vector * kWords + in_tile / 8 + 2] = pairs[1];
  } else {
    const std::int64_t tile =
        (row_tile / p.row_tiles * k_tiles + k_tile) * p.row_tiles + row_tile % p.row_tiles;
    const std::int64_t vector = tile * kTileVectors + in_tile / 8 * 16 + in_tile % 8;
    words[vector * kWords + t] = pairs[0];
    words[(vector + 8) * kWords + t] = pairs[1];
  }
}

// Rows that do not exist, up to a whole tile, are zero.
int padded_rows(std::int64_t m) { return static_cast<int>(num_tiles(m) * kTileSide); }

template <typename T, int kVectors>
__device__ void store_rounded(const RoundedRows& to, std::int64_t row, const HeldRow<kVectors>& x) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t column = HeldRow<kVectors>::column(v);
    if (column < to.k) store_rounded<T>(to, row, column, x.vectors[v]);
  }
}

// A block a row. No running launch writes the weights: their loads start before the wait.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kRowThreadsMax)
    round_layer_norm_kernel(LayerNormArgs args, RoundedRows to) {
  const std::int64_t row = block_index().x;
  HeldRow<kVectors> weight;
  HeldRow<kVectors> bias = {};
  weight.load(args.weight, to.k, true);
  if (args.bias != nullptr) bias.load(args.bias, to.k, true);
  grid_dependency_wait();
  HeldRow<kVectors> x = {};
  if (row < to.m) {
    x.load(args.x.data + row * args.x.stride, to.k, true);
    x.layer_norm(weight, bias, to.k, args.epsilon);
  }
  store_rounded<T>(to, row, x);
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kRowThreadsMax)
    round_rms_norm_kernel(RmsNormArgs args, RoundedRows to) {
  const std::int64_t row = block_index().x;
  HeldRow<kVectors> weight;
  weight.load(args.weight, to.k, true);
  grid_dependency_wait();
  HeldRow<kVectors> x = {};
  if (row < to.m) {
    x.load(args.x.data + row * args.x.stride, to.k, true);
    x.rms_norm(weight, to.k, args.epsilon);
  }
  store_rounded<T>(to, row, x);
}

template <typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    round_gate_kernel(GatedActivationArgs args, RoundedRows to) {
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const std::int64_t c = first_column();
  if (c >= to.k) return;
  Floats4 four = {};
  if (row < to.m) {
    four = load_gated(args.x.data + row * args.x.stride, c, to.k, true, args.activation);
  }
  store_rounded<T>(to, row, c, four);
}

LaunchShape block_a_row(const RoundedRows& to) {
  const int threads = row_threads(to.k);
  return {.grid = {.x = padded_rows(to.m)},
          .num_threads = threads,
          .shared_bytes = block_sum_bytes(threads)};
}

template <typename T>
void launch_prologue(const LayerNormArgs& args, const RoundedRows& to, StreamHandle stream) {
  with_vectors<kRoundedVectorsMax>(to.k, [&](auto vectors) {
    launch<round_layer_norm_kernel<T, vectors>>(block_a_row(to), stream, args, to);
  });
}

template <typename T>
void launch_prologue(const RmsNormArgs& args, const RoundedRows& to, StreamHandle stream) {
  with_vectors<kRoundedVectorsMax>(to.k, [&](auto vectors) {
    launch<round_rms_norm_kernel<T, vectors>>(block_a_row(to), stream, args, to);
  });
}

template <typename T>
void launch_prologue(const GatedActivationArgs& args, const RoundedRows& to, StreamHandle stream) {
  launch<round_gate_kernel<T>>(
      {.grid = {.x = padded_rows(to.m), .y = static_cast<int>(ceil_divide(to.k, kColumnsOfBlock))},
       .num_threads = kRowThreadsMax},
      stream, args, to);
}

bool is_rounded(std::int64_t width) { return width % (kTileSide * kSliceUnit) == 0; }

bool rounds(const LayerNormArgs& args) {
  const std::int64_t width = args.x.columns;
  return is_rounded(width) && width <= kRoundedWidthMax && has_whole_vectors(args.x, width) &&
         is_whole(args.weight) && is_whole(args.bias);
}

bool rounds(const RmsNormArgs& args) {
  const std::int64_t width = args.x.columns;
  return is_rounded(width) && width <= kRoundedWidthMax && has_whole_vectors(args.x, width) &&
         is_whole(args.weight) && args.groups == 1 && args.residual.data == nullptr;
}

bool rounds(const GatedActivationArgs& args) {
  return is_rounded(args.y.columns) && has_whole_vectors(args.x, args.y.columns);
}

bool rounds(std::monostate /*none*/) { return false; }

}  // namespace

bool rounds(const LinearPrologue& prologue) {
  return std::visit([](const auto& args) { return rounds(args); }, prologue);
}

void launch_round_prologue(const LinearPrologue& prologue, ElementType type, int row_tiles,
                           Words4* tiles, StreamHandle stream) {
  std::visit(
      [&](const auto& args) {
        if constexpr (!std::is_same_v<decltype(args), const std::monostate&>) {
          const RoundedRows to = {
              .tiles = tiles, .row_tiles = row_tiles, .m = args.y.rows, .k = args.y.columns};
          if (type == ElementType::kBF16) {
            launch_prologue<BF16>(args, to, stream);
          } else {
            launch_prologue<F16>(args, to, stream);
          }
        }
      },
      prologue);
}

}  // namespace lmtp::kernels::cuda
