#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/linear.h"
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

// IEEE half precision, subnormals, infinities and NaN included.
float read_f16(const unsigned char* at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  // The exponent is moved to f32's by a multiplication, which puts subnormals right as well.
  constexpr std::uint32_t kScaleBits = (254U - 15U) << 23;
  const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(kScaleBits);
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = (magnitude << 13) | 0x7F800000U;
  return std::bit_cast<float>(sign | (magnitude >= 0x7C00U ? special : finite));
}

template <float (*kRead)(const unsigned char*), int kSize>
void convert(const unsigned char* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = kRead(from + i * kSize);
  }
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
  }
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

// Inputs that are transposed at a time: 32 columns of so many floats stay in the L1 cache.
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

// A column's weights are its scale times a whole number in [-127, 127].
void write_int8(const Panel& panel, std::uint32_t* to, float* scales, std::int32_t* sums) {
  float inverse[kPanelColumns];
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    float largest = 0.0F;
    for (std::int64_t k = 0; k < panel.k(); ++k) {
      largest = std::max(largest, std::fabs(panel.at(column, k)));
    }
    scales[column] = largest / 127.0F;
    inverse[column] = largest > 0.0F ? 127.0F / largest : 0.0F;
    sums[column] = 0;
  }
  const std::int64_t num_units = (panel.k() + 3) / 4;
  for (std::int64_t unit = 0; unit < num_units; ++unit) {
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      std::uint32_t packed = 0;
      for (int i = 0; i < 4; ++i) {
        const auto weight = static_cast<std::int32_t>(
            std::nearbyint(panel.at(column, 4 * unit + i) * inverse[column]));
        sums[column] += weight;
        packed |= (static_cast<std::uint32_t>(weight) & 0xFFU) << (8 * i);
      }
      to[unit * kPanelColumns + column] = packed;
    }
  }
}

void write_panel(const Panel& panel, const PackTarget& target, std::int64_t index) {
  const std::int64_t size = packed_size(kPanelColumns, panel.k(), target.type);
  const std::int64_t first = index * kPanelColumns;
  switch (target.type) {
    case WeightType::kF32:
      write_f32(panel, static_cast<float*>(target.panels) + index * size);
      return;
    case WeightType::kBF16:
      write_bf16(panel, static_cast<std::uint32_t*>(target.panels) + index * size);
      return;
    case WeightType::kInt8:
      write_int8(panel, static_cast<std::uint32_t*>(target.panels) + index * size,
                 target.scales + first, target.sums + first);
      return;
    case WeightType::kF16:
      LMTP_CHECK(false, "float16 weights are for devices");
  }
}

// read(panel, first, columns, worker) fills columns with the weights of outputs from `first` on.
template <typename Read>
void pack(WorkerPool& pool, std::int64_t n, std::int64_t k, const PackTarget& to,
          const Read& read) {
  LMTP_CHECK(n > 0 && k > 0 && to.panels != nullptr, n, k);
  std::vector<std::unique_ptr<Panel>> panels(static_cast<std::size_t>(pool.num_threads()));
  const auto num_panels = static_cast<int>(padded_columns(n) / kPanelColumns);
  pool.parallel_for(num_panels, [&](int index, int worker) {
    auto& panel = panels[static_cast<std::size_t>(worker)];
    if (!panel) {
      panel = std::make_unique<Panel>(k);
    }
    const std::int64_t first = std::int64_t{index} * kPanelColumns;
    const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, n - first);
    read(*panel, first, columns, worker);
    for (std::int64_t column = columns; column < kPanelColumns; ++column) {
      std::fill_n(panel->column(column), k, 0.0F);
    }
    write_panel(*panel, to, index);
  });
}

// One unit of a panel from its inputs, [inputs][kPanelColumns].
void write_unit(const float* inputs, float* to) { std::copy_n(inputs, kPanelColumns, to); }
void write_unit(const float* inputs, std::uint32_t* to) {
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    const std::uint32_t high = round_to_bf16(inputs[kPanelColumns + column]);
    to[column] = round_to_bf16(inputs[column]) | (high << 16);
  }
}

