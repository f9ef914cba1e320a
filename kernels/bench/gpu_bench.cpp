// gpu-bench: speed of the kernels on a device, as one line of JSON a point. tools/gpu-check runs it
// beside its peers. It also runs on the CPU, to test the program itself.
//
//   gpu-bench DEVICE probe                                  what the device does, without our ops
//   gpu-bench DEVICE read
//   gpu-bench DEVICE sample ROWS VOCABULARIES               logits like a model's
//   gpu-bench DEVICE ops ROWS HIDDEN INNER HEADS KV_HEADS HEAD_DIM     the small ops of a layer
//   gpu-bench DEVICE attention HEADS KV_HEADS HEAD_DIM BATCHES CONTEXTS     decode
//   gpu-bench DEVICE linear ROWS NxK,... [TYPE|KERNEL]      bf16, or another type; of bf16 a kernel
//
// DEVICE is cpu or cuda[:N]; ROWS, BATCHES and CONTEXTS are lists: 1,16,256; TYPE is bf16, int8,
// int4 (in groups of 32) or fp8 (a scale an output); KERNEL is stream, tiled, wgmma, cluster or
// cluster2 (two slices a block).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/ops.h"
#include "bench/probe_device.h"
#include "bench/read_device.h"
#include "cuda/linear.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "kernels/linear.h"
#include "lmtp/base/json.h"

namespace lmtp::bench {
namespace {

namespace cuda = kernels::cuda;
using kernels::Memory;
using kernels::Stream;

constexpr std::size_t kReadBytes = std::size_t{4} << 30;

void probe(Stream& stream) {
  if (stream.device_api() == nullptr) throw std::runtime_error("probe: of a device alone");
  const auto say = [](const char* what, double value, const char* unit) {
    print({{"what", what}, {"value", value}, {"unit", unit}});
  };
  probe_device(stream, say);
  probe_chain(stream, say);
}

void read(Stream& stream) {
  if (stream.device_api() == nullptr) throw std::runtime_error("read: of a device alone");
  const Memory memory = random_memory(stream, kReadBytes);
  for (const int blocks_each : {2, 4, 8}) {
    for (const int threads : {256, 512}) {
      const ReadShape shape{.blocks_each = blocks_each, .threads = threads};
      const double seconds = seconds_of_op(
          stream, 4, [&](int) { read_on_device(stream, memory.data(), kReadBytes, shape); });
      print({{"what", "read"},
             {"blocks_each", blocks_each},
             {"threads", threads},
             {"bytes_per_s", static_cast<double>(kReadBytes) / seconds}});
    }
  }
}

struct Heads {
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

// The arrays of a decode step of `batch` sequences, whose blocks are scattered.
struct DecodeStep {
  DecodeStep(Stream& stream, int batch, int context) {
    const int blocks_each = (context + kBlockSize - 1) / kBlockSize;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(batch) + 1);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<std::int32_t> offsets = rows;
    for (std::int32_t& offset : offsets) offset *= blocks_each;
    num_blocks = offsets.back();
    // In steps of a prime that divides no number of blocks here: each once.
    constexpr std::int64_t kStep = 7919;
    std::vector<std::int32_t> blocks;
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      blocks.push_back(static_cast<std::int32_t>(i * kStep % num_blocks));
    }
    cu_seqlens = upload(stream, rows);
    first_positions =
        upload(stream, std::vector<std::int32_t>(static_cast<std::size_t>(batch), context - 1));
    block_offsets = upload(stream, offsets);
    block_tables = upload(stream, blocks);
  }

