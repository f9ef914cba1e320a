// A linear on the device under test, and what it is to be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/fragment_tile.h"
#include "cuda/linear.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "narrow_floats.h"

namespace lmtp::testing {

namespace cuda = kernels::cuda;
using cuda::LinearKernel;
using kernels::Activation;
using kernels::ElementType;

inline constexpr LinearKernel kTiledKernels[] = {
    LinearKernel::kTiled128x128, LinearKernel::kTiled128x64, LinearKernel::kTiled64x64};

struct LinearShape {
  std::int64_t n;
  std::int64_t k;
};

inline float rounded(ElementType type, float value) {
  switch (type) {
    case ElementType::kF32:
      return value;
    case ElementType::kF16:
      return widen_f16(round_to_f16(value));
    case ElementType::kBF16:
      return widen_bf16(round_to_bf16(value));
    case ElementType::kE4M3:  // of keys and values alone
      break;
  }
  return value;
}

// Memory that begins at a multiple of 16 bytes, as a device's does.
struct Bytes {
  explicit Bytes(std::size_t size) : words(size / sizeof(cuda::Words4) + 1) {}
  void* data() { return words.data(); }
  std::vector<cuda::Words4> words;
};

struct LinearData {
  LinearData(const LinearShape& problem, ElementType weight_type, std::int64_t rows)
      : type(weight_type),
        n(problem.n),
        k(problem.k),
        m(rows),
        x(random_floats(static_cast<std::size_t>(m * k), 1)),
        weight(random_floats(static_cast<std::size_t>(n * k), 2, 0.1F)),
        bias(random_floats(static_cast<std::size_t>(n), 3)),
        residual(random_floats(static_cast<std::size_t>(m * n), 4)),
        packed(cuda::weight_bytes(type, n, k)) {
    cuda::pack_weight({.data = weight.data(), .n = n, .k = k, .row_stride = k},
                      {.weight = packed.data(), .type = type, .n = n}, nullptr);
  }

  std::vector<float> run(std::int64_t first, std::int64_t rows, Activation activation,
                         LinearKernel kernel = LinearKernel::kBest) {
    return run(first, rows, activation, kernel, n);
  }

  std::vector<float> run(std::int64_t first, std::int64_t rows, Activation activation,
                         LinearKernel kernel, std::int64_t y_stride) {
    std::vector<float> y(static_cast<std::size_t>(rows * y_stride), NAN);
    Bytes scratch(cuda::linear_scratch_bytes(type, rows, k));
    cuda::LinearLaunch launch = launch_of(first, rows, scratch.data(), y);
    launch.activation = activation;
    launch.y_stride = y_stride;
    cuda::linear(launch, nullptr, kernel);
    return y;
  }

  cuda::LinearLaunch launch_of(std::int64_t first, std::int64_t rows, void* scratch,
                               std::vector<float>& y) {
    return {.x = x.data() + first * k,
            .x_stride = k,
            .m = rows,
            .weight = packed.data(),
            .type = type,
            .n = n,
            .k = k,
            .bias = bias.data(),
            .scale = kScale,
            .residual = residual.data() + first * n,
            .residual_stride = n,
            .y = y.data(),
            .y_stride = n,
            .scratch = scratch};
  }

  // By kernels::reference_backend(), whose weights and inputs are what rounding left of them.
  std::vector<float> expected(Activation activation) {
    kernels::WorkerPool pool(1);
    kernels::Stream stream(kernels::reference_backend(), pool);
    std::vector<float> seen = x;
    std::vector<float> seen_weight = weight;
    for (float& value : seen) value = rounded(type, value);
    for (float& value : seen_weight) value = rounded(type, value);
    std::vector<float> panels(static_cast<std::size_t>(kernels::packed_size(n, k)));
    kernels::pack_linear(pool, {.data = seen_weight.data(), .n = n, .k = k},
                         {.panels = panels.data()});
    std::vector<float> y(static_cast<std::size_t>(m * n));
    kernels::linear(stream, {.x = view<const float>(seen, k),
                             .weight = {.panels = panels.data(), .n = n, .k = k},
                             .bias = bias.data(),
                             .activation = activation,
                             .scale = kScale,
                             .residual = view<const float>(residual, n),
                             .y = view<float>(y, n)});
    return y;
  }

  // One element of run()'s result without an activation, its sum in double.
  double expected(std::int64_t row, std::int64_t column) const {
    const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
    double sum = bias[at(column)];
    for (std::int64_t i = 0; i < k; ++i) {
      sum += static_cast<double>(rounded(type, x[at(row * k + i)])) *
             static_cast<double>(rounded(type, weight[at(column * k + i)]));
    }
    return sum * static_cast<double>(kScale) + residual[at(row * n + column)];
  }

  static constexpr float kScale = 0.7F;

  ElementType type;
  std::int64_t n;
  std::int64_t k;
  std::int64_t m;
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;
  std::vector<float> residual;
  Bytes packed;
};

}  // namespace lmtp::testing
