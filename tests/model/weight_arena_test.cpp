#include "weight_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace lmtp::model {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{32} << 20;

using Bytes = std::shared_ptr<std::byte>;

std::uintptr_t address(const Bytes& bytes) { return reinterpret_cast<std::uintptr_t>(bytes.get()); }

// Each byte is the number of its owner, so that what shares memory with another one shows. Nothing
// has no address.
void fill(const Bytes& bytes, std::size_t size, std::size_t number) {
  if (size == 0) return;
  std::memset(bytes.get(), static_cast<int>(number % 251 + 1), size);
}

bool is_filled(const Bytes& bytes, std::size_t size, std::size_t number) {
  for (std::size_t i = 0; i < size; ++i) {
    if (bytes.get()[i] != static_cast<std::byte>(number % 251 + 1)) return false;
  }
  return true;
}

TEST(WeightArena, EverythingStartsAtALine) {
  WeightArena arena;
  for (const std::size_t size : {1, 2, 15, 16, 17, 63, 64, 65, 4095, 4097, 105}) {
    EXPECT_EQ(address(arena.allocate(size)) % 64, 0U) << size;
  }
}

TEST(WeightArena, OddSizesShareNoByte) {
  WeightArena arena;
  std::vector<Bytes> all;
  for (std::size_t size = 0; size < 400; ++size) {
    all.push_back(arena.allocate(size));
    fill(all.back(), size, size);
  }
  for (std::size_t size = 0; size < all.size(); ++size) {
    EXPECT_TRUE(is_filled(all[size], size, size)) << size << " bytes";
  }
}

TEST(WeightArena, SmallOnesLieOneBehindTheOtherInAPiece) {
  WeightArena arena;
  const Bytes first = arena.allocate(65);
  const Bytes nothing = arena.allocate(0);
  const Bytes second = arena.allocate(64);
  const Bytes third = arena.allocate(1);
  EXPECT_EQ(address(second), address(first) + 128);
  EXPECT_EQ(address(third), address(second) + 64);
  EXPECT_EQ(address(first) % (std::uintptr_t{2} << 20), 0U) << "a piece begins with a huge page";
}

// Nothing is written: what is not touched takes no memory.
TEST(WeightArena, APieceIsUsedToItsLastByteAndThenThereIsAnother) {
  WeightArena arena;
  const Bytes most = arena.allocate(kPieceBytes - 64);
  const Bytes rest = arena.allocate(64);
  const Bytes beyond = arena.allocate(1);
  EXPECT_EQ(address(rest), address(most) + kPieceBytes - 64);
  const bool in_first =
      address(beyond) >= address(most) && address(beyond) < address(most) + kPieceBytes;
  EXPECT_FALSE(in_first);
  fill(beyond, 1, 1);
}

TEST(WeightArena, WhatIsLargerThanAPieceHasOneOfItsOwn) {
  WeightArena arena;
  const Bytes small = arena.allocate(1);
  fill(small, 1, 1);
  constexpr std::size_t kSize = 3 * (kPieceBytes + 1);
  const Bytes large = arena.allocate(kSize);
  EXPECT_EQ(address(large) % 64, 0U);
  large.get()[kSize - 1] = std::byte{7};
  EXPECT_EQ(large.get()[kSize - 1], std::byte{7});
  EXPECT_TRUE(is_filled(small, 1, 1));
}

TEST(WeightArena, WhatItGaveOutlivesTheArenaAndItsNeighbours) {
  std::optional<WeightArena> arena(std::in_place);
  constexpr std::size_t kSize = 12'000;
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < 4; ++i) {
    all.push_back(arena->allocate(kSize));
    fill(all.back(), kSize, i);
  }
  const Bytes alone = arena->allocate(kPieceBytes + 1);  // of another piece
  arena.reset();
  all.erase(all.begin(), all.begin() + 3);
  EXPECT_TRUE(is_filled(all[0], kSize, 3));
  fill(all[0], kSize, 9);
  EXPECT_TRUE(is_filled(all[0], kSize, 9));
  alone.get()[kPieceBytes] = std::byte{1};
}

}  // namespace
}  // namespace lmtp::model
