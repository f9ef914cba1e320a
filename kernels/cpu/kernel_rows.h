// Ops that work on rows by themselves: norms, embedding, reductions over logits.
#pragma once

#include "kernels/embedding.h"
#include "kernels/logits.h"
#include "kernels/norm.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Rows that one task takes, so that short rows do not drown in hand-overs.
inline constexpr std::int64_t kRowsPerTask = 4;

// Body(row) for all rows.
template <typename Body>
inline void for_rows(Stream& stream, std::int64_t rows, const Body& body) {
  const auto num_tasks = static_cast<int>((rows + kRowsPerTask - 1) / kRowsPerTask);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    const std::int64_t first = task * kRowsPerTask;
    const std::int64_t end = first + kRowsPerTask < rows ? first + kRowsPerTask : rows;
    for (std::int64_t row = first; row < end; ++row) {
      body(row);
    }
  });
}

// The lanes of the vector at `column` that are inside a row.
inline int lanes_at(std::int64_t column, std::int64_t width) {
  return width - column < kLanes ? static_cast<int>(width - column) : kLanes;
}

inline void layer_norm_row(const LayerNormArgs& args, std::int64_t row) {
  const std::int64_t width = args.x.columns;
  const float* x = args.x.row(row);
  float* y = args.y.row(row);
  const float inverse_width = 1.0F / static_cast<float>(width);
  F sum = zero();
  for (std::int64_t c = 0; c < width; c += kLanes) {
    sum = add(sum, load_first(x + c, lanes_at(c, width)));
  }
  const F mean = broadcast(sum_lanes(sum) * inverse_width);
  F squares = zero();
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const int count = lanes_at(c, width);
    const F off = keep_first(subtract(load_first(x + c, count), mean), zero(), count);
    squares = multiply_add(off, off, squares);
  }
  const float variance = sum_lanes(squares) * inverse_width;
  const F inverse = broadcast(1.0F / __builtin_sqrtf(variance + args.epsilon));
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const int count = lanes_at(c, width);
    const F scaled = multiply(subtract(load_first(x + c, count), mean), inverse);
    const F bias = args.bias == nullptr ? zero() : load_first(args.bias + c, count);
    store_first(y + c, multiply_add(scaled, load_first(args.weight + c, count), bias), count);
  }
}

inline void layer_norm(Stream& stream, const LayerNormArgs& args) {
  for_rows(stream, args.x.rows, [&](std::int64_t row) { layer_norm_row(args, row); });
}

inline void embedding(Stream& stream, const EmbeddingArgs& args) {
  const std::int64_t width = args.table.k;
  for_rows(stream, args.y.rows, [&](std::int64_t row) {
    const std::int64_t id = args.ids[row];
    const float* from =
        args.table.panels + id / kPanelColumns * width * kPanelColumns + id % kPanelColumns;
    float* y = args.y.row(row);
    if (args.position_table.empty()) {
      for (std::int64_t c = 0; c < width; ++c) {
        y[c] = from[c * kPanelColumns];
      }
      return;
    }
    const float* position = args.position_table.row(args.positions[row]);
    for (std::int64_t c = 0; c < width; ++c) {
      y[c] = from[c * kPanelColumns] + position[c];
    }
  });
}

inline float row_max(const float* row, std::int64_t count) {
  const F lowest = broadcast(-__builtin_inff());
  F best = lowest;
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    // The first operand is passed over where it is not a number.
    best = greater_of(keep_first(load_first(row + c, lanes), lowest, lanes), best);
  }
  return max_lanes(best);
}

inline float row_logsumexp(const float* row, std::int64_t count) {
  const float max = row_max(row, count);
  if (max == -__builtin_inff()) {
    // All are -inf or not numbers: the sum tells which.
    float sum = 0.0F;
    for (std::int64_t c = 0; c < count; ++c) {
      sum += row[c];
    }
    return sum;
  }
  const F shift = broadcast(max);
  F sum = zero();
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    const F power = exp(subtract(load_first(row + c, lanes), shift));
    sum = add(sum, keep_first(power, zero(), lanes));
  }
  return max + __builtin_logf(sum_lanes(sum));
}

inline void row_exp(const float* row, std::int64_t count, float shift, float divisor, float* to) {
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    const F shifted = subtract(load_first(row + c, lanes), broadcast(shift));
    store_first(to + c, exp(divide(shifted, broadcast(divisor))), lanes);
  }
}

inline std::int64_t row_select_at_least(const float* row, std::int64_t count, float threshold,
                                        std::int32_t* indices, std::int64_t capacity) {
  const F least = broadcast(threshold);
  const F lowest = broadcast(-__builtin_inff());
  std::int64_t found = 0;
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    if (!any_at_least(keep_first(load_first(row + c, lanes), lowest, lanes), least)) {
      continue;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      if (row[c + lane] >= threshold) {
        if (found < capacity) {
          indices[found] = static_cast<std::int32_t>(c + lane);
        }
        ++found;
      }
    }
  }
  return found;
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