  std::int32_t num_blocks = 0;
  Memory cu_seqlens;
  Memory first_positions;
  Memory block_offsets;
  Memory block_tables;
};

const std::int32_t* indices(const Memory& memory) {
  return static_cast<const std::int32_t*>(memory.data());
}

void attention(Stream& stream, const Heads& heads, int batch, int context) {
  const DecodeStep step(stream, batch, context);
  kernels::KvLayer layer{.num_blocks = step.num_blocks,
                         .num_kv_heads = heads.num_kv_heads,
                         .head_dim = heads.head_dim,
                         .type = stream.device_api() != nullptr ? kernels::ElementType::kBF16
                                                                : kernels::ElementType::kF32};
  const auto half_bytes = static_cast<std::size_t>(layer.block_size() * step.num_blocks *
                                                   kernels::element_size(layer.type));
  const int num_layers = turns_of(2 * half_bytes);
  const Memory cache = random_memory(stream, 2 * half_bytes * static_cast<std::size_t>(num_layers));
  const std::int64_t width = std::int64_t{heads.num_heads} * heads.head_dim;
  const Memory queries = random_memory(stream, static_cast<std::size_t>(batch * width) * 4);
  const Memory outputs = Memory::allocate(stream.backend(), queries.num_bytes());
  const double seconds = seconds_of_op(stream, num_layers, [&](int i) {
    auto* keys =
        static_cast<std::byte*>(cache.data()) + 2 * half_bytes * static_cast<std::size_t>(i);
    layer.keys = keys;
    layer.values = keys + half_bytes;
    kernels::paged_attention(stream, {.queries = random_matrix(queries, batch, width),
                                      .cache = layer,
                                      .num_heads = heads.num_heads,
                                      .scale = 1.0F / std::sqrt(static_cast<float>(heads.head_dim)),
                                      .num_sequences = batch,
                                      .chunk_max = 1,
                                      .context_max = context,
                                      .num_table_blocks = step.num_blocks,
                                      .cu_seqlens = indices(step.cu_seqlens),
                                      .first_positions = indices(step.first_positions),
                                      .block_offsets = indices(step.block_offsets),
                                      .block_tables = indices(step.block_tables),
                                      .table_starts = indices(step.block_offsets),
                                      .y = kernels::make_matrix(outputs.floats(), batch, width)});
  });
  const double num_bytes = 2.0 * batch * context * heads.num_kv_heads * heads.head_dim *
                           static_cast<double>(kernels::element_size(layer.type));
  print({{"what", "attention"},
         {"heads", std::to_string(heads.num_heads) + "x" + std::to_string(heads.num_kv_heads) +
                       "x" + std::to_string(heads.head_dim)},
         {"batch", batch},
         {"context", context},
         {"us", seconds * 1e6},
         {"bytes_per_s", num_bytes / seconds}});
}

// Throws where a linear's first rows have other bits among many than alone: on a device different
// kernels take them.
void check_bits(Stream& stream, const kernels::PackedLinear& weight, std::int64_t rows) {
  constexpr std::int64_t kManyRows = 128;
  const std::int64_t few = std::min<std::int64_t>(rows, kManyRows / 2);
  const Memory x = random_memory(stream, static_cast<std::size_t>(kManyRows * weight.k) * 4);
  const Memory y =
      Memory::allocate(stream.backend(), static_cast<std::size_t>(kManyRows * weight.n) * 4);
  const auto first_rows_of = [&](std::int64_t count) {
    kernels::linear(stream, {.x = random_matrix(x, count, weight.k),
                             .weight = weight,
                             .y = kernels::make_matrix(y.floats(), count, weight.n)});
    return download(stream, y, few * weight.n);
  };
  const std::vector<float> among_many = first_rows_of(kManyRows);
  const std::vector<float> alone = first_rows_of(few);
  if (std::memcmp(alone.data(), among_many.data(), alone.size() * sizeof(float)) != 0) {
    throw std::runtime_error("linear " + std::to_string(weight.n) + "x" + std::to_string(weight.k) +
                             ": the bits of " + std::to_string(few) + " rows are others among " +
                             std::to_string(kManyRows));
  }
}

// A kernel of the device for bf16 by its name; none for the name of a type.
std::optional<cuda::LinearKernel> kernel_named(const std::string& name) {
  using cuda::LinearKernel;
  if (name == "stream") return LinearKernel::kStream;
  if (name == "tiled") return LinearKernel::kTiled128x128;
  if (name == "wgmma") return LinearKernel::kWgmma;
  if (name == "cluster") return LinearKernel::kWgmmaCluster;
  if (name == "cluster2") return LinearKernel::kWgmmaClusterBy2;
  return std::nullopt;
}

// A weight [n, k] of that type, without its memory.
kernels::PackedLinear weight_of(const std::string& type, std::int64_t n, std::int64_t k) {
  kernels::PackedLinear weight{.n = n, .k = k, .type = kernels::WeightType::kBF16};
  if (type == "int8") {
    weight.type = kernels::WeightType::kInt8;
  } else if (type == "int4") {
    weight.type = kernels::WeightType::kInt4;
  } else if (type == "fp8") {
    weight.type = kernels::WeightType::kWidened;
    weight.grouping = {.codes = kernels::CodeType::kE4M3, .group = k / 16 * 16 + 16};
  } else if (type != "bf16") {
    throw std::invalid_argument(
        "linear: no type or kernel " + type +
        ": bf16, int8, int4, fp8, stream, tiled, wgmma, cluster or cluster2");
  }
  return weight;
}

// `name` is a type, or a kernel of bf16.
void linear(Stream& stream, std::int64_t rows, std::int64_t n, std::int64_t k,
            const std::string& name) {
  const std::optional<cuda::LinearKernel> kernel = kernel_named(name);
  if (kernel.has_value() && stream.device_api() == nullptr) {
    throw std::invalid_argument("linear: kernels have names on a device alone");
  }
  const std::string type = kernel.has_value() ? "bf16" : name;
  kernels::PackedLinear weight = weight_of(type, n, k);
  const std::size_t packed_bytes =
      kernels::packed_bytes(stream.backend(), weight.type, n, k, weight.grouping);
  const int num_weights = turns_of(packed_bytes);
  const Memory weights =
      random_memory(stream, packed_bytes * static_cast<std::size_t>(num_weights));
  // Of int8 on the host.
  const Memory columns =
      random_memory(stream, static_cast<std::size_t>(kernels::padded_columns(n)) * sizeof(float));
  weight.panels = weights.data();
  weight.scales = columns.floats();
  weight.sums = static_cast<const std::int32_t*>(columns.data());
  check_bits(stream, weight, rows);
  const Memory x = random_memory(stream, static_cast<std::size_t>(rows * k) * sizeof(float));
  const Memory y =
      Memory::allocate(stream.backend(), static_cast<std::size_t>(rows * n) * sizeof(float));
  const double seconds = seconds_of_op(stream, num_weights, [&](int i) {
    const auto* panels =
        static_cast<const std::byte*>(weights.data()) + packed_bytes * static_cast<std::size_t>(i);
    weight.panels = panels;
    if (!kernel.has_value()) {
      kernels::linear(stream, {.x = random_matrix(x, rows, k),
                               .weight = weight,
                               .y = kernels::make_matrix(y.floats(), rows, n)});
      return;
    }
    cuda::linear({.x = x.floats(),
                  .x_stride = k,
                  .m = rows,
                  .weight = panels,
                  .n = n,
                  .k = k,
                  .y = y.floats(),
                  .y_stride = n,
                  .scratch = stream.scratch(
                      cuda::linear_scratch_bytes(kernels::ElementType::kBF16, rows, k))},
                 stream.handle(), *kernel);
  });
  const auto weight_elements = static_cast<double>(n * k);
  print({{"what", kernel.has_value() ? "linear, " + name : "linear"},
         {"type", type},
         {"rows", rows},
         {"n", n},
         {"k", k},
         {"us", seconds * 1e6},
         {"flops", 2.0 * static_cast<double>(rows) * weight_elements / seconds},
         {"bytes_per_s", static_cast<double>(packed_bytes) / seconds}});
}

std::vector<int> numbers(const std::string& list, char between = ',') {
  std::vector<int> all;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, between);) all.push_back(std::stoi(part));
  return all;
}

