#include "kernels/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/backend.h"
#include "kernels/device_api.h"

namespace lmtp::kernels {

Stream::Stream(const Backend& backend, WorkerPool& pool, int device)
    : backend_(backend), pool_(pool), device_(device) {
  if (backend.device != nullptr) {
    use();
    handle_ = backend.device->create_stream();
    try {
      for (void*& mark : marks_) mark = backend.device->create_event();
    } catch (...) {
      release();
      throw;
    }
  }
}

Stream::~Stream() { release(); }

void Stream::release() {
  for (void* mark : marks_) {
    if (mark != nullptr) backend_.device->release(DeviceApi::HandleKind::kEvent, mark);
  }
  if (handle_ != nullptr) backend_.device->release(DeviceApi::HandleKind::kStream, handle_);
}

const DeviceApi* Stream::device_api() const { return backend_.device; }

void Stream::use() const {
  if (backend_.device != nullptr) backend_.device->use_device(device_);
}

void Stream::synchronize() {
  if (backend_.device != nullptr) backend_.device->synchronize(handle_);
}

void Stream::set_zero(void* to, std::size_t num_bytes) {
  if (backend_.device != nullptr) {
    backend_.device->set_zero(handle_, to, num_bytes);
  } else {
    std::memset(to, 0, num_bytes);
  }
}

void Stream::mark(int i) {
  if (backend_.device == nullptr) return;
  backend_.device->record(marks_.at(static_cast<std::size_t>(i)), handle_);
}

bool Stream::has_reached(int i) const {
  return backend_.device == nullptr ||
         backend_.device->is_done(marks_.at(static_cast<std::size_t>(i)));
}

void Stream::wait_for(int i) const {
  if (backend_.device == nullptr) return;
  backend_.device->wait(marks_.at(static_cast<std::size_t>(i)));
}

bool Stream::grow(Memory& memory, std::size_t num_bytes) {
  if (num_bytes <= memory.num_bytes()) return false;
  // The old memory is freed first, as both might not fit, and no running op may still use it.
  synchronize();
  ++num_scratch_moves_;  // also where there is not so much memory
  memory = {};
  memory = Memory::allocate(backend_, num_bytes);
  return true;
}

void* Stream::scratch(std::size_t num_bytes) {
  grow(scratch_, num_bytes);
  return scratch_.data();
}

void Stream::make_lanes() {
  const auto count = static_cast<std::size_t>(pool_.num_threads());
  while (lanes_.size() < count) lanes_.push_back(std::make_unique<Lane>(backend_));
}

void Stream::even_lanes() {
  std::size_t most = 0;
  for (const auto& lane : lanes_) most = std::max(most, lane->stream.scratch_.num_bytes());
  for (const auto& lane : lanes_) lane->stream.scratch(most);
}

std::uint32_t* Stream::counters(std::size_t num_bytes) {
  if (grow(counters_, num_bytes)) {
    Memory grown = std::exchange(counters_, {});  // kept once it is zero
    set_zero(grown.data(), grown.num_bytes());
    counters_ = std::move(grown);
  }
  return static_cast<std::uint32_t*>(counters_.data());
}

}  // namespace lmtp::kernels
