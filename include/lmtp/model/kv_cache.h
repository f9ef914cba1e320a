// KvCache: the keys and values of all layers, in blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// The keys and values of one layer.
struct KvSpec {
  int num_heads = 0;  // of keys, and of values
  int head_dim = 0;
  int window = 0;  // tokens that attention sees; 0: all before

  // Columns of a layer's keys, or values.
  std::int64_t width() const { return std::int64_t{num_heads} * head_dim; }
};

// By layer. Of a rank: those of its rank_config.
std::vector<KvSpec> kv_specs(const ModelConfig& config);

// Bytes of one block over all layers.
std::int64_t kv_block_bytes(const std::vector<KvSpec>& specs, kernels::ElementType type);

// Owner: the model agent. Blocks of the host, for what has no place on a device, are numbered
// behind its own; only copy_blocks() knows them. On the host, address space is reserved at once;
// memory is used as blocks are first written, or shortly before (kv_pages.h).
class KvCache {
 public:
  // Where the ops of `stream` run. `type`: of keys and values.
  // REQUIRES: num_blocks >= 2 (block 0 is never handed out).
  KvCache(const std::vector<KvSpec>& specs, int num_blocks, kernels::Stream& stream,
          kernels::ElementType type, int num_host_blocks = 0);

  int num_blocks() const { return num_blocks_; }
  int num_host_blocks() const { return num_host_blocks_; }
  std::int64_t num_bytes() const { return static_cast<std::int64_t>(memory_.num_bytes()); }

  // Valid while the cache lives.
  const kernels::KvLayer& layer(int index) const;

  // A block's memory: its keys and values in every layer, pieces of piece_bytes() each, or 0 where
  // layers differ. For what is not keys and values: adapters.
  std::int64_t piece_bytes() const;
  void append_pieces(BlockId block, std::vector<void*>& to) const;

  // Makes the copies, in order, in every layer. `copies`: memory of the ops' device.
  void copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                   std::int64_t count) const;

 private:
  int num_blocks_;
  int num_host_blocks_;
  kernels::Memory memory_;       // for each layer its keys, then its values
  kernels::Memory host_memory_;  // the same, of the host's blocks
  std::vector<kernels::KvLayer> layers_;
  std::vector<kernels::KvLayer> host_layers_;  // empty where there are none
};

}  // namespace lmtp::model
