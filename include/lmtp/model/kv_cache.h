// KvCache: the keys and values of all layers, in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/kv_layout.h"
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

// Which layers share blocks. A block has the same bytes in each group: as many layers, of which the
// last group of a window may have fewer, so that some of its memory stays unused.
struct KvGroups {
  KvLayout layout;            // but for num_written_max
  std::vector<KvSpec> slots;  // a block's memory: those of a layer of each group in turn
  struct Place {
    int group = 0;
    int slot = 0;
  };
  std::vector<Place> layers;  // by layer

  int num_layers() const { return static_cast<int>(layers.size()); }
};

// All layers in one group, which keeps all tokens.
KvGroups one_kv_group(const std::vector<KvSpec>& specs);
// By windows: of a stream of context_length tokens, group 0 keeps all, with the layers that see all
// of it; the others, those of each window in groups of as many, see less. Where no layer sees all,
// group 0 has stubs, and those that see farthest are in the next group; the others with them where
// they are fewer. One group where most layers see all, or where they differ in size.
KvGroups kv_groups(const std::vector<KvSpec>& specs, int context_length);

// Bytes of one block of a group.
std::int64_t kv_block_bytes(const std::vector<KvSpec>& slots, kernels::ElementType type);
// A block as memory of another kind, such as an adapter's: its keys and values in every slot are
// pieces of so many bytes, those of the smallest.
std::int64_t kv_piece_bytes(const std::vector<KvSpec>& slots, kernels::ElementType type);

// Owner: the model agent. Blocks of the host, for what has no place on a device, are numbered
// behind its own; only copy_blocks() knows them. On the host, address space is reserved at once;
// memory is used as blocks are first written, or shortly before (kv_pages.h).
class KvCache {
 public:
  // Where the ops of `stream` run. `type`: of keys and values.
  // REQUIRES: num_blocks >= 2 (block 0 is never handed out).
  KvCache(const KvGroups& groups, int num_blocks, kernels::Stream& stream,
          kernels::ElementType type, int num_host_blocks = 0);
  // All layers in one group.
  KvCache(const std::vector<KvSpec>& specs, int num_blocks, kernels::Stream& stream,
          kernels::ElementType type, int num_host_blocks = 0)
      : KvCache(one_kv_group(specs), num_blocks, stream, type, num_host_blocks) {}

  int num_groups() const { return num_groups_; }
  int num_blocks() const { return num_blocks_; }
  int num_host_blocks() const { return num_host_blocks_; }
  std::int64_t num_bytes() const { return static_cast<std::int64_t>(memory_.num_bytes()); }

  // A layer of the model, and the group whose blocks it has. Valid while the cache lives.
  const kernels::KvLayer& layer(int index) const {
    return slots_[static_cast<std::size_t>(place(index).slot)];
  }
  int group(int index) const { return place(index).group; }
  // The memory of all blocks.
  const std::vector<kernels::KvLayer>& slots() const { return slots_; }

  // A block's memory for what is not keys and values: kv_piece_bytes() each.
  std::int64_t piece_bytes() const { return piece_bytes_; }
  void append_pieces(BlockId block, std::vector<void*>& to) const;

  // Makes the copies, in order, in every slot. `copies`: memory of the ops' device.
  void copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                   std::int64_t count) const;

 private:
  const KvGroups::Place& place(int layer) const;

  int num_groups_;
  int num_blocks_;
  int num_host_blocks_;
  std::int64_t piece_bytes_;
  std::vector<KvGroups::Place> places_;  // by layer
  kernels::Memory memory_;               // for each slot its keys, then its values
  kernels::Memory host_memory_;          // the same, of the host's blocks
  std::vector<kernels::KvLayer> slots_;
  std::vector<kernels::KvLayer> host_slots_;  // empty where there are none
};

}  // namespace lmtp::model
