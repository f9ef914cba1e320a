// The tile registers of AMX.
#pragma once

#include <cstdint>

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Rows of a whole tile, and units of a row of it.
inline constexpr int kTileSize = 16;
inline constexpr int kTileStride = kTileSize * 4;  // bytes
inline constexpr int kNumTiles = 8;

// Compiler barrier: stores to `memory` are done before the tile instructions that follow. gcc 12's
// intrinsics do not declare that they read memory, so stores could be optimised away.
inline void show_to_tiles(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// Shapes of all tiles; whole ones unless set.
struct TileShapes {
  int rows[kNumTiles];
  int units[kNumTiles];  // of a row

  TileShapes() {
    for (int tile = 0; tile < kNumTiles; ++tile) rows[tile] = units[tile] = kTileSize;
  }
};

// Configures this thread's tiles for its lifetime.
class TileRegisters {
 public:
  explicit TileRegisters(const TileShapes& shapes) {
    Config config;
    for (int tile = 0; tile < kNumTiles; ++tile) {
      config.bytes_per_row[tile] = static_cast<std::uint16_t>(4 * shapes.units[tile]);
      config.rows[tile] = static_cast<std::uint8_t>(shapes.rows[tile]);
    }
    show_to_tiles(&config);
    _tile_loadconfig(&config);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  struct alignas(64) Config {  // as the processor reads it
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t bytes_per_row[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);
};

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
