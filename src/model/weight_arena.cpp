#include "weight_arena.h"

#include <algorithm>

#include "kernels/backend.h"

namespace lmtp::model {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

std::shared_ptr<std::byte> WeightArena::allocate(std::size_t num_bytes) {
  num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (num_bytes > piece_.num_bytes() - used_bytes_) {
    piece_ = kernels::Memory::allocate(kernels::cpu_backend(), std::max(num_bytes, kPieceBytes));
    used_bytes_ = 0;
  }
  std::byte* data = static_cast<std::byte*>(piece_.data()) + used_bytes_;
  used_bytes_ += num_bytes;
  return {piece_.shared(), data};
}

}  // namespace lmtp::model
