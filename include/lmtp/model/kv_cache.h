// KvCache: the keys and values of all layers, in blocks.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// Bytes of one block over all layers.
std::int64_t kv_block_bytes(const ModelConfig& config, kernels::ElementType type);

// Owner: the model agent. On the host, address space is reserved at once; memory is used as blocks
// are first written.
class KvCache {
 public:
  // Where the ops of `stream` run. `type`: of keys and values; not kF16 on a CPU.
  // REQUIRES: num_blocks >= 2 (block 0 is never handed out).
  KvCache(const ModelConfig& config, int num_blocks, kernels::Stream& stream,
          kernels::ElementType type);

  int num_blocks() const { return num_blocks_; }
  std::int64_t num_bytes() const { return static_cast<std::int64_t>(memory_.num_bytes()); }

  // Valid while the cache lives.
  kernels::KvLayer layer(int index) const;

  // Makes the copies, in order, in every layer. `copies`: memory of the ops' device.
  void copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                   std::int64_t count) const;

 private:
  int num_blocks_;
  int num_layers_;
  int num_kv_heads_;
  int head_dim_;
  kernels::ElementType type_;
  kernels::Memory memory_;  // for each layer its keys, then its values
};

}  // namespace lmtp::model
