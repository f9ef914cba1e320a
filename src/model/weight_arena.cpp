#include "weight_arena.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kernels/backend.h"

namespace lmtp::model {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

at::Tensor WeightArena::allocate(at::IntArrayRef shape, at::ScalarType type) {
  std::size_t num_bytes = at::elementSize(type);
  for (const std::int64_t size : shape) {
    num_bytes *= static_cast<std::size_t>(size);
  }
  num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (num_bytes > piece_.num_bytes() - used_bytes_) {
    piece_ = kernels::Memory::allocate(kernels::cpu_backend(), std::max(num_bytes, kPieceBytes));
    used_bytes_ = 0;
  }
  std::byte* data = static_cast<std::byte*>(piece_.data()) + used_bytes_;
  used_bytes_ += num_bytes;
  return at::from_blob(
      data, shape, [piece = piece_.shared()](void*) {}, type);
}

}  // namespace lmtp::model
