#include "cuda/backend.h"

#include <algorithm>
#include <variant>

#include "cuda/attention.h"
#include "cuda/device_api.h"
#include "cuda/kv_store.h"
#include "cuda/linear.h"
#include "cuda/linear_narrow.h"
#include "cuda/narrow_weight.h"
#include "cuda/random.h"
#include "cuda/rows.h"
#include "cuda/sample.h"
#include "cuda/step_batch.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

bool is_narrow(WeightType type) { return type == WeightType::kInt8 || is_grouped(type); }

std::size_t packed_bytes_of(WeightType type, std::int64_t n, std::int64_t k,
                            const Grouping& grouping) {
  return is_narrow(type) ? narrow_weight_bytes(type, grouping, n, k)
                         : weight_bytes(element_type(type), n, k);
}

void pack_codes_op(Stream& stream, const SourceCodes& source, const PackTarget& to) {
  pack_coded_rows(
      {.codes = source.codes,
       .scales = source.scales,
       .offsets = source.offsets,
       .first_row = source.first,
       .count = source.count},
      {.weight = to.panels, .type = to.type, .grouping = to.grouping, .n = source.n, .k = source.k},
      stream.handle());
}

// Rounds some outputs at a time to codes in scratch memory, then packs these.
void pack_rounded(Stream& stream, const WeightSource& source, const PackTarget& to) {
  constexpr std::int64_t kCodeBytes = std::int64_t{1} << 20;
  LMTP_CHECK(to.type == WeightType::kInt8 || to.grouping.group == Grouping{}.group,
             to.grouping.group);
  const std::int64_t groups = to.type == WeightType::kInt8 ? 1 : num_groups(to.grouping, source.k);
  const std::int64_t rows =
      std::max<std::int64_t>(kCodeBytes / source.k / kPanelColumns, 1) * kPanelColumns;
  const std::int64_t scales_at = ceil_divide<std::int64_t>(rows * source.k, 16) * 16;
  auto* codes = static_cast<std::uint8_t*>(
      stream.scratch(static_cast<std::size_t>(scales_at + rows * groups * 4)));
  auto* scales = reinterpret_cast<float*>(codes + scales_at);
  for (std::int64_t first = 0; first < source.n; first += rows) {
    WeightSource part = source;
    part.n = std::min(rows, source.n - first);
    part.data = static_cast<const unsigned char*>(source.data) +
                first * source.row_stride * element_size(source.type);
    round_to_codes(part, to.type, codes, scales, stream.handle());
    pack_codes_op(stream,
                  {.codes = codes,
                   .scales = scales,
                   .first = first,
                   .count = part.n,
                   .n = source.n,
                   .k = source.k},
                  to);
  }
}

void pack(Stream& stream, const SourceWeight& source, const PackTarget& to) {
  const bool outputs_first = source.order == WeightOrder::kOutputsByInputs;
  const WeightSource elements = {.data = source.data,
                                 .type = source.type,
                                 .n = source.n,
                                 .k = source.k,
                                 .row_stride = outputs_first ? source.k : 1,
                                 .column_stride = outputs_first ? 1 : source.n};
  if (is_narrow(to.type)) {
    pack_rounded(stream, elements, to);
    return;
  }
  stream.device_api()->set_zero(stream.handle(), to.panels,
                                packed_bytes_of(to.type, source.n, source.k, {}));
  pack_weight(elements, {.weight = to.panels, .type = element_type(to.type), .n = source.n},
              stream.handle());
}

bool takes_prologue_op(const LinearArgs& args) {
  const WeightType type = args.weight.type;
  return !is_narrow(type) && takes_prologue(args.x.rows, element_type(type), args.prologue);
}

void linear_op(Stream& stream, const LinearArgs& args) {
  const PackedLinear& weight = args.weight;
  const bool narrow = is_narrow(weight.type);
  const ElementType type =
      is_grouped(weight.type) ? weight.grouping.widened_to : element_type(weight.type);
  const std::int64_t m = args.x.rows;
  const std::size_t scratch_bytes = narrow
                                        ? narrow_scratch_bytes(weight.type, m, weight.n, weight.k)
                                        : linear_scratch_bytes(type, m, weight.k);
  const SplitBytes split = narrow ? narrow_split_bytes(weight.type, m, weight.n, weight.k)
                                  : linear_split_bytes(type, m, weight.n, weight.k);
  auto* scratch = static_cast<unsigned char*>(stream.scratch(scratch_bytes + split.partials));
  const LinearLaunch launch = {
      .x = args.x.data,
      .x_stride = args.x.stride,
      .m = m,
      .weight = weight.panels,
      .type = type,
      .n = weight.n,
      .k = weight.k,
      .bias = args.bias,
      .activation = args.activation,
      .scale = args.scale,
      .residual = args.residual.data,
      .residual_stride = args.residual.stride,
      .y = args.y.data,
      .y_stride = args.y.stride,
      .scratch = scratch,
      .split = {.partials = reinterpret_cast<float*>(scratch + scratch_bytes),
                .counters = stream.counters(split.counters)}};
  if (narrow) {
    narrow_linear(launch, weight.type, weight.grouping, stream.handle());
  } else if (!std::holds_alternative<std::monostate>(args.prologue)) {
    linear(launch, args.prologue, stream.handle());
  } else {
    linear(launch, stream.handle());
  }
}

void reserve(Stream& stream, const OpLimits& limits) {
  // Int8 needs less than bf16 of one tile of bytes more.
  const std::size_t linears =
      limits.may_have_codes ? narrow_scratch_bytes_max(limits.rows, limits.inputs)
                            : linear_scratch_bytes(element_type(limits.weight_type), limits.rows,
                                                   limits.inputs + kByteTileInputs);
  const SplitBytes split = split_bytes_max(limits);
  const AttentionSizes attention = attention_sizes_max(limits);
  (void)stream.scratch(std::max(linears + split.partials, attention.scratch_bytes));
  (void)stream.counters(std::max(split.counters, attention.counter_bytes));
}

void kv_store_op(Stream& stream, const KvStoreArgs& args) { kv_store(args, stream.handle()); }

void attention_op(Stream& stream, const AttentionArgs& args) {
  const AttentionSizes sizes = attention_sizes(args);
  paged_attention(args,
                  {.scratch = stream.scratch(sizes.scratch_bytes),
                   .counters = stream.counters(sizes.counter_bytes)},
                  stream.handle());
}

}  // namespace

const Backend& device_backend() {
  static const Backend kBackend = {.name = "cuda",
                                   .device = &device_api(),
                                   .packed_bytes = packed_bytes_of,
                                   .pack = pack,
                                   .pack_codes = pack_codes_op,
                                   .fill_random = fill_random,
                                   .reserve = reserve,
                                   .linear = linear_op,
                                   .takes_prologue = takes_prologue_op,
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
