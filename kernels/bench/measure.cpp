#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/backend.h"
#include "kernels/device_api.h"

namespace lmtp::bench {

using kernels::Memory;
using kernels::Stream;

namespace {

// Larger than any cache: repeated measurements cycle through this many bytes.
constexpr std::size_t kTurnBytes = std::size_t{512} << 20;
constexpr int kTurnsMax = 1024;
constexpr double kRoundSeconds = 0.05;
constexpr int kRounds = 7;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

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

void copy_in(Stream& stream, void* to, const void* from, std::size_t num_bytes) {
  if (const kernels::DeviceApi* device = stream.device_api()) {
    device->copy_to_device(stream.handle(), to, from, num_bytes);
  } else {
    std::memcpy(to, from, num_bytes);
  }
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

}  // namespace lmtp::bench
