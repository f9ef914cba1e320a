#include "weight_arena.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace lmtp::model {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kPieceBytes = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 64;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::shared_ptr<std::byte> new_piece(std::size_t num_bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, num_bytes));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  // A wish: where it is refused, everything works as before. What is not touched takes no memory.
  (void)madvise(memory, num_bytes, MADV_HUGEPAGE);
  return {memory, [](std::byte* piece) { std::free(piece); }};
}

}  // namespace

at::Tensor WeightArena::allocate(at::IntArrayRef shape, at::ScalarType type) {
  std::size_t num_bytes = at::elementSize(type);
  for (const std::int64_t size : shape) {
    num_bytes *= static_cast<std::size_t>(size);
  }
  num_bytes = round_up(num_bytes, kAlignment);
  if (num_bytes > piece_bytes_ - used_bytes_) {
    const std::size_t rounded = round_up(std::max(num_bytes, kPieceBytes), kHugePageBytes);
    piece_ = new_piece(rounded);
    piece_bytes_ = rounded;
    used_bytes_ = 0;
  }
  std::byte* data = piece_.get() + used_bytes_;
  used_bytes_ += num_bytes;
  return at::from_blob(
      data, shape, [piece = piece_](void*) {}, type);
}

}  // namespace lmtp::model
