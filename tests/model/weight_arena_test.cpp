#include "weight_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace lmtp::model {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

std::uintptr_t address(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
}

// Each byte of a tensor is its number, so that what shares memory with another one shows. A tensor
// without bytes has no address.
void fill(const at::Tensor& tensor, std::size_t number) {
  if (tensor.nbytes() == 0) return;
  std::memset(tensor.mutable_data_ptr(), static_cast<int>(number % 251 + 1), tensor.nbytes());
}

bool is_filled(const at::Tensor& tensor, std::size_t number) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  const auto wanted = static_cast<unsigned char>(number % 251 + 1);
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
    if (bytes[i] != wanted) return false;
  }
  return true;
}

TEST(WeightArena, TensorsHaveTheirShapeAndStartAtALine) {
  WeightArena arena;
  const at::Tensor odd = arena.allocate({3, 7, 5}, at::kChar);
  EXPECT_EQ(odd.sizes(), (std::vector<std::int64_t>{3, 7, 5}));
  EXPECT_EQ(odd.scalar_type(), at::kChar);
  EXPECT_TRUE(odd.is_contiguous());
  for (const std::int64_t size : {1, 2, 15, 16, 17, 63, 64, 65, 4095, 4097}) {
    for (const at::ScalarType type : {at::kChar, at::kBFloat16, at::kFloat}) {
      const at::Tensor tensor = arena.allocate({size}, type);
      EXPECT_EQ(tensor.numel(), size);
      EXPECT_EQ(address(tensor) % 64, 0U) << size << " of " << at::toString(type);
    }
  }
}

TEST(WeightArena, TensorsOfOddSizesShareNoByte) {
  WeightArena arena;
  std::vector<at::Tensor> tensors;
  for (std::int64_t size = 0; size < 200; ++size) {
    tensors.push_back(arena.allocate({size, 3}, size % 2 == 0 ? at::kChar : at::kFloat));
    fill(tensors.back(), tensors.size());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(is_filled(tensors[i], i + 1)) << "tensor " << i;
  }
}

TEST(WeightArena, SmallTensorsLieOneBehindTheOtherInAPiece) {
  WeightArena arena;
  const at::Tensor first = arena.allocate({65}, at::kChar);
  const at::Tensor empty = arena.allocate({0}, at::kFloat);
  const at::Tensor second = arena.allocate({16}, at::kFloat);
  const at::Tensor third = arena.allocate({1}, at::kFloat);
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(address(second), address(first) + 128);
  EXPECT_EQ(address(third), address(second) + 64);
  EXPECT_EQ(address(first) % (std::uintptr_t{2} << 20), 0U) << "a piece begins with a huge page";
}

// Nothing is written: what is not touched takes no memory.
TEST(WeightArena, APieceIsUsedToItsLastByteAndThenThereIsAnother) {
  WeightArena arena;
  const at::Tensor most = arena.allocate({kPieceBytes - 64}, at::kChar);
  const at::Tensor rest = arena.allocate({64}, at::kChar);
  const at::Tensor beyond = arena.allocate({1}, at::kChar);
  EXPECT_EQ(address(rest), address(most) + kPieceBytes - 64);
  const bool in_first = address(beyond) >= address(most) &&
                        address(beyond) < address(most) + static_cast<std::uintptr_t>(kPieceBytes);
  EXPECT_FALSE(in_first);
  fill(beyond, 1);
}

TEST(WeightArena, ATensorLargerThanAPieceHasOneOfItsOwn) {
  WeightArena arena;
  const at::Tensor small = arena.allocate({1}, at::kChar);
  const at::Tensor large = arena.allocate({3, kPieceBytes + 1}, at::kChar);
  EXPECT_EQ(large.nbytes(), static_cast<std::size_t>(3 * (kPieceBytes + 1)));
  EXPECT_EQ(address(large) % 64, 0U);
  fill(small, 1);
  auto* last = static_cast<char*>(large.mutable_data_ptr()) + large.nbytes() - 1;
  *last = 7;
  EXPECT_EQ(*last, 7);
  EXPECT_TRUE(is_filled(small, 1));
}

TEST(WeightArena, TensorsOutliveTheArenaAndOneAnother) {
  std::optional<WeightArena> arena(std::in_place);
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < 4; ++i) {
    tensors.push_back(arena->allocate({1000, 3}, at::kFloat));
    fill(tensors.back(), i);
  }
  const at::Tensor alone = arena->allocate({kPieceBytes + 1}, at::kChar);  // of another piece
  arena.reset();
  tensors.erase(tensors.begin(), tensors.begin() + 3);
  EXPECT_TRUE(is_filled(tensors[0], 3));
  fill(tensors[0], 9);
  EXPECT_TRUE(is_filled(tensors[0], 9));
  static_cast<char*>(alone.mutable_data_ptr())[kPieceBytes] = 1;
}

}  // namespace
}  // namespace lmtp::model
