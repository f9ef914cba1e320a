// How gpu-bench takes a figure: ops in a graph over memory that no cache holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/base/json.h"

namespace lmtp::bench {

// The median time, in seconds, of one of `count` ops, of which op(i) is the i-th. On a device all
// of them are a graph, so that launching does not count.
double seconds_of_op(kernels::Stream& stream, int count, const std::function<void(int)>& op);

// How many copies of so many bytes are larger than any cache: measurements go through them in turn.
int turns_of(std::size_t num_bytes);

// From the host to the backend's memory; both stay as they are until the stream is synchronised.
void copy_in(kernels::Stream& stream, void* to, const void* from, std::size_t num_bytes);

// Memory of the stream's backend with what the host holds.
template <typename T>
kernels::Memory upload(kernels::Stream& stream, const std::vector<T>& values) {
  auto memory = kernels::Memory::allocate(stream.backend(), values.size() * sizeof(T));
  copy_in(stream, memory.data(), values.data(), values.size() * sizeof(T));
  stream.synchronize();
  return memory;
}

std::vector<float> download(kernels::Stream& stream, const kernels::Memory& memory,
                            std::int64_t count);

// num_bytes of random bf16 numbers, pairs of which are finite as f32, too.
kernels::Memory random_memory(kernels::Stream& stream, std::size_t num_bytes);

kernels::Matrix<const float> random_matrix(const kernels::Memory& memory, std::int64_t rows,
                                           std::int64_t columns);

// One line of JSON.
void print(const OrderedJson& point);

}  // namespace lmtp::bench
