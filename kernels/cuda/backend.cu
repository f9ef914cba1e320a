#include "cuda/backend.h"

#include <algorithm>

#include "cuda/attention.h"
#include "cuda/device_api.h"
#include "cuda/kv_store.h"
#include "cuda/linear.h"
#include "cuda/random.h"
#include "cuda/rows.h"
#include "cuda/sample.h"
#include "cuda/step_batch.h"

namespace lmtp::kernels::cuda {
namespace {

std::size_t packed_bytes_of(WeightType type, std::int64_t n, std::int64_t k) {
  return weight_bytes(element_type(type), n, k);
}

void pack(Stream& stream, const SourceWeight& source, const PackTarget& to) {
  const bool outputs_first = source.order == WeightOrder::kOutputsByInputs;
  stream.device_api()->set_zero(stream.handle(), to.panels,
                                packed_bytes_of(to.type, source.n, source.k));
  pack_weight({.data = source.data,
               .type = source.type,
               .n = source.n,
               .k = source.k,
               .row_stride = outputs_first ? source.k : 1,
               .column_stride = outputs_first ? 1 : source.n},
              {.weight = to.panels, .type = element_type(to.type), .n = source.n}, stream.handle());
}

void linear_op(Stream& stream, const LinearArgs& args) {
  const ElementType type = element_type(args.weight.type);
  linear({.x = args.x.data,
          .x_stride = args.x.stride,
          .m = args.x.rows,
          .weight = args.weight.panels,
          .type = type,
          .n = args.weight.n,
          .k = args.weight.k,
          .bias = args.bias,
          .activation = args.activation,
          .residual = args.residual.data,
          .residual_stride = args.residual.stride,
          .y = args.y.data,
          .y_stride = args.y.stride,
          .scratch = stream.scratch(linear_scratch_bytes(type, args.x.rows, args.weight.k))},
         stream.handle());
}

std::size_t scratch_bytes(const OpLimits& limits) {
  return std::max(
      linear_scratch_bytes(element_type(limits.weight_type), limits.rows, limits.inputs),
      attention_scratch_bytes_max(limits));
}

void kv_store_op(Stream& stream, const KvStoreArgs& args) { kv_store(args, stream.handle()); }

void attention_op(Stream& stream, const AttentionArgs& args) {
  paged_attention(args, stream.scratch(attention_scratch_bytes(args)), stream.handle());
}

}  // namespace

const Backend& device_backend() {
  static const Backend kBackend = {.name = "cuda",
                                   .device = &device_api(),
                                   .packed_bytes = packed_bytes_of,
                                   .pack = pack,
                                   .fill_random = fill_random,
                                   .scratch_bytes = scratch_bytes,
                                   .linear = linear_op,
                                   .lora = lora,
                                   .layer_norm = layer_norm,
                                   .rms_norm = rms_norm,
                                   .rotary_angles = rotary_angles,
                                   .rotary = rotary,
                                   .gated_activation = gated_activation,
                                   .activate = activate_rows,
                                   .soft_cap = soft_cap,
                                   .embedding = embedding,
                                   .gather_rows = gather_rows,
                                   .kv_store = kv_store_op,
                                   .kv_copy = kv_copy,
                                   .paged_attention = attention_op,
                                   .sample = sample,
                                   .step_batch = step_batch,
                                   .drawn_ids = drawn_ids};
  return kBackend;
}

}  // namespace lmtp::kernels::cuda
