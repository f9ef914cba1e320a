// KvCache: the keys and values of all layers, in blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// Bytes of one block over all layers.
std::int64_t kv_block_bytes(const ModelConfig& config);

// Owner: the model agent. Memory is reserved at once and taken as blocks are first written.
class KvCache {
 public:
  // REQUIRES: num_blocks >= 2 (block 0 is never handed out).
  KvCache(const ModelConfig& config, int num_blocks);

  int num_blocks() const { return num_blocks_; }
  std::int64_t num_bytes() const;

  // Valid while the cache lives.
  kernels::KvLayer layer(int index) const;

  // Carries the copies out, in order, in every layer.
  void copy_blocks(kernels::Stream& stream, const std::vector<kernels::KvCopy>& copies) const;

 private:
  int num_blocks_;
  int num_layers_;
  int num_kv_heads_;
  int head_dim_;
  at::Tensor keys_;    // [num_layers, num_blocks, num_kv_heads, head_dim, kBlockSize] f32
  at::Tensor values_;  // [num_layers, num_blocks, num_kv_heads, kBlockSize, padded head_dim] f32
};

}  // namespace lmtp::model
