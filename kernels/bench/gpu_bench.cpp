// gpu-bench: speed of the kernels on a device, as one line of JSON a point. tools/gpu-check runs it
// beside its peers. It also runs on the CPU, to test the program itself.
//
//   gpu-bench DEVICE read
//   gpu-bench DEVICE attention HEADS KV_HEADS HEAD_DIM BATCHES CONTEXTS     decode
//   gpu-bench DEVICE linear ROWS NxK,...
//
// DEVICE is cpu or cuda[:N]; BATCHES and CONTEXTS are lists: 1,16,256.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/read_device.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "kernels/linear.h"
#include "lmtp/base/json.h"

namespace lmtp::bench {
namespace {

using kernels::Memory;
using kernels::Stream;

// Larger than any cache: repeated measurements cycle through this many bytes.
constexpr std::size_t kTurnBytes = std::size_t{512} << 20;
constexpr int kTurnsMax = 1024;
constexpr std::size_t kReadBytes = std::size_t{4} << 30;
constexpr double kRoundSeconds = 0.05;
constexpr int kRounds = 7;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The median time of one of `count` ops, of which op(i) is the i-th. On a device all of them are a
// graph, so that launching does not count.
double seconds_of_op(Stream& stream, int count, const std::function<void(int)>& op) {
  const auto all = [&] {
    for (int i = 0; i < count; ++i) op(i);
  };
  all();  // scratch memory grows
  stream.synchronize();
  const kernels::DeviceApi* device = stream.device_api();
  void* graph = nullptr;
  if (device != nullptr) {
    device->begin_capture(stream.handle());
    all();
    graph = device->end_capture(stream.handle());
  }
  const auto run = [&](int repetitions) {
    for (int i = 0; i < repetitions; ++i) {
      if (device != nullptr) {
        device->launch_graph(graph, stream.handle());
      } else {
        all();
      }
    }
    stream.synchronize();
  };
  run(1);  // the first launch also uploads the graph
  const double once = seconds_of([&] { run(1); });
  const int repetitions = std::max(1, static_cast<int>(kRoundSeconds / once));
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) rounds.push_back(seconds_of([&] { run(repetitions); }));
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  if (graph != nullptr) device->release(kernels::DeviceApi::HandleKind::kGraph, graph);
  return rounds[kRounds / 2] / repetitions / count;
}

// From the host to the backend's memory; both stay as they are until the stream is synchronised.
void copy_in(Stream& stream, void* to, const void* from, std::size_t num_bytes) {
  if (const kernels::DeviceApi* device = stream.device_api()) {
    device->copy_to_device(stream.handle(), to, from, num_bytes);
  } else {
    std::memcpy(to, from, num_bytes);
  }
}

// Memory of the stream's backend with what the host holds.
template <typename T>
Memory upload(Stream& stream, const std::vector<T>& values) {
  Memory memory = Memory::allocate(stream.backend(), values.size() * sizeof(T));
  copy_in(stream, memory.data(), values.data(), values.size() * sizeof(T));
  stream.synchronize();
  return memory;
}

std::vector<float> download(Stream& stream, const Memory& memory, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (const kernels::DeviceApi* device = stream.device_api()) {
    device->copy_to_host(stream.handle(), values.data(), memory.data(), values.size() * 4);
    stream.synchronize();
  } else {
    std::copy_n(memory.floats(), count, values.begin());
  }
  return values;
}

// num_bytes of random bf16 numbers, pairs of which are finite as f32, too.
Memory random_memory(Stream& stream, std::size_t num_bytes) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  std::vector<std::uint16_t> piece(kPiece / sizeof(std::uint16_t));
  std::uint32_t bits = 1;
  for (std::uint16_t& element : piece) {
    bits = bits * 1664525U + 1013904223U;  // Numerical Recipes' generator
    // A sign, an exponent of 2^-4 to 2^-1, any fraction; from the upper bits, which vary most.
    element = static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | (123U + (bits >> 24) % 4) << 7 |
                                         (bits >> 16 & 0x7FU));
  }
  Memory memory = Memory::allocate(stream.backend(), num_bytes);
  for (std::size_t at = 0; at < num_bytes; at += kPiece) {
    copy_in(stream, static_cast<std::byte*>(memory.data()) + at, piece.data(),
            std::min(kPiece, num_bytes - at));
  }
  stream.synchronize();
  return memory;
}

kernels::Matrix<const float> random_matrix(const Memory& memory, std::int64_t rows,
                                           std::int64_t columns) {
  return kernels::make_matrix<const float>(memory.floats(), rows, columns);
}

int turns_of(std::size_t num_bytes) {
  return std::clamp(static_cast<int>(kTurnBytes / num_bytes), 1, kTurnsMax);
}

void print(const OrderedJson& point) {
  std::puts(json_text(point).c_str());
  std::fflush(stdout);
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

void linear(Stream& stream, std::int64_t rows, std::int64_t n, std::int64_t k) {
  constexpr auto kType = kernels::WeightType::kBF16;
  const std::size_t packed_bytes =
      stream.device_api() != nullptr
          ? kernels::packed_bytes(stream.backend(), kType, n, k)
          : static_cast<std::size_t>(kernels::packed_size(n, k, kType)) * sizeof(float);
  const int num_weights = turns_of(packed_bytes);
  const Memory weights =
      random_memory(stream, packed_bytes * static_cast<std::size_t>(num_weights));
  check_bits(stream, {.panels = weights.data(), .n = n, .k = k, .type = kType}, rows);
  const Memory x = random_memory(stream, static_cast<std::size_t>(rows * k) * sizeof(float));
  const Memory y =
      Memory::allocate(stream.backend(), static_cast<std::size_t>(rows * n) * sizeof(float));
  const double seconds = seconds_of_op(stream, num_weights, [&](int i) {
    const auto* panels =
        static_cast<const std::byte*>(weights.data()) + packed_bytes * static_cast<std::size_t>(i);
    kernels::linear(stream, {.x = random_matrix(x, rows, k),
                             .weight = {.panels = panels, .n = n, .k = k, .type = kType},
                             .y = kernels::make_matrix(y.floats(), rows, n)});
  });
  const auto weight_elements = static_cast<double>(n * k);
  print({{"what", "linear"},
         {"rows", rows},
         {"n", n},
         {"k", k},
         {"us", seconds * 1e6},
         {"flops", 2.0 * static_cast<double>(rows) * weight_elements / seconds},
         {"bytes_per_s", 2.0 * weight_elements / seconds}});
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
  if (what == "read" && arguments.size() == 1) {
    read(stream);
  } else if (what == "attention" && arguments.size() == 6) {
    for (const int batch : numbers(arguments[4])) {
      for (const int context : numbers(arguments[5])) {
        attention(stream, {number(1), number(2), number(3)}, batch, context);
      }
    }
  } else if (what == "linear" && arguments.size() == 3) {
    std::istringstream shapes(arguments[2]);
    for (std::string shape; std::getline(shapes, shape, ',');) {
      const std::vector<int> n_and_k = numbers(shape, 'x');
      linear(stream, number(1), n_and_k.at(0), n_and_k.at(1));
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
    std::fprintf(stderr, "usage: gpu-bench cpu|cuda[:N] read|attention|linear ...\n");
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
