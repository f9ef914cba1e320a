// The linear of weights of 8 bits and less on a device (narrow_weight.h), beside that of linear.h.
//
// kInt8: x is quantised by its row, products are summed exactly in 32 bits by mma.m16n8k32, so that
// no order of sums shows, then come two scales. Without an activation that needs a function the
// bits are those of the CPU's kernels.
// kInt4, kWidened: the bits of linear.h's product with the numbers that the codes stand for,
// rounded to bf16 or f16. Up to 32 rows codes are widened in registers; for more the weight is
// widened first, a part of its outputs at a time, which linear.h's kernels of many rows then take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/linear.h"
#include "kernels/device.h"
#include "kernels/grouping.h"
#include "kernels/linear.h"

namespace lmtp::kernels::cuda {

// `type` is kInt8, kInt4 or kWidened; the grouping is not used for kInt8.
std::size_t narrow_weight_bytes(WeightType type, const Grouping& by, std::int64_t n,
                                std::int64_t k);

// Of a launch of m rows; and what none exceeds whose inputs are at most k.
std::size_t narrow_scratch_bytes(WeightType type, std::int64_t m, std::int64_t n, std::int64_t k);
std::size_t narrow_scratch_bytes_max(std::int64_t m, std::int64_t k);

// Of a launch of kBest on this thread's device (linear_split_bytes()).
SplitBytes narrow_split_bytes(WeightType type, std::int64_t m, std::int64_t n, std::int64_t k);
// The two halves of it.
SplitBytes int8_split_bytes(std::int64_t m, std::int64_t n, std::int64_t k);
SplitBytes grouped_split_bytes(std::int64_t m, std::int64_t n, std::int64_t k);

// args.weight: narrow_weight_bytes(). args.type is what codes are widened to: kBF16 or kF16.
// args.scratch: narrow_scratch_bytes(), 16-byte aligned. `kernel`, for tests: kStream takes up to
// 32 rows of codes; none of warp groups takes int8.
void narrow_linear(const LinearLaunch& args, WeightType type, const Grouping& by,
                   StreamHandle stream, LinearKernel kernel = LinearKernel::kBest);
// The two halves of it. outputs_at_once, for tests: as the function below, a multiple of 16.
void int8_linear(const LinearLaunch& args, StreamHandle stream, LinearKernel kernel);
void grouped_linear(const LinearLaunch& args, WeightType type, const Grouping& by,
                    StreamHandle stream, LinearKernel kernel, std::int64_t outputs_at_once);

// Outputs that are widened at a time, for many rows: so many that their tiles take at most
// kWidenedBytesMax (but 128 at least).
std::int64_t outputs_widened_at_once(std::int64_t k);

// --- packing: once, when a model is loaded --------------------------------------------

// Codes in the device's memory, of the outputs [first_row, first_row + count) of a weight [n, k].
struct CodedRows {
  const std::uint8_t* codes = nullptr;  // [count][k], one a byte
  const float* scales = nullptr;        // [count][num_groups]; of kInt8 [count]
  const float* offsets = nullptr;       // as scales, or null
  std::int64_t first_row = 0;           // a multiple of 16
  std::int64_t count = 0;               // likewise, or up to the last row
};
struct NarrowTarget {
  void* weight = nullptr;  // narrow_weight_bytes(), 16-byte aligned
  WeightType type = WeightType::kInt8;
  Grouping grouping = {};
  std::int64_t n = 0;
  std::int64_t k = 0;
};
void pack_coded_rows(const CodedRows& rows, const NarrowTarget& to, StreamHandle stream);

// Codes and scales of floats, as kernels::pack_linear makes them on a CPU, in bits: kInt8, or kInt4
// in groups of 32 whose scales are bf16. source.n rows from `codes` and `scales` on.
void round_to_codes(const WeightSource& source, WeightType type, std::uint8_t* codes, float* scales,
                    StreamHandle stream);

}  // namespace lmtp::kernels::cuda
