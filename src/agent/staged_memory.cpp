#include "staged_memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/device_api.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kFirstBytes = std::size_t{1} << 20;

}  // namespace

void grow(kernels::Memory& memory, std::size_t num_bytes, const kernels::Backend& backend,
          Allocate allocate) {
  if (num_bytes <= memory.num_bytes()) return;
  const std::size_t grown = std::max({num_bytes, 2 * memory.num_bytes(), kFirstBytes});
  memory = {};  // both at once may not fit
  memory = allocate(backend, grown);
}

void StagedMemory::reserve(std::size_t num_bytes) {
  const kernels::Backend& backend = stream_.backend();
  turn_ = 1 - turn_;
  if (num_bytes > device_.num_bytes()) {
    stream_.synchronize();
    ++num_moves_;
  }
  grow(device_, num_bytes, backend, kernels::Memory::allocate);
  if (!is_host()) grow(host_[turn_], num_bytes, backend, kernels::Memory::allocate_pinned);
}

void StagedMemory::send(std::size_t num_bytes) {
  if (is_host()) return;
  stream_.device_api()->copy_to_device(stream_.handle(), device(), host(), num_bytes);
}

MappedMemory::MappedMemory(kernels::Stream& stream, std::size_t num_bytes) : stream_(stream) {
  for (kernels::Memory& buffer : buffers_) {
    grow(buffer, num_bytes, stream.backend(), kernels::Memory::allocate_pinned);
  }
}

void MappedMemory::reserve(int turn, std::size_t num_bytes) {
  turn_ = turn;
  kernels::Memory& buffer = buffers_[turn];
  if (num_bytes <= buffer.num_bytes()) return;
  ++num_moves_;
  grow(buffer, num_bytes, stream_.backend(), kernels::Memory::allocate_pinned);
}

void Upload::begin(std::size_t num_bytes) {
  if (memory_.is_host()) return;
  memory_.reserve(num_bytes);
  capacity_ = num_bytes;
  used_ = 0;
}

void Upload::send() {
  if (used_ > 0) memory_.send(used_);
}

std::byte* Upload::add(const void* from, std::size_t num_bytes) {
  if (memory_.is_host()) return nullptr;
  LMTP_CHECK(used_ + size_of(num_bytes) <= capacity_, used_, num_bytes, capacity_);
  if (num_bytes > 0) std::memcpy(memory_.host() + used_, from, num_bytes);
  std::byte* at = memory_.device() + used_;
  used_ += size_of(num_bytes);
  return at;
}

}  // namespace lmtp::agent
