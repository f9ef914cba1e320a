#include "pack_groups.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/base/half.h"
#include "round_bf16.h"

namespace lmtp::kernels {
namespace {

// Scales below this have no inverse in f32.
constexpr float kScaleMin = 0x1.0p-120F;

// The bits of a scale as a grouping keeps it.
void write_scale(float scale, ElementType type, std::int64_t column, std::uint32_t* head) {
  if (type == ElementType::kF32) {
    head[column] = std::bit_cast<std::uint32_t>(scale);
    return;
  }
  reinterpret_cast<std::uint16_t*>(head)[column] = static_cast<std::uint16_t>(
      type == ElementType::kF16 ? round_to_half(scale) : round_to_bf16(scale));
}

// The codes of one worker's piece: a panel's outputs.
struct Piece {
  Piece(std::int64_t k, std::int64_t groups, bool has_offsets)
      : codes(static_cast<std::size_t>(kPanelColumns * k)),
        scales(static_cast<std::size_t>(kPanelColumns * groups)),
        offsets(has_offsets ? scales.size() : 0) {}

  CodePiece view() {
    return {codes.data(), scales.data(), offsets.empty() ? nullptr : offsets.data()};
  }

  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> offsets;
};

// One panel, of which `columns` outputs exist, by groups. All else has scales and weights of 0.
void write_groups(const Piece& piece, std::int64_t columns, std::int64_t k, std::int64_t panel,
                  const PackTarget& to) {
  const Grouping& by = to.grouping;
  const std::int64_t groups = num_groups(by, k);
  const std::int64_t each = codes_per_word(by.codes);
  const auto base = static_cast<std::uint32_t>(code_base(by));
  for (std::int64_t g = 0; g < groups; ++g) {
    std::uint32_t* head = group_in(to, k, panel, g);
    std::uint32_t* words = head + group_head_size(by);
    auto* offsets = reinterpret_cast<float*>(words - kPanelColumns);
    const std::int64_t first = g * by.group;
    const std::int64_t end = std::min(by.group >= k ? k : first + by.group, k);
    const std::int64_t num_words = (g + 1 < groups ? end - first : padded_inputs(k) - first) / each;
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      const bool is_there = column < columns;
      const auto at = static_cast<std::size_t>(column * groups + g);
      write_scale(is_there ? piece.scales[at] : 0.0F, by.scales, column, head);
      if (by.has_offsets) offsets[column] = is_there ? piece.offsets[at] : 0.0F;
      for (std::int64_t w = 0; w < num_words; ++w) {
        std::uint32_t word = 0;
        for (std::int64_t i = 0; i < each; ++i) {
          const std::int64_t input = first + w * each + i;
          const std::uint32_t code = is_there && input < end
                                         ? piece.codes[static_cast<std::size_t>(column * k + input)]
                                         : base;
          word |= code << (each == 8 ? code_shift(static_cast<int>(i)) : 8 * static_cast<int>(i));
        }
        words[w * kPanelColumns + column] = word;
      }
    }
  }
}

// One panel of kInt8.
void write_bytes(const Piece& piece, std::int64_t columns, std::int64_t k, std::int64_t panel,
                 const PackTarget& to) {
  const std::int64_t num_units = (k + 3) / 4;
  auto* units = static_cast<std::uint32_t*>(to.panels) + panel * num_units * kPanelColumns;
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    std::int32_t sum = 0;
    for (std::int64_t u = 0; u < num_units; ++u) {
      std::uint32_t unit = 0;
      for (std::int64_t i = 0; i < 4 && column < columns && 4 * u + i < k; ++i) {
        const std::uint8_t code = piece.codes[static_cast<std::size_t>(column * k + 4 * u + i)];
        sum += static_cast<std::int8_t>(code);
        unit |= std::uint32_t{code} << (8 * i);
      }
      units[u * kPanelColumns + column] = unit;
    }
    const std::int64_t at = panel * kPanelColumns + column;
    to.scales[at] = column < columns ? piece.scales[static_cast<std::size_t>(column)] : 0.0F;
    to.sums[at] = sum;
  }
}

