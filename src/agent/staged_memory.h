// Memory that grows on demand: on a device and, for copies to it, pinned on the host; and of the
// host alone, where ops reach it. On a CPU it is all the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/memory.h"
#include "kernels/stream.h"

namespace lmtp::agent {

using Allocate = kernels::Memory (*)(const kernels::Backend&, std::size_t num_bytes);

// Reallocates `memory` if it has fewer bytes, to at least twice its size, so that it seldom moves.
// Its contents are lost. Throws what `allocate` does, and `memory` is empty then.
void grow(kernels::Memory& memory, std::size_t num_bytes, const kernels::Backend& backend,
          Allocate allocate);

// Memory of a device, and as much on the host, pinned, for copies to it. Two steps may be in
// flight: on the host each has its own buffer. Owner: one thread.
class StagedMemory {
 public:
  // `stream` must outlive this.
  explicit StagedMemory(kernels::Stream& stream) : stream_(stream) {}

  // Once a step: makes room for num_bytes and switches host() to the other buffer. If the device's
  // memory must grow, waits for all queued work, and its contents are lost.
  // REQUIRES: the step before the last one is over.
  void reserve(std::size_t num_bytes);

  // host() is valid until the next reserve() but one, device() until the next.
  std::byte* host() const {
    return is_host() ? device() : static_cast<std::byte*>(host_[turn_].data());
  }
  std::byte* device() const { return static_cast<std::byte*>(device_.data()); }

  // Queues a copy of the first num_bytes.
  void send(std::size_t num_bytes);

  bool is_host() const { return stream_.device_api() == nullptr; }

  // How often device() has grown.
  std::int64_t num_moves() const { return num_moves_; }

 private:
  kernels::Stream& stream_;
  std::int64_t num_moves_ = 0;
  kernels::Memory host_[2];
  int turn_ = 0;
  kernels::Memory device_;
};

// Memory of the host that the ops read and write themselves, at addresses that stay. Two steps may
// be in flight: each has a turn, 0 or 1, with a buffer of its own. Owner: one thread.
class MappedMemory {
 public:
  static constexpr int kTurns = kernels::Stream::kNumMarks;

  // Buffers of num_bytes. `stream` must outlive this. Throws what allocations do.
  MappedMemory(kernels::Stream& stream, std::size_t num_bytes);

  // Makes room for num_bytes and data() that turn's buffer, whose contents are lost if it grows.
  // REQUIRES: the last step of that turn is over.
  void reserve(int turn, std::size_t num_bytes);
  std::byte* data() const { return static_cast<std::byte*>(buffers_[turn_].data()); }
  // How often a buffer has grown: graphs captured before have the old address.
  std::int64_t num_moves() const { return num_moves_; }

 private:
  kernels::Stream& stream_;
  kernels::Memory buffers_[kTurns];
  int turn_ = 0;
  std::int64_t num_moves_ = 0;
};

// A step's arrays, packed into one buffer and sent to a device by one copy; on a CPU the arrays
// themselves, which must stay as they are until the step is over. Owner: one thread.
class Upload {
 public:
  // `stream` must outlive this.
  explicit Upload(kernels::Stream& stream) : memory_(stream) {}

  // Bytes that add() takes for num_bytes: padded to the alignment.
  static constexpr std::size_t size_of(std::size_t num_bytes) {
    return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <typename T>
  static std::size_t size_of(const std::vector<T>& elements) {
    return size_of(elements.size() * sizeof(T));
  }

  // Begins a new step's upload of at most num_bytes. REQUIRES: the step before the last one is
  // over.
  void begin(std::size_t num_bytes);
  // Adds a copy of the elements; returns where they will be on the device: the same place for
  // whatever has as many bytes before it, but for num_moves().
  template <typename T>
  const T* add(const std::vector<T>& elements) {
    const std::byte* at = add(elements.data(), elements.size() * sizeof(T));
    return memory_.is_host() ? elements.data() : reinterpret_cast<const T*>(at);
  }
  // The same of elements that ops change there.
  template <typename T>
  T* add_mutable(std::vector<T>& elements) {
    std::byte* at = add(elements.data(), elements.size() * sizeof(T));
    return memory_.is_host() ? elements.data() : reinterpret_cast<T*>(at);
  }
  std::int64_t num_moves() const { return memory_.num_moves(); }
  // Queues the copy of all that was added, if anything was.
  void send();

 private:
  static constexpr std::size_t kAlignment = 16;

  // Null on a CPU.
  std::byte* add(const void* from, std::size_t num_bytes);

  StagedMemory memory_;
  std::size_t used_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace lmtp::agent
