#include "bench/ops.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"
#include "kernels/sample.h"

namespace lmtp::bench {
namespace {

using kernels::Memory;
using kernels::SampleRow;
using kernels::Stream;

constexpr int kOps = 8;  // of a graph

std::vector<float> logits_like_a_models(std::size_t count) {
  std::uint32_t bits = 1;
  std::vector<float> logits(count);
  for (float& one : logits) {
    constexpr int kUniform = 12;  // numbers from [0, 1): nearly normal, with a deviation of 1
    double sum = 0.0;
    for (int i = 0; i < kUniform; ++i) {
      bits = bits * 1664525U + 1013904223U;  // Numerical Recipes' generator
      sum += static_cast<double>(bits) * 0x1.0p-32;
    }
    one = static_cast<float>(-100.0 + 10.0 * (sum - kUniform / 2.0));
  }
  return logits;
}

struct Choice {
  const char* what;
  SampleRow row;
};

std::vector<Choice> choices() {
  const auto greedy = [](int num_top) {
    SampleRow row;
    row.num_top = num_top;
    return row;
  };
  const auto drawn = [](int top_k, float top_p, float typical_p) {
    SampleRow row;
    row.num_top = 1;
    row.temperature = 1.0F;
    row.top_k = top_k;
    row.top_p = top_p;
    row.typical_p = typical_p;
    row.seed = 1;
    return row;
  };
  return {{"greedy", greedy(0)},
          {"greedy, 1 alternative", greedy(1)},
          {"greedy, 5", greedy(5)},
          {"greedy, 20", greedy(20)},
          {"greedy, 1024", greedy(kernels::kSampleTopMax)},
          {"temperature 1", drawn(0, 1.0F, 1.0F)},
          {"top_k 40", drawn(40, 1.0F, 1.0F)},
          {"top_p 0.9", drawn(0, 0.9F, 1.0F)},
          {"top_k 40, top_p 0.9", drawn(40, 0.9F, 1.0F)},
          {"typical_p 0.9", drawn(0, 1.0F, 0.9F)}};
}

void print_op(const std::string& what, int rows, double seconds) {
  print({{"what", what}, {"rows", rows}, {"us", seconds * 1e6}});
}

Memory zeros(Stream& stream, std::size_t num_bytes) {
  Memory memory = Memory::allocate(stream.backend(), num_bytes);
  stream.set_zero(memory.data(), num_bytes);
  stream.synchronize();
  return memory;
}

}  // namespace

void sample_op(Stream& stream, int rows, int vocabulary) {
  const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocabulary);
  const Memory logits = upload(stream, logits_like_a_models(count));
  const Memory positions =
      upload(stream, std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
  const Memory records = Memory::allocate(
      stream.backend(), sizeof(kernels::SampleRecord) * static_cast<std::size_t>(rows));
  const Memory top =
      Memory::allocate(stream.backend(), sizeof(kernels::TopToken) * kernels::kSampleTopMax *
                                             static_cast<std::size_t>(rows));
  const Memory raw = Memory::allocate(stream.backend(), count * sizeof(float));
  for (Choice choice : choices()) {
    choice.row.num_top = std::min(choice.row.num_top, vocabulary);
    const Memory all =
        upload(stream, std::vector<SampleRow>(static_cast<std::size_t>(rows), choice.row));
    const double seconds = seconds_of_op(stream, kOps, [&](int) {
      kernels::sample(stream, {.logits = kernels::make_matrix(logits.floats(), rows, vocabulary),
                               .rows = static_cast<const SampleRow*>(all.data()),
                               .positions = static_cast<const std::int32_t*>(positions.data()),
                               .records = static_cast<kernels::SampleRecord*>(records.data()),
                               .top = static_cast<kernels::TopToken*>(top.data()),
                               .top_stride = kernels::kSampleTopMax,
                               .raw = kernels::make_matrix(raw.floats(), rows, vocabulary)});
    });
    print_op("sample of " + std::to_string(vocabulary) + ": " + choice.what, rows, seconds);
  }
}

void small_ops(Stream& stream, const LayerShape& shape) {
  const auto floats = [](std::int64_t count) { return static_cast<std::size_t>(count) * 4; };
  const std::int64_t m = shape.rows;
  const Memory x = random_memory(stream, floats(m * 2 * shape.inner));
  const Memory weight = random_memory(stream, floats(shape.hidden));
  const auto wide = [&](std::int64_t columns) {
    return kernels::make_matrix(x.floats(), m, columns);
  };
  const auto time = [&](const char* what, const std::function<void(int)>& op) {
    print_op(what, shape.rows, seconds_of_op(stream, kOps, op));
  };
  time("layer_norm", [&](int) {
    kernels::layer_norm(stream, {.x = random_matrix(x, m, shape.hidden),
                                 .weight = weight.floats(),
                                 .bias = weight.floats(),
                                 .epsilon = 1e-5F,
                                 .y = wide(shape.hidden)});
  });
  time("rms_norm", [&](int) {
    kernels::rms_norm(stream, {.x = random_matrix(x, m, shape.hidden),
                               .weight = weight.floats(),
                               .epsilon = 1e-5F,
                               .y = wide(shape.hidden)});
  });
  const Memory angles = zeros(stream, floats(m * shape.head_dim / 2));
  time("rotary", [&](int) {
    kernels::rotary(stream, {.x = wide(std::int64_t{shape.num_heads} * shape.head_dim),
                             .head_dim = shape.head_dim,
                             .cosines = random_matrix(angles, m, shape.head_dim / 2),
                             .sines = random_matrix(angles, m, shape.head_dim / 2)});
  });
  const Memory y = Memory::allocate(stream.backend(), floats(m * shape.inner));
  time("gated_activation", [&](int) {
    kernels::gated_activation(stream, {.x = random_matrix(x, m, 2 * std::int64_t{shape.inner}),
                                       .y = kernels::make_matrix(y.floats(), m, shape.inner)});
  });
  kernels::KvLayer layer{.num_blocks = shape.rows,
                         .num_kv_heads = shape.num_kv_heads,
                         .head_dim = shape.head_dim,
                         .type = stream.device_api() != nullptr ? kernels::ElementType::kBF16
                                                                : kernels::ElementType::kF32};
  const Memory cache = zeros(stream, 2 * floats(layer.block_size() * layer.num_blocks));
  layer.keys = cache.data();
  layer.values = cache.floats() + layer.block_size() * layer.num_blocks;
  std::vector<std::int32_t> slots(static_cast<std::size_t>(shape.rows));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i] = static_cast<std::int32_t>(i) * kBlockSize;
  }
  const Memory slots_there = upload(stream, slots);
  const std::int64_t kv_width = std::int64_t{shape.num_kv_heads} * shape.head_dim;
  time("kv_store", [&](int) {
    kernels::kv_store(stream, {.keys = random_matrix(x, m, kv_width),
                               .values = random_matrix(x, m, kv_width),
                               .slots = static_cast<const std::int32_t*>(slots_there.data()),
                               .cache = layer});
  });
}

}  // namespace lmtp::bench
