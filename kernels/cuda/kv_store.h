// The layout of keys and values in a device's memory, and storing them.
//
// bf16, f16: a block of 16 tokens holds for each head ceil(head_dim / 16) tiles of keys, and as
// many of values, 512 bytes each, in the order in which mma.m16n8k16 takes them as operand B:
//   keys    [num_blocks][num_kv_heads][ceil(head_dim / 16)] tiles, a token a row (fragment_tile.h)
//   values  the same, where lane 4g + t holds, as words (pairs of tokens)
//             0  tokens 2t, 2t+1 of dimension g      1  tokens 2t+8, 2t+9 of dimension g
//             2  tokens 2t, 2t+1 of dimension g+8    3  tokens 2t+8, 2t+9 of dimension g+8
// e4m3: the same tiles of 256 bytes, 8 a lane: words of four elements, whose bytes 0 and 2 are one
// word of the above and bytes 1 and 3 the next (kernels/e4m3.h).
// f32: keys and values [num_blocks][num_kv_heads][kBlockSize][padded_head_dim].
// Dimensions that do not exist are zero.
#pragma once

#include <cstdint>

#include "cuda/fragment_tile.h"
#include "kernels/attention.h"
#include "kernels/device_types.h"
#include "kernels/e4m3.h"

namespace lmtp::kernels::cuda {

// Offset of a token's value of one dimension in its tile, in elements.
constexpr int offset_of_value(int token, int dimension) {
  const int lane = dimension % 8 * 4 + token % 8 / 2;
  const int word = token / 8 + dimension / 8 * 2;
  return lane * 8 + word * 2 + token % 2;
}

// Offset of an element of e4m3 in its tile, in bytes, from that in elements.
constexpr int e4m3_offset(int offset) { return offset / 4 * 4 + byte_of_e4m3(offset % 4); }

// All pointers are in the device's memory.
void kv_store(const KvStoreArgs& args, StreamHandle stream);

}  // namespace lmtp::kernels::cuda
