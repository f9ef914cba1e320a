// Weights of kernels' tests as codes, and packed for the CPU's kernels.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernel_support.h"
#include "kernels/linear.h"
#include "kernels/memory.h"

namespace lmtp::testing {

using kernels::CodeType;
using kernels::ElementType;
using kernels::Grouping;
using kernels::WeightType;

inline constexpr std::int64_t kWhole = 1 << 20;  // a group of all inputs

// A weight in memory as codes.
class Codes : public kernels::CodeRows {
 public:
  Codes(std::int64_t n, std::int64_t k, const Grouping& by)
      : k_(k),
        groups_(num_groups(by, k)),
        codes_(static_cast<std::size_t>(n * k)),
        scales_(random_floats(static_cast<std::size_t>(n * groups_), 2, 0.01F)),
        offsets_(random_floats(scales_.size(), 3, 0.1F)) {
    std::mt19937 generator(1);
    for (std::uint8_t& code : codes_) {
      code = static_cast<std::uint8_t>(generator() % (1U << kernels::code_bits(by.codes)));
      if (by.codes == CodeType::kE4M3 && (code & 127) == 127) code = 0;
    }
  }

  bool rows(std::int64_t first, std::int64_t count, int /*worker*/,
            const kernels::CodePiece& to) override {
    std::copy_n(codes_.begin() + first * k_, count * k_, to.codes);
    std::copy_n(scales_.begin() + first * groups_, count * groups_, to.scales);
    if (to.offsets != nullptr) {
      std::copy_n(offsets_.begin() + first * groups_, count * groups_, to.offsets);
    }
    return true;
  }

  // Those of the outputs from `n` on.
  const std::uint8_t* codes_from(std::int64_t n) const { return codes_.data() + n * k_; }
  const float* scales_from(std::int64_t n) const { return scales_.data() + n * groups_; }
  const float* offsets_from(std::int64_t n) const { return offsets_.data() + n * groups_; }

  std::uint8_t& code(std::int64_t n, std::int64_t k) {
    return codes_[static_cast<std::size_t>(n * k_ + k)];
  }
  float& scale(std::int64_t n, std::int64_t group) {
    return scales_[static_cast<std::size_t>(n * groups_ + group)];
  }
  float offset(std::int64_t n, std::int64_t group) const {
    return offsets_[static_cast<std::size_t>(n * groups_ + group)];
  }

 private:
  std::int64_t k_;
  std::int64_t groups_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  std::vector<float> offsets_;
};

// A packed weight and its memory, 64-byte aligned as a store's.
struct PackedOnHost {
  PackedOnHost(WeightType type, std::int64_t n, std::int64_t k, const Grouping& by = {})
      : memory(kernels::Memory::allocate(
            kernels::cpu_backend(),
            static_cast<std::size_t>(kernels::packed_size(n, k, type, by)) * 4)),
        scales(static_cast<std::size_t>(kernels::padded_columns(n))),
        sums(scales.size()),
        weight{memory.data(), n, k, type, scales.data(), sums.data(), by} {}

  kernels::PackTarget target() {
    return {memory.data(), weight.type, scales.data(), sums.data(), weight.grouping};
  }

  kernels::Memory memory;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  kernels::PackedLinear weight;
};

inline PackedOnHost pack_codes_on_host(WeightType type, std::int64_t n, std::int64_t k,
                                       const Grouping& by, kernels::CodeRows& rows) {
  PackedOnHost packed(type, n, k, by);
  std::memset(packed.memory.data(), 0xA5, packed.memory.num_bytes());
  kernels::WorkerPool pool(2);
  kernels::pack_codes(pool, n, k, rows, packed.target());
  return packed;
}

inline PackedOnHost pack_on_host(WeightType type, const kernels::SourceWeight& source,
                                 const Grouping& by = {}) {
  PackedOnHost packed(type, source.n, source.k, by);
  std::memset(packed.memory.data(), 0xA5, packed.memory.num_bytes());
  kernels::WorkerPool pool(2);
  kernels::pack_linear(pool, source, packed.target());
  return packed;
}

inline PackedOnHost pack_floats_on_host(
    WeightType type, std::int64_t n, std::int64_t k, const Grouping& by,
    const std::vector<float>& weight,
    kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs) {
  return pack_on_host(type, {.data = weight.data(), .order = order, .n = n, .k = k}, by);
}

// Calls check(type, grouping) for what the kernels take.
template <typename Check>
void for_groupings(const Check& check) {
  const auto traced = [&](WeightType type, const Grouping& by) {
    SCOPED_TRACE(::testing::Message()
                 << "type " << static_cast<int>(type) << " codes " << static_cast<int>(by.codes)
                 << " group " << by.group << " scales " << static_cast<int>(by.scales)
                 << (by.has_offsets ? " with offsets" : ""));
    check(type, by);
  };
  for (const std::int64_t group : {32, 64, 128}) {
    traced(WeightType::kInt4, {.group = group});
  }
  traced(WeightType::kInt4, {.scales = ElementType::kF16});
  traced(WeightType::kInt4, {.group = 64, .scales = ElementType::kF32});
  for (const CodeType codes :
       {CodeType::kInt4, CodeType::kInt8, CodeType::kE4M3, CodeType::kE2M1}) {
    for (const bool has_offsets : {false, true}) {
      traced(WeightType::kWidened, {codes, 16, ElementType::kF16, has_offsets});
      traced(WeightType::kWidened, {codes, 32, ElementType::kBF16, has_offsets});
      traced(WeightType::kWidened, {codes, 128, ElementType::kF32, has_offsets});
      traced(WeightType::kWidened, {codes, kWhole, ElementType::kF32, has_offsets});
    }
  }
}

}  // namespace lmtp::testing
