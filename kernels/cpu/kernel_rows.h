// Ops that work on rows by themselves: norms, embedding, reductions over logits.
#pragma once

#include "group_element.h"
#include "kernels/activation.h"
#include "kernels/draw_weight.h"
#include "kernels/embedding.h"
#include "kernels/experts.h"
#include "kernels/gather.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"
#include "sample.h"
#include "unit_element.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Rows of one task: fewer, and handing out tasks would dominate short rows.
inline constexpr std::int64_t kRowsPerTask = 4;

// Runs body(row) for all rows.
template <typename Body>
inline void for_rows(Stream& stream, std::int64_t rows, const Body& body) {
  const auto num_tasks = static_cast<int>((rows + kRowsPerTask - 1) / kRowsPerTask);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    const std::int64_t first = task * kRowsPerTask;
    const std::int64_t end = first + kRowsPerTask < rows ? first + kRowsPerTask : rows;
    for (std::int64_t row = first; row < end; ++row) body(row);
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

inline void rms_norm_group(const float* x, const float* weight, std::int64_t width, float epsilon,
                           const float* residual, float* y) {
  F squares = zero();
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const F v = load_first(x + c, lanes_at(c, width));
    squares = multiply_add(v, v, squares);
  }
  const float mean = sum_lanes(squares) * (1.0F / static_cast<float>(width));
  const F inverse = broadcast(1.0F / __builtin_sqrtf(mean + epsilon));
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const int count = lanes_at(c, width);
    const F scaled = multiply(load_first(x + c, count), inverse);
    F value = multiply(scaled, load_first(weight + c, count));
    if (residual != nullptr) value = add(value, load_first(residual + c, count));
    store_first(y + c, value, count);
  }
}

inline void rms_norm(Stream& stream, const RmsNormArgs& args) {
  const std::int64_t width = args.x.columns / args.groups;
  for_rows(stream, args.x.rows, [&](std::int64_t row) {
    for (std::int64_t group = 0; group < args.groups; ++group) {
      const float* residual =
          args.residual.empty() ? nullptr : args.residual.row(row) + group * width;
      rms_norm_group(args.x.row(row) + group * width, args.weight, width, args.epsilon, residual,
                     args.y.row(row) + group * width);
    }
  });
}

inline void rotary(Stream& stream, const RotaryArgs& args) {
  const std::int64_t half = args.cosines.columns;
  for_rows(stream, args.x.rows, [&](std::int64_t row) {
    const float* cosines = args.cosines.row(row);
    const float* sines = args.sines.row(row);
    for (std::int64_t head = 0; head < args.x.columns; head += args.head_dim) {
      float* first = args.x.row(row) + head;
      float* second = first + half;
      for (std::int64_t d = 0; d < half; d += kLanes) {
        const int count = lanes_at(d, half);
        const F cosine = load_first(cosines + d, count);
        const F sine = load_first(sines + d, count);
        const F a = load_first(first + d, count);
        const F b = load_first(second + d, count);
        store_first(first + d, subtract(multiply(a, cosine), multiply(b, sine)), count);
        store_first(second + d, add(multiply(b, cosine), multiply(a, sine)), count);
      }
    }
  });
}

// Gate and up of the columns from c on.
inline void load_gate_and_up(const GatedActivationArgs& args, std::int64_t row, std::int64_t c,
                             int count, F& gate, F& up) {
  const float* x = args.x.row(row);
  if (args.interleaved) {
    float gates[kLanes] = {};
    float ups[kLanes] = {};
    for (int i = 0; i < count; ++i) {
      gates[i] = x[2 * (c + i)];
      ups[i] = x[2 * (c + i) + 1];
    }
    gate = load(gates);
    up = load(ups);
  } else {
    gate = load_first(x + c, count);
    up = load_first(x + args.y.columns + c, count);
  }
  if (args.limit > 0.0F) {  // NaNs stay
    gate = lesser_of(broadcast(args.limit), gate);
    up = greater_of(broadcast(-args.limit), lesser_of(broadcast(args.limit), up));
  }
  if (args.up_added != 0.0F) up = add(up, broadcast(args.up_added));
}

inline void gated_activation(Stream& stream, const GatedActivationArgs& args) {
  const std::int64_t width = args.y.columns;
  for_rows(stream, args.x.rows, [&](std::int64_t row) {
    float* y = args.y.row(row);
    for (std::int64_t c = 0; c < width; c += kLanes) {
      const int count = lanes_at(c, width);
      F gate;
      F up;
      load_gate_and_up(args, row, c, count, gate, up);
      store_first(y + c, multiply(activate(args.activation, gate), up), count);
    }
  });
}

