#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "group_element.h"
#include "kernels/linear.h"
#include "lmtp/base/half.h"
#include "pack_groups.h"
#include "round_bf16.h"
#include "unit_element.h"

namespace lmtp::kernels {
namespace {

float read_f32(const unsigned char* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float read_bf16(const unsigned char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float read_f16(const unsigned char* at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return half_value(half);
}

template <float (*kRead)(const unsigned char*), int kSize>
void convert(const unsigned char* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = kRead(from + i * kSize);
}

void convert_range(const void* from, ElementType type, std::int64_t first, std::int64_t count,
                   float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from) + first * element_size(type);
  switch (type) {
    case ElementType::kF32:
      convert<read_f32, 4>(bytes, count, to);
      return;
    case ElementType::kF16:
      convert<read_f16, 2>(bytes, count, to);
      return;
    case ElementType::kBF16:
      convert<read_bf16, 2>(bytes, count, to);
      return;
    case ElementType::kE4M3:
      break;
  }
  LMTP_CHECK(false, "e4m3 is for keys and values");
}

// The columns of one panel as f32: [kPanelColumns][k], those missing zero.
class Panel {
 public:
  explicit Panel(std::int64_t k) : k_(k), values_(static_cast<std::size_t>(kPanelColumns * k)) {}

  float* column(std::int64_t index) { return values_.data() + index * k_; }
  float at(std::int64_t column, std::int64_t k) const {
    return k < k_ ? values_[static_cast<std::size_t>(column * k_ + k)] : 0.0F;
  }
  std::int64_t k() const { return k_; }

 private:
  std::int64_t k_;
  std::vector<float> values_;
};

// Inputs transposed at a time: 32 columns of this many floats stay in the L1 cache.
constexpr std::int64_t kInputsAtATime = 64;

void write_f32(const Panel& panel, float* to) {
  for (std::int64_t first = 0; first < panel.k(); first += kInputsAtATime) {
    const std::int64_t end = std::min(first + kInputsAtATime, panel.k());
    for (std::int64_t k = first; k < end; ++k) {
      for (std::int64_t column = 0; column < kPanelColumns; ++column) {
        to[k * kPanelColumns + column] = panel.at(column, k);
      }
    }
  }
}

void write_bf16(const Panel& panel, std::uint32_t* to) {
  const std::int64_t num_units = (panel.k() + 1) / 2;
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      const std::uint32_t low = round_to_bf16(panel.at(column, 2 * unit));
      const std::uint32_t high = round_to_bf16(panel.at(column, 2 * unit + 1));
      to[unit * kPanelColumns + column] = low | (high << 16);
    }
  }
}

void write_halves(const Panel& panel, std::uint32_t* to) {
  auto* halves = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t k = 0; k < panel.k(); ++k) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      halves[half_index(k, column)] =
          static_cast<std::uint16_t>(round_to_half(panel.at(column, k)));
    }
  }
}

// A column's weights are its scale times a whole number in [-127, 127].
float scale_of(float largest) { return largest / 127.0F; }
float inverse_scale_of(float largest) { return largest > 0.0F ? 127.0F / largest : 0.0F; }

// The integer nearest to the value, ties to even, for magnitudes below 2^22: the sum's lowest bits
// are that integer. Compilers have vector instructions for this.
std::int32_t nearest(float value) {
  constexpr float kWholeFrom = 12582912.0F;  // 1.5 * 2^23
  return std::bit_cast<std::int32_t>(value + kWholeFrom) - std::bit_cast<std::int32_t>(kWholeFrom);
}

void write_int8(const Panel& panel, std::uint32_t* to, float* scales, std::int32_t* sums) {
  float inverse[kPanelColumns];
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    float largest = 0.0F;
    for (std::int64_t k = 0; k < panel.k(); ++k) {
      largest = std::max(largest, std::fabs(panel.at(column, k)));
    }
    scales[column] = scale_of(largest);
    inverse[column] = inverse_scale_of(largest);
    sums[column] = 0;
  }
  const std::int64_t num_units = (panel.k() + 3) / 4;
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      std::uint32_t packed = 0;
      for (int i = 0; i < 4; ++i) {
        const std::int32_t weight = nearest(panel.at(column, 4 * unit + i) * inverse[column]);
        sums[column] += weight;
        packed |= (static_cast<std::uint32_t>(weight) & 0xFFU) << (8 * i);
      }
      to[unit * kPanelColumns + column] = packed;
    }
  }
}

