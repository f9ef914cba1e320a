// Memory: bytes where the ops of a backend run.
#pragma once

#include <cstddef>
#include <memory>

namespace lmtp::kernels {

struct Backend;

// Owner of its bytes; may be moved. Any thread. Aligned for any vector: 64 bytes on the host, 256
// on a device.
class Memory {
 public:
  Memory() = default;
  // Contents undefined; on the host, pages of large ones are allocated when they are first written.
  // Throws std::bad_alloc or DeviceError.
  static Memory allocate(const Backend& backend, std::size_t num_bytes);
  // In host memory, page-locked where the backend has a device, for asynchronous copies.
  static Memory allocate_pinned(const Backend& backend, std::size_t num_bytes);

  void* data() const { return data_.get(); }
  float* floats() const { return static_cast<float*>(data_.get()); }
  std::size_t num_bytes() const { return num_bytes_; }
  bool empty() const { return data_ == nullptr; }
  // Shared with holders of a part of it that outlive this.
  const std::shared_ptr<void>& shared() const { return data_; }

 private:
  Memory(std::shared_ptr<void> data, std::size_t num_bytes)
      : data_(std::move(data)), num_bytes_(num_bytes) {}

  std::shared_ptr<void> data_;
  std::size_t num_bytes_ = 0;
};

}  // namespace lmtp::kernels
