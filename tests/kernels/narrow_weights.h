// Weights of the kernels' tests in a device's memory, narrow.
#pragma once

#include <algorithm>
#include <cstdint>

#include "code_rows.h"
#include "device_under_test.h"
#include "kernels/linear.h"
#include "kernels/memory.h"

namespace lmtp::testing {

struct Problem {
  std::int64_t n;
  std::int64_t k;
};

// A weight in the device's memory.
struct DeviceWeight {
  DeviceWeight(WeightType type, const Problem& problem, const Grouping& by = {})
      : memory(kernels::Memory::allocate(
            device_under_test(),
            kernels::packed_bytes(device_under_test(), type, problem.n, problem.k, by))),
        packed{memory.data(), problem.n, problem.k, type, nullptr, nullptr, by} {}

  kernels::PackTarget target() {
    return {.panels = memory.data(), .type = packed.type, .grouping = packed.grouping};
  }

  kernels::Memory memory;
  kernels::PackedLinear packed;
};

inline DeviceWeight pack_floats(
    WeightType type, const Problem& problem, const void* data, ElementType from = ElementType::kF32,
    kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs) {
  DeviceWeight weight(type, problem);
  kernels::WorkerPool pool(1);
  kernels::Stream stream(device_under_test(), pool);
  kernels::pack(stream,
                {.data = data, .type = from, .order = order, .n = problem.n, .k = problem.k},
                weight.target());
  stream.synchronize();
  return weight;
}

// In two parts where there are outputs enough.
inline DeviceWeight pack_codes(WeightType type, const Problem& problem, const Grouping& by,
                               Codes& codes) {
  DeviceWeight weight(type, problem, by);
  kernels::WorkerPool pool(1);
  kernels::Stream stream(device_under_test(), pool);
  for (std::int64_t first = 0; first < problem.n; first += 64) {
    kernels::pack_codes(stream,
                        {.codes = codes.codes_from(first),
                         .scales = codes.scales_from(first),
                         .offsets = by.has_offsets ? codes.offsets_from(first) : nullptr,
                         .first = first,
                         .count = std::min<std::int64_t>(64, problem.n - first),
                         .n = problem.n,
                         .k = problem.k},
                        weight.target());
  }
  stream.synchronize();
  return weight;
}

}  // namespace lmtp::testing