// Of weights that lie input by input, the outputs of a panel stand side by side on both sides. A
// task takes a few units through all panels, so that it reads and writes along memory.
template <typename Unit>
void pack_inputs(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
                 int inputs_per_unit, Unit* panels) {
  LMTP_CHECK(source.n > 0 && source.k > 0 && panels != nullptr, source.n, source.k);
  constexpr std::int64_t kUnitsPerTask = 16;
  const std::int64_t num_units = (source.k + inputs_per_unit - 1) / inputs_per_unit;
  const auto num_tasks = static_cast<int>((num_units + kUnitsPerTask - 1) / kUnitsPerTask);
  pool.parallel_for(num_tasks, [&](int task, int worker) {
    const std::int64_t first = task * kUnitsPerTask;
    const std::int64_t end = std::min(first + kUnitsPerTask, num_units);
    const std::int64_t first_k = first * inputs_per_unit;
    const void* data =
        rows.rows(first_k, std::min(end * inputs_per_unit, source.k) - first_k, worker);
    if (data == nullptr) {
      return;
    }
    for (std::int64_t column = 0; column < source.n; column += kPanelColumns) {
      const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, source.n - column);
      float inputs[2 * kPanelColumns] = {};
      for (std::int64_t unit = first; unit < end; ++unit) {
        for (std::int64_t i = 0; i < inputs_per_unit; ++i) {
          const std::int64_t k = unit * inputs_per_unit + i;
          float* row = inputs + i * kPanelColumns;
          if (k < source.k) {
            convert_range(data, source.type, (k - first_k) * source.n + column, columns, row);
          } else {
            std::fill_n(row, kPanelColumns, 0.0F);
          }
        }
        write_unit(inputs, panels + column * num_units + unit * kPanelColumns);
      }
    }
  });
}

// Of a weight that lies in memory as a whole.
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
  const bool by_outputs = source.order == WeightOrder::kOutputsByInputs;
  if (!by_outputs && to.type == WeightType::kF32) {
    pack_inputs(pool, source, rows, 1, static_cast<float*>(to.panels));
    return;
  }
  if (!by_outputs && to.type == WeightType::kBF16) {
    pack_inputs(pool, source, rows, 2, static_cast<std::uint32_t*>(to.panels));
    return;
  }
  const auto read = [&](Panel& panel, std::int64_t first, std::int64_t columns, int worker) {
    const void* data =
        by_outputs ? rows.rows(first, columns, worker) : rows.rows(0, source.k, worker);
    if (data == nullptr) {
      return;
    }
    if (by_outputs) {
      for (std::int64_t column = 0; column < columns; ++column) {
        convert_range(data, source.type, column * source.k, source.k, panel.column(column));
      }
      return;
    }
    float row[kPanelColumns];
    for (std::int64_t k = 0; k < source.k; ++k) {
      convert_range(data, source.type, k * source.n + first, columns, row);
      for (std::int64_t column = 0; column < columns; ++column) {
        panel.column(column)[k] = row[column];
      }
    }
  };
  pack(pool, source.n, source.k, to, read);
}

float packed_element(const PackedLinear& weight, std::int64_t n, std::int64_t k) {
  const int per_unit = inputs_per_unit(weight.type);
  const std::int64_t at =
      (n / kPanelColumns * weight.num_units() + k / per_unit) * kPanelColumns + n % kPanelColumns;
  const std::uint32_t unit = static_cast<const std::uint32_t*>(weight.panels)[at];
  switch (weight.type) {
    case WeightType::kF32:
      return unit_element<WeightType::kF32>(unit, 0);
    case WeightType::kBF16:
      return unit_element<WeightType::kBF16>(unit, k % 2);
    case WeightType::kInt8:
      return unit_element<WeightType::kInt8>(unit, k % 4) * weight.scales[n];
    case WeightType::kF16:
      break;  // for devices
  }
  return 0.0F;
}

void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to) {
  convert_range(from, type, 0, count, to);
}

}  // namespace lmtp::kernels