inline void combine(Stream& stream, const CombineArgs& args) {
  const std::int64_t width = args.y.columns;
  const std::int64_t top_k = args.weights.columns;
  for_rows(stream, args.y.rows, [&](std::int64_t row) {
    const std::int32_t* slots = args.slots + row * top_k;
    const float* weights = args.weights.row(row);
    F gate = broadcast(1.0F);
    if (!args.shared_gate.empty()) {
      const F score = broadcast(args.shared_gate.row(row)[0]);
      gate = divide(gate, add(gate, exp(subtract(zero(), score))));
    }
    for (std::int64_t c = 0; c < width; c += kLanes) {
      const int count = lanes_at(c, width);
      F sum = zero();
      for (std::int64_t i = 0; i < top_k; ++i) {
        const F one = load_first(args.x.row(slots[i]) + c, count);
        sum = multiply_add(broadcast(weights[i]), one, sum);
      }
      if (!args.shared.empty()) {
        sum = multiply_add(gate, load_first(args.shared.row(row) + c, count), sum);
      }
      if (args.scale != 1.0F) sum = multiply(sum, broadcast(args.scale));
      if (!args.residual.empty()) sum = add(sum, load_first(args.residual.row(row) + c, count));
      store_first(args.y.row(row) + c, sum, count);
    }
  });
}

inline void activate_rows(Stream& stream, Matrix<float> x, Activation activation) {
  for_rows(stream, x.rows, [&](std::int64_t row) {
    float* at = x.row(row);
    for (std::int64_t c = 0; c < x.columns; c += kLanes) {
      const int count = lanes_at(c, x.columns);
      store_first(at + c, activate(activation, load_first(at + c, count)), count);
    }
  });
}

inline void soft_cap(Stream& stream, Matrix<float> x, float cap) {
  for_rows(stream, x.rows, [&](std::int64_t row) {
    float* at = x.row(row);
    for (std::int64_t c = 0; c < x.columns; c += kLanes) {
      const int count = lanes_at(c, x.columns);
      const F share = divide(load_first(at + c, count), broadcast(cap));
      store_first(at + c, multiply(tanh(share), broadcast(cap)), count);
    }
  });
}

// y = scale * the weights of output n, one unit in every other cache line of the panel. Loading
// these lines is all the cost; neither prefetches nor a vector gather made it faster.
template <WeightType kType>
inline void unpack_output(const PackedLinear& weight, std::int64_t n, float scale, float* y) {
  constexpr std::int64_t kEach = inputs_per_unit(kType);
  const auto* unit = static_cast<const std::uint32_t*>(weight.panels) +
                     n / kPanelColumns * weight.num_units() * kPanelColumns + n % kPanelColumns;
  const float output_scale = kType == WeightType::kInt8 ? weight.scales[n] : 1.0F;
  for (std::int64_t k = 0; k < weight.k; k += kEach, unit += kPanelColumns) {
    const std::int64_t count = weight.k - k < kEach ? weight.k - k : kEach;
    for (std::int64_t i = 0; i < count; ++i) {
      y[k + i] = unit_element<kType>(*unit, i) * output_scale * scale;
    }
  }
}

// The same element by element.
template <float (*kElement)(const PackedLinear&, std::int64_t, std::int64_t)>
inline void unpack_elements(const PackedLinear& weight, std::int64_t n, float scale, float* y) {
  for (std::int64_t k = 0; k < weight.k; ++k) y[k] = kElement(weight, n, k) * scale;
}

inline auto unpacking_of(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return unpack_output<WeightType::kF32>;
    case WeightType::kBF16:
    case WeightType::kF32AsBF16:
      return unpack_output<WeightType::kBF16>;
    case WeightType::kF32AsF16:
      return unpack_elements<half_element>;
    case WeightType::kInt4:
    case WeightType::kWidened:
      return unpack_elements<group_element>;
    case WeightType::kInt8:
    case WeightType::kF16:  // refused by the op
      break;
  }
  return unpack_output<WeightType::kInt8>;
}

inline void embedding(Stream& stream, const EmbeddingArgs& args) {
  const std::int64_t width = args.y.columns;
  const auto unpack = unpacking_of(args.table.type);
  for_rows(stream, args.y.rows, [&](std::int64_t row) {
    float* y = args.y.row(row);
    const std::int64_t id =
        args.table.panels != nullptr ? std::int64_t{args.ids[row]} - args.first_id : 0;
    const bool is_elsewhere = args.is_part && (id < 0 || id >= args.table.n);
    if (args.table.panels != nullptr && !is_elsewhere) {
      unpack(args.table, id, args.scale, y);
    } else {
      __builtin_memset(y, 0, sizeof(float) * static_cast<std::uint64_t>(width));
    }
    if (!args.position_table.empty() && !is_elsewhere) {
      const float* position = args.position_table.row(args.positions[row] + args.position_offset);
      for (std::int64_t c = 0; c < width; ++c) y[c] += position[c];
    }
  });
}

