// Backend: one implementation of every op, chosen once: cpu_backend(), or kernels::cuda::backend()
// for a device.
//
// Within one backend an op's bits depend on its row alone; between backends they may differ.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/experts.h"
#include "kernels/gather.h"
#include "kernels/linear.h"
#include "kernels/lora.h"
#include "kernels/norm.h"
#include "kernels/random.h"
#include "kernels/rotary.h"
#include "kernels/sample.h"
#include "kernels/step_batch.h"

namespace lmtp::kernels {

struct DeviceApi;

// Upper bounds of what one op of a model is given.
struct OpLimits {
  WeightType weight_type = WeightType::kF32;
  std::int64_t rows = 0;        // of a linear
  std::int64_t inputs = 0;      // of a linear
  bool may_have_codes = false;  // weights by groups, or that a checkpoint holds as codes
  ElementType kv_type = ElementType::kF32;
  int num_kv_heads = 0;
  int head_dim = 0;
  std::int64_t num_sequences = 0;     // of attention
  std::int64_t num_table_blocks = 0;  // of all sequences together
};

// Arguments have been checked by the op's function of the same name. Every entry is there on every
// backend but where it says so.
struct Backend {
  const char* name;
  const DeviceApi* device;  // its memory and streams; null: those of the host
  std::size_t (*packed_bytes)(WeightType type, std::int64_t n, std::int64_t k, const Grouping&);
  void (*pack)(Stream&, const SourceWeight&, const PackTarget&);
  void (*pack_codes)(Stream&, const SourceCodes&, const PackTarget&);  // null on the host
  void (*fill_random)(Stream&, const FillRandomArgs&);
  // Reserves the stream's scratch memory and counters before the first op within these limits; no
  // op needs more. Nothing on the host, where they grow as ops need them.
  void (*reserve)(Stream&, const OpLimits&);
  void (*linear)(Stream&, const LinearArgs&);
  // Whether linear() runs the prologue, too, which has none else; null: never.
  bool (*takes_prologue)(const LinearArgs&) = nullptr;
  LinearShape linear_shape = {};  // of the host's instruction sets
  void (*lora)(Stream&, const LoraArgs&);
  void (*layer_norm)(Stream&, const LayerNormArgs&);
  void (*rms_norm)(Stream&, const RmsNormArgs&);
  void (*rotary_angles)(Stream&, const RotaryAnglesArgs&);
  void (*rotary)(Stream&, const RotaryArgs&);
  void (*gated_activation)(Stream&, const GatedActivationArgs&);
  void (*activate)(Stream&, Matrix<float>, Activation);
  void (*soft_cap)(Stream&, Matrix<float>, float);
  void (*embedding)(Stream&, const EmbeddingArgs&);
  void (*gather_rows)(Stream&, const GatherRowsArgs&);
  void (*kv_store)(Stream&, const KvStoreArgs&);
  void (*kv_copy)(Stream&, const KvLayer&, const KvCopies&);
  void (*paged_attention)(Stream&, const AttentionArgs&);
  void (*sample)(Stream&, const SampleArgs&);
  void (*step_batch)(Stream&, const StepBatchArgs&);
  void (*drawn_ids)(Stream&, const DrawnIdsArgs&);
  // Mixtures of experts have these; null on a device.
  void (*route)(Stream&, const RouteArgs&) = nullptr;
  void (*expert_rows)(Stream&, const ExpertRowsArgs&) = nullptr;
  void (*expert_linear)(Stream&, const ExpertLinearArgs&) = nullptr;
  void (*combine)(Stream&, const CombineArgs&) = nullptr;
};

// The fastest that this processor can run. Any thread.
const Backend& cpu_backend();

// All that this processor can run, fastest first; the plain reference twin is not among them.
std::vector<const Backend*> cpu_backends();

// Plain loops with sums in double: what the others are compared with.
const Backend& reference_backend();

}  // namespace lmtp::kernels