void write_int4(Panel& panel, const PackTarget& to, std::int64_t index) {
  const std::int64_t k = panel.k();
  for (std::int64_t first = 0; first < k; first += to.grouping.group) {
    write_int4_group(panel.column(0) + first, k, 1, std::min(to.grouping.group, k - first),
                     group_in(to, k, index, first / to.grouping.group));
  }
}

void write_panel(Panel& panel, const PackTarget& target, std::int64_t index) {
  const std::int64_t size = panel_size(panel.k(), target.type, target.grouping);
  const std::int64_t first = index * kPanelColumns;
  switch (target.type) {
    case WeightType::kF32:
      write_f32(panel, static_cast<float*>(target.panels) + index * size);
      return;
    case WeightType::kBF16:
    case WeightType::kF32AsBF16:
      write_bf16(panel, static_cast<std::uint32_t*>(target.panels) + index * size);
      return;
    case WeightType::kInt8:
      write_int8(panel, static_cast<std::uint32_t*>(target.panels) + index * size,
                 target.scales + first, target.sums + first);
      return;
    case WeightType::kInt4:
      write_int4(panel, target, index);
      return;
    case WeightType::kF32AsF16:
      write_halves(panel, static_cast<std::uint32_t*>(target.panels) + index * size);
      return;
    case WeightType::kF16:
    case WeightType::kWidened:
      return;  // refused by pack_rows()
  }
}

// Packs weights stored output by output, a panel a task.
void pack_outputs(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                  const PackTarget& to) {
  std::vector<std::unique_ptr<Panel>> panels(static_cast<std::size_t>(pool.num_threads()));
  const auto num_panels = static_cast<int>(padded_columns(source.n) / kPanelColumns);
  pool.parallel_for(num_panels, [&](int index, int worker) {
    auto& panel = panels[static_cast<std::size_t>(worker)];
    if (!panel) panel = std::make_unique<Panel>(source.k);
    const std::int64_t first = std::int64_t{index} * kPanelColumns;
    const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, source.n - first);
    const void* data = rows.rows(first, columns, worker);
    if (data == nullptr) return;
    for (std::int64_t column = 0; column < columns; ++column) {
      convert_range(data, source.type, column * source.k, source.k, panel->column(column));
    }
    for (std::int64_t column = columns; column < kPanelColumns; ++column) {
      std::fill_n(panel->column(column), source.k, 0.0F);
    }
    write_panel(*panel, to, index);
  });
}

// One unit of a panel from its inputs, [inputs][kPanelColumns].
void write_unit(const float* inputs, WeightType type, std::uint32_t* to) {
  if (type == WeightType::kF32) {
    std::memcpy(to, inputs, kPanelColumns * sizeof(float));
    return;
  }
  if (type == WeightType::kF32AsF16) {
    auto* halves = reinterpret_cast<std::uint16_t*>(to);
    for (std::int64_t i = 0; i < 2 * kPanelColumns; ++i) {
      halves[half_index(i / kPanelColumns, i % kPanelColumns)] =
          static_cast<std::uint16_t>(round_to_half(inputs[i]));
    }
    return;
  }
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    const std::uint32_t high = round_to_bf16(inputs[kPanelColumns + column]);
    to[column] = round_to_bf16(inputs[column]) | (high << 16);
  }
}

// Calls visit(data, first, count, worker) for the inputs [first, first + count) of a weight stored
// input by input: inputs_per_task at a time, so that tasks read, and write a panel's outputs, along
// memory.
template <typename Visit>
void for_inputs(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                std::int64_t inputs_per_task, const Visit& visit) {
  const auto num_tasks = static_cast<int>((source.k + inputs_per_task - 1) / inputs_per_task);
  pool.parallel_for(num_tasks, [&](int task, int worker) {
    const std::int64_t first = task * inputs_per_task;
    const std::int64_t count = std::min(inputs_per_task, source.k - first);
    if (const void* data = rows.rows(first, count, worker); data != nullptr) {
      visit(data, first, count, static_cast<std::size_t>(worker));
    }
  });
}