void check_grouping(const PackTarget& to, std::int64_t k) {
  const Grouping& by = to.grouping;
  LMTP_CHECK(by.group >= k || (by.group > 0 && by.group % kGroupMin == 0), by.group, k);
  if (to.type == WeightType::kInt8) {
    LMTP_CHECK(by.codes == CodeType::kInt8 && by.group >= k && !by.has_offsets, by.group);
    LMTP_CHECK(to.scales != nullptr && to.sums != nullptr);
  } else if (to.type == WeightType::kInt4) {
    LMTP_CHECK(by.codes == CodeType::kInt4 && !by.has_offsets && is_int4_group(by.group), by.group);
  } else {
    LMTP_CHECK(to.type == WeightType::kWidened);
  }
}

}  // namespace

std::uint32_t* group_in(const PackTarget& to, std::int64_t k, std::int64_t panel,
                        std::int64_t group) {
  const std::int64_t words = to.grouping.group / codes_per_word(to.grouping.codes) * kPanelColumns;
  return static_cast<std::uint32_t*>(to.panels) + panel * panel_size(k, to.type, to.grouping) +
         group * (group_head_size(to.grouping) + words);
}

void write_int4_group(const float* values, std::int64_t column_stride, std::int64_t input_stride,
                      std::int64_t count, std::uint32_t* to) {
  std::uint32_t* words = to + group_head_size({});
  const std::int64_t num_words = padded_inputs(count) / 8;
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    const float* at = values + column * column_stride;
    float largest = 0.0F;
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = at[i * input_stride];
      largest = std::fabs(value) > std::fabs(largest) ? value : largest;
    }
    const std::uint32_t bits = round_to_bf16(largest / -8.0F) << 16;
    const bool is_zero = !(std::fabs(std::bit_cast<float>(bits)) >= kScaleMin);
    const float scale = is_zero ? 1.0F : std::bit_cast<float>(bits);
    const float inverse = is_zero ? 0.0F : 1.0F / scale;
    write_scale(scale, ElementType::kBF16, column, to);
    for (std::int64_t w = 0; w < num_words; ++w) {
      std::uint32_t word = 0x88888888U;
      for (int i = 0; i < 8 && 8 * w + i < count; ++i) {
        // The integer nearest to the value, ties to even: of the sum, the lowest bits.
        constexpr float kWholeFrom = 12582912.0F;  // 1.5 * 2^23
        const float shifted = at[(8 * w + i) * input_stride] * inverse + (kWholeFrom + 8.0F);
        const std::int32_t code =
            std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kWholeFrom);
        const auto clamped = static_cast<std::uint32_t>(std::clamp(code, 0, 15));
        word ^= (clamped ^ 8U) << code_shift(i);
      }
      words[w * kPanelColumns + column] = word;
    }
  }
}

void pack_codes(WorkerPool& pool, std::int64_t n, std::int64_t k, CodeRows& rows,
                const PackTarget& to) {
  LMTP_CHECK(n > 0 && k > 0 && to.panels != nullptr, n, k);
  check_grouping(to, k);
  std::vector<std::unique_ptr<Piece>> pieces(static_cast<std::size_t>(pool.num_threads()));
  pool.parallel_for(
      static_cast<int>(padded_columns(n) / kPanelColumns), [&](int panel, int worker) {
        auto& piece = pieces[static_cast<std::size_t>(worker)];
        if (!piece) {
          piece = std::make_unique<Piece>(k, num_groups(to.grouping, k), to.grouping.has_offsets);
        }
        const std::int64_t first = std::int64_t{panel} * kPanelColumns;
        const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, n - first);
        if (!rows.rows(first, columns, worker, piece->view())) return;
        (to.type == WeightType::kInt8 ? write_bytes : write_groups)(*piece, columns, k, panel, to);
      });
}

}  // namespace lmtp::kernels
