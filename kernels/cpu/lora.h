// The op lora for every instruction set: which rows share weights and who computes what stands in
// lora.cpp, the sums are those of an instruction set (kernel_lora.h).
#pragma once

#include "kernels/lora.h"

namespace lmtp::kernels {

// Rows of one adapter that are computed together: each chunk of weights is read once for them.
inline constexpr int kLoraRowsMax = 4;

// A walk over an adapter's chunks.
class LoraChunks {
 public:
  // From element `at` on, which begins a chunk.
  LoraChunks(const LoraAdapter& adapter, std::int64_t at)
      : adapter_(adapter), piece_(at / adapter.piece_size), left_(at % adapter.piece_size) {
    bytes_ = static_cast<const char*>(adapter.pieces[piece_]) + left_ * element_size(adapter.type);
    left_ = adapter.piece_size - left_;
  }

  // The next kLoraChunk elements.
  template <typename Element>
  [[gnu::always_inline]] const Element* next() {
    if (left_ == 0) {
      bytes_ = static_cast<const char*>(adapter_.pieces[++piece_]);
      left_ = adapter_.piece_size;
    }
    const auto* chunk = reinterpret_cast<const Element*>(bytes_);
    bytes_ += kLoraChunk * sizeof(Element);
    left_ -= kLoraChunk;
    return chunk;
  }

 private:
  const LoraAdapter& adapter_;
  std::int64_t piece_;
  std::int64_t left_;  // elements of the piece
  const char* bytes_;
};

// Of up to kLoraRowsMax rows, each by itself: a row's bits do not depend on how many there are.
struct LoraOps {
  // low[i][0 .. kLoraRanks) of one group of ranks: A x[i] over k inputs.
  void (*shrink)(LoraChunks a, const float* const* x, int num_rows, std::int64_t k,
                 float* const* low);
  // y[i][0 .. n) += B low[i]: the outputs whose chunks begin with b.
  void (*expand)(LoraChunks b, const float* const* low, int num_rows, std::int64_t num_rank_groups,
                 std::int64_t n, float* const* y);
};

namespace plain {
void lora(Stream& stream, const LoraArgs& args, const LoraOps& of_f32, const LoraOps& of_bf16);
}

}  // namespace lmtp::kernels