inline void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  const auto num_bytes = sizeof(float) * static_cast<std::uint64_t>(args.y.columns);
  for_rows(stream, args.y.rows, [&](std::int64_t row) {
    __builtin_memcpy(args.y.row(row), args.x.row(args.rows != nullptr ? args.rows[row] : row),
                     num_bytes);
  });
}

inline float row_max(const float* row, std::int64_t count) {
  const F lowest = broadcast(-__builtin_inff());
  F best = lowest;
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    // greater_of() skips a first operand that is NaN.
    best = greater_of(keep_first(load_first(row + c, lanes), lowest, lanes), best);
  }
  return max_lanes(best);
}

inline LogSumExp row_logsumexp(const float* row, std::int64_t count) {
  const float max = row_max(row, count);
  if (max == -__builtin_inff()) {
    // All are -inf or NaN; the sum is NaN if any is.
    float sum = 0.0F;
    for (std::int64_t c = 0; c < count; ++c) sum += row[c];
    return {max, sum};
  }
  const F shift = broadcast(max);
  F sum = zero();
  // In parts: beside one large power, thousands of small ones would each be rounded to its unit.
  constexpr std::int64_t kPart = 64 * kLanes;
  for (std::int64_t first = 0; first < count; first += kPart) {
    const std::int64_t end = first + kPart < count ? first + kPart : count;
    F part = zero();
    for (std::int64_t c = first; c < end; c += kLanes) {
      const int lanes = lanes_at(c, count);
      const F power = exp(subtract(load_first(row + c, lanes), shift));
      part = add(part, keep_first(power, zero(), lanes));
    }
    sum = add(sum, part);
  }
  return {max, __builtin_logf(sum_lanes(sum))};
}

// In parts, as there.
inline float row_entropy(const float* row, std::int64_t count, LogSumExp of) {
  const F shift = broadcast(of.max);
  const F log_sum = broadcast(of.log_sum);
  const F beyond = broadcast(kNoProbability);
  F sum = zero();
  constexpr std::int64_t kPart = 64 * kLanes;
  for (std::int64_t first = 0; first < count; first += kPart) {
    const std::int64_t end = first + kPart < count ? first + kPart : count;
    F part = zero();
    for (std::int64_t c = first; c < end; c += kLanes) {
      const int lanes = lanes_at(c, count);
      const F logprob = subtract(subtract(load_first(row + c, lanes), shift), log_sum);
      const F term = multiply(exp(logprob), subtract(zero(), logprob));
      part = add(part, keep_first(where_less(logprob, beyond, zero(), term), zero(), lanes));
    }
    sum = add(sum, part);
  }
  return sum_lanes(sum);
}

// The steps of draw_weight(), none of them fused.
inline void draw_weights(const float* row, std::int64_t count, float max, float temperature,
                         float* to) {
  const F lowest = broadcast(kDrawExponentMin);
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    const F shifted = subtract(load_first(row + c, lanes), broadcast(max));
    const F exponent = divide(shifted, broadcast(temperature));
    const F x = greater_of(lowest, exponent);
    const F n = round_to_whole(multiply(x, broadcast(1.44269504088896341F)));
    const F r = subtract(subtract(x, multiply(n, broadcast(0.693359375F))),
                         multiply(n, broadcast(-2.12194440e-4F)));
    F p = broadcast(1.9875691500e-4F);
    p = add(multiply(p, r), broadcast(1.3981999507e-3F));
    p = add(multiply(p, r), broadcast(8.3334519073e-3F));
    p = add(multiply(p, r), broadcast(4.1665795894e-2F));
    p = add(multiply(p, r), broadcast(1.6666665459e-1F));
    p = add(multiply(p, r), broadcast(5.0000001201e-1F));
    p = add(add(multiply(p, multiply(r, r)), r), broadcast(1.0F));
    const F weight = multiply(multiply(p, power_of_two(n)), broadcast(kDrawWeightOfBest));
    store_first(to + c, where_less(exponent, lowest, zero(), weight), lanes);
  }
}

inline std::int64_t row_select_at_least(const float* row, std::int64_t count, float threshold,
                                        std::int32_t* indices) {
  const F least = broadcast(threshold);
  const F lowest = broadcast(-__builtin_inff());
  std::int64_t found = 0;
  for (std::int64_t c = 0; c < count; c += kLanes) {
    const int lanes = lanes_at(c, count);
    if (!any_at_least(keep_first(load_first(row + c, lanes), lowest, lanes), least)) continue;
    for (int lane = 0; lane < lanes; ++lane) {
      if (row[c + lane] >= threshold) indices[found++] = static_cast<std::int32_t>(c + lane);
    }
  }
  return found;
}

inline void sample(Stream& stream, const SampleArgs& args) {
  static constexpr RowOps kOps = {row_max, row_logsumexp, row_entropy, draw_weights,
                                  row_select_at_least};
  plain::sample(stream, args, kOps);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