void pack_inputs(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                 const PackTarget& to) {
  constexpr std::int64_t kUnitsPerTask = 16;
  const std::int64_t inputs_per_unit = kernels::inputs_per_unit(to.type);
  auto* const panels = static_cast<std::uint32_t*>(to.panels);
  const std::int64_t num_units = (source.k + inputs_per_unit - 1) / inputs_per_unit;
  for_inputs(pool, source, rows, kUnitsPerTask * inputs_per_unit,
             [&](const void* data, std::int64_t first_k, std::int64_t count, std::size_t) {
               const std::int64_t first = first_k / inputs_per_unit;
               const std::int64_t end = std::min(first + kUnitsPerTask, num_units);
               for (std::int64_t column = 0; column < source.n; column += kPanelColumns) {
                 const std::int64_t columns =
                     std::min<std::int64_t>(kPanelColumns, source.n - column);
                 float inputs[2 * kPanelColumns] = {};
                 for (std::int64_t unit = first; unit < end; ++unit) {
                   for (std::int64_t i = 0; i < inputs_per_unit; ++i) {
                     const std::int64_t k = unit * inputs_per_unit + i - first_k;
                     float* row = inputs + i * kPanelColumns;
                     if (k < count) {
                       convert_range(data, source.type, k * source.n + column, columns, row);
                     } else {
                       std::fill_n(row, kPanelColumns, 0.0F);
                     }
                   }
                   write_unit(inputs, to.type, panels + column * num_units + unit * kPanelColumns);
                 }
               }
             });
}

// One int8 unit of a panel from its inputs, [4][stride].
void write_unit_int8(const float* inputs, std::int64_t stride, const float* inverse,
                     std::int32_t* sums, std::uint32_t* to) {
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    std::uint32_t packed = 0;
    for (int i = 0; i < 4; ++i) {
      const std::int32_t weight = nearest(inputs[i * stride + column] * inverse[column]);
      sums[column] += weight;
      packed |= (static_cast<std::uint32_t>(weight) & 0xFFU) << (8 * i);
    }
    to[column] = packed;
  }
}

// A column's scale depends on all of its inputs: one pass computes it, another one writes. Each
// thread has its own maxima and sums of all columns.
void pack_inputs_int8(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                      const PackTarget& to) {
  constexpr std::int64_t kInputsPerTask = 32;
  const auto num_threads = static_cast<std::size_t>(pool.num_threads());
  const std::int64_t num_columns = padded_columns(source.n);
  const auto size = static_cast<std::size_t>(num_columns);
  std::vector<std::vector<float>> inputs(num_threads, std::vector<float>(4 * size));
  std::vector<std::vector<float>> maxima(num_threads, std::vector<float>(size));
  std::vector<std::vector<std::int32_t>> sums(num_threads, std::vector<std::int32_t>(size));
  for_inputs(pool, source, rows, kInputsPerTask,
             [&](const void* data, std::int64_t, std::int64_t count, std::size_t worker) {
               float* row = inputs[worker].data();
               float* largest = maxima[worker].data();
               for (std::int64_t k = 0; k < count; ++k) {
                 convert_range(data, source.type, k * source.n, source.n, row);
                 for (std::int64_t column = 0; column < source.n; ++column) {
                   largest[column] = std::max(largest[column], std::fabs(row[column]));
                 }
               }
             });
  std::vector<float> inverse(size);
  for (std::size_t column = 0; column < size; ++column) {
    float largest = 0.0F;
    for (const auto& of_worker : maxima) largest = std::max(largest, of_worker[column]);
    to.scales[column] = scale_of(largest);
    inverse[column] = inverse_scale_of(largest);
  }
  const std::int64_t num_units = (source.k + 3) / 4;
  auto* const panels = static_cast<std::uint32_t*>(to.panels);
  for_inputs(pool, source, rows, kInputsPerTask,
             [&](const void* data, std::int64_t first, std::int64_t count, std::size_t worker) {
               float* unit = inputs[worker].data();
               for (std::int64_t k = 0; k < count; k += 4) {
                 std::fill_n(unit, 4 * num_columns, 0.0F);
                 for (std::int64_t i = 0; i < std::min<std::int64_t>(4, count - k); ++i) {
                   convert_range(data, source.type, (k + i) * source.n, source.n,
                                 unit + i * num_columns);
                 }
                 for (std::int64_t column = 0; column < num_columns; column += kPanelColumns) {
                   write_unit_int8(unit + column, num_columns, inverse.data() + column,
                                   sums[worker].data() + column,
                                   panels + column * num_units + (first + k) / 4 * kPanelColumns);
                 }
               }
             });
  std::fill_n(to.sums, num_columns, 0);
  for (const auto& of_worker : sums) {
    for (std::size_t column = 0; column < size; ++column) to.sums[column] += of_worker[column];
  }
}

