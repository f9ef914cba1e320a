// The linear of more than a few rows by products of warp groups, for devices that have them
// (has_wgmma()): the same sums in the same order as linear_stream.cuh and linear_tiled.cuh.
#pragma once

#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {

// Who sums the slices of a block's outputs: one block one after another, or the blocks of a
// cluster, one or two slices each, which then add them up in order.
enum class WgmmaSlices { kBest, kOneBlock, kCluster, kClusterBy2 };

inline constexpr int kWgmmaOutputs = 128;  // of a block

// Rows of x that a block takes, of m: 32, 64 or 128.
constexpr std::int64_t wgmma_rows(std::int64_t m) { return m <= 32 ? 32 : m <= 64 ? 64 : 128; }

// Reads p.x_tiles as launch_round_to_cores() leaves them for wgmma_rows(). REQUIRES: has_wgmma();
// the weights are bf16 or f16.
void launch_linear_wgmma(const LinearParams& p, WgmmaSlices slices, StreamHandle stream);

}  // namespace lmtp::kernels::cuda
