#include "kernels/stream.h"

#include <cstdlib>
#include <new>

#include "lmtp/base/check.h"

namespace lmtp::kernels {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

Stream::Stream(const Backend& backend, WorkerPool& pool) : backend_(backend), pool_(pool) {}
Stream::~Stream() = default;

void Stream::Free::operator()(void* memory) const { std::free(memory); }

void* Stream::scratch(std::size_t num_bytes) {
  if (num_bytes > scratch_bytes_) {
    const std::size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    scratch_.reset();
    scratch_bytes_ = 0;
    scratch_.reset(std::aligned_alloc(kAlignment, rounded));
    if (scratch_ == nullptr) {
      throw std::bad_alloc();
    }
    scratch_bytes_ = rounded;
  }
  return scratch_.get();
}

}  // namespace lmtp::kernels