// A task is a group of inputs.
void pack_inputs_int4(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                      const PackTarget& to) {
  const std::int64_t group = to.grouping.group;
  const std::int64_t num_columns = padded_columns(source.n);
  std::vector<std::vector<float>> inputs(
      static_cast<std::size_t>(pool.num_threads()),
      std::vector<float>(static_cast<std::size_t>(std::min(group, source.k) * num_columns)));
  for_inputs(pool, source, rows, group,
             [&](const void* data, std::int64_t first, std::int64_t count, std::size_t worker) {
               float* values = inputs[worker].data();
               for (std::int64_t i = 0; i < count; ++i) {
                 convert_range(data, source.type, i * source.n, source.n, values + i * num_columns);
               }
               for (std::int64_t column = 0; column < num_columns; column += kPanelColumns) {
                 write_int4_group(values + column, 1, num_columns, count,
                                  group_in(to, source.k, column / kPanelColumns, first / group));
               }
             });
}

// Rows of a weight that is in memory as a whole.
class RowsInMemory : public WeightRows {
 public:
  explicit RowsInMemory(const SourceWeight& source)
      : data_(static_cast<const unsigned char*>(source.data)),
        row_bytes_((source.order == WeightOrder::kOutputsByInputs ? source.k : source.n) *
                   element_size(source.type)) {
    LMTP_CHECK(data_ != nullptr);
  }

  const void* rows(std::int64_t first, std::int64_t /*count*/, int /*worker*/) override {
    return data_ + first * row_bytes_;
  }

 private:
  const unsigned char* data_;
  std::int64_t row_bytes_;
};

}  // namespace

void pack_linear(WorkerPool& pool, const SourceWeight& source, const PackTarget& to) {
  RowsInMemory rows(source);
  pack_rows(pool, source, rows, to);
}

void pack_rows(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
               const PackTarget& to) {
  LMTP_CHECK(source.n > 0 && source.k > 0 && to.panels != nullptr, source.n, source.k);
  LMTP_CHECK(to.type != WeightType::kF16 && to.type != WeightType::kWidened, "not for floats");
  LMTP_CHECK(
      !is_kept_narrow(to.type) || to.type == kept_type(WeightType::kF32, source.type, source.k),
      source.k);
  LMTP_CHECK(to.type != WeightType::kInt4 || is_int4_group(to.grouping.group), to.grouping.group);
  if (source.order == WeightOrder::kOutputsByInputs) {
    pack_outputs(pool, source, rows, to);
  } else if (to.type == WeightType::kInt4) {
    pack_inputs_int4(pool, source, rows, to);
  } else if (to.type == WeightType::kInt8) {
    pack_inputs_int8(pool, source, rows, to);
  } else {
    pack_inputs(pool, source, rows, to);
  }
}

float packed_element(const PackedLinear& weight, std::int64_t n, std::int64_t k) {
  if (is_grouped(weight.type)) return group_element(weight, n, k);
  if (weight.type == WeightType::kF32AsF16) return half_element(weight, n, k);
  const int per_unit = inputs_per_unit(weight.type);
  const std::int64_t at =
      (n / kPanelColumns * weight.num_units() + k / per_unit) * kPanelColumns + n % kPanelColumns;
  const std::uint32_t unit = static_cast<const std::uint32_t*>(weight.panels)[at];
  switch (weight.type) {
    case WeightType::kF32:
      return unit_element<WeightType::kF32>(unit, 0);
    case WeightType::kBF16:
    case WeightType::kF32AsBF16:
      return unit_element<WeightType::kBF16>(unit, k % 2);
    case WeightType::kInt8:
      return unit_element<WeightType::kInt8>(unit, k % 4) * weight.scales[n];
    default:
      break;  // for devices; by groups
  }
  return 0.0F;
}

void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to) {
  convert_range(from, type, 0, count, to);
}

}  // namespace lmtp::kernels