// Runs the command; false: the arguments are none.
bool run(Stream& stream, const std::vector<std::string>& arguments) {
  const auto number = [&](std::size_t i) { return std::stoi(arguments.at(i)); };
  const std::string& what = arguments.front();
  if (what == "probe" && arguments.size() == 1) {
    probe(stream);
  } else if (what == "read" && arguments.size() == 1) {
    read(stream);
  } else if (what == "sample" && arguments.size() == 3) {
    for (const int rows : numbers(arguments[1])) {
      for (const int vocabulary : numbers(arguments[2])) sample_op(stream, rows, vocabulary);
    }
  } else if (what == "ops" && arguments.size() == 7) {
    for (const int rows : numbers(arguments[1])) {
      small_ops(stream, {.rows = rows,
                         .hidden = number(2),
                         .inner = number(3),
                         .num_heads = number(4),
                         .num_kv_heads = number(5),
                         .head_dim = number(6)});
    }
  } else if (what == "attention" && arguments.size() == 6) {
    for (const int batch : numbers(arguments[4])) {
      for (const int context : numbers(arguments[5])) {
        attention(stream, {number(1), number(2), number(3)}, batch, context);
      }
    }
  } else if (what == "linear" && (arguments.size() == 3 || arguments.size() == 4)) {
    const std::string name = arguments.size() == 4 ? arguments[3] : "bf16";
    std::istringstream shapes(arguments[2]);
    for (std::string shape; std::getline(shapes, shape, ',');) {
      const std::vector<int> n_and_k = numbers(shape, 'x');
      for (const int rows : numbers(arguments[1])) {
        linear(stream, rows, n_and_k.at(0), n_and_k.at(1), name);
      }
    }
  } else {
    return false;
  }
  return true;
}

int main(const std::vector<std::string>& arguments) {
  const std::string name = arguments.size() > 1 ? arguments[0] : "";
  const bool on_cpu = name == "cpu";
  if (!on_cpu && name != "cuda" && !name.starts_with("cuda:")) {
    std::fprintf(stderr,
                 "usage: gpu-bench cpu|cuda[:N] probe|read|sample|ops|attention|linear ...\n");
    return 2;
  }
  const int device = name.starts_with("cuda:") ? std::stoi(name.substr(5)) : 0;
  if (!on_cpu) {
    const kernels::cuda::Probe probe = kernels::cuda::probe(device);
    if (!probe.available) throw std::runtime_error("no CUDA: " + probe.reason);
  }
  kernels::WorkerPool pool(1);
  Stream stream(on_cpu ? kernels::cpu_backend() : kernels::cuda::backend(), pool, device);
  if (!run(stream, {arguments.begin() + 1, arguments.end()})) {
    std::fprintf(stderr, "gpu-bench: wrong arguments for %s\n", arguments[1].c_str());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace lmtp::bench

int main(int argc, char** argv) {
  try {
    return lmtp::bench::main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu-bench: %s\n", error.what());
    return 1;
  }
}
