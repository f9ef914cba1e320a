// Memory that grows with what is wanted of it, on a device and on the way there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "kernels/stream.h"

namespace lmtp::agent {

using Allocate = kernels::Memory (*)(const kernels::Backend&, std::size_t num_bytes);

// Makes `memory` anew where it has fewer bytes, with twice those it had or more, so that it seldom
// moves. What it held is lost. Throws what `allocate` does, and `memory` is empty then.
void grow(kernels::Memory& memory, std::size_t num_bytes, const kernels::Backend& backend,
          Allocate allocate);

// Memory of a device, and as much on the host, pinned, through which it is written or read. Two
// steps may be under way: on the host each has its own. Owner: one thread.
class StagedMemory {
 public:
  // `stream` must outlive this.
  explicit StagedMemory(kernels::Stream& stream) : stream_(stream) {}

  // Room for so many bytes, once a step: on the host, host() is now where it was before
  // the last call. Where memory moves, what was on the device is lost, and all that runs is waited
  // for. REQUIRES: the step before the last one is over.
  void reserve(std::size_t num_bytes);

  // The host's is valid until the next reserve() but one, the device's until the next.
  std::byte* host() const { return static_cast<std::byte*>(host_[turn_].data()); }
  std::byte* device() const { return static_cast<std::byte*>(device_.data()); }

  // Put a copy of the first bytes into the stream: host to device, and back.
  void send(std::size_t num_bytes);
  void fetch(std::size_t num_bytes);

 private:
  kernels::Stream& stream_;
  kernels::Memory host_[2];
  int turn_ = 0;
  kernels::Memory device_;
};

// A step's arrays on their way to a device: packed behind one another, sent by one copy.
// Owner: one thread.
class Upload {
 public:
  // `stream` must outlive this.
  explicit Upload(kernels::Stream& stream) : memory_(stream) {}

  // What add() takes of num_bytes, at most.
  static constexpr std::size_t size_of(std::size_t num_bytes) {
    return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <typename T>
  static std::size_t size_of(const std::vector<T>& elements) {
    return size_of(elements.size() * sizeof(T));
  }

  // Begins anew, with room for so many bytes. REQUIRES: the step before the last one is over.
  void begin(std::size_t num_bytes);
  // Adds a copy of the elements; returns where they are going to lie on the device.
  template <typename T>
  T* add(const std::vector<T>& elements) {
    return static_cast<T*>(add(elements.data(), elements.size() * sizeof(T)));
  }
  // Puts the copy of all that was added into the stream, if there is any.
  void send();

 private:
  static constexpr std::size_t kAlignment = 16;

  void* add(const void* from, std::size_t num_bytes);

  StagedMemory memory_;
  std::size_t used_ = 0;
  std::size_t room_ = 0;
};

}  // namespace lmtp::agent
