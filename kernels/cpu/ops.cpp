// The ops as callers see them: shapes are checked here, then the stream's backend does the work.
#include <chrono>
#include <utility>
#include <variant>

#include "kernels/backend.h"

namespace lmtp::kernels {
namespace {

// An op that is slowed takes twice its time.
template <bool kIsSlowed>
class Slowed {
 public:
  Slowed() = default;
  ~Slowed() {
    if constexpr (kIsSlowed) {
      const Clock::time_point end = Clock::now() + (Clock::now() - start_);
      while (Clock::now() < end) {
      }
    }
  }
  Slowed(const Slowed&) = delete;
  Slowed& operator=(const Slowed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = kIsSlowed ? Clock::now() : Clock::time_point();
};

template <typename T>
void check_matrix(const char* op, const char* name, const Matrix<T>& matrix) {
  LMTP_CHECK(matrix.data != nullptr && matrix.rows >= 0 && matrix.columns > 0 &&
                 matrix.stride >= matrix.columns,
             op, name, matrix.rows, matrix.columns, matrix.stride);
}

void check_same_shape(const char* op, const char* name, const Matrix<const float>& matrix,
                      const char* other_name, const Matrix<const float>& other) {
  LMTP_CHECK(matrix.rows == other.rows && matrix.columns == other.columns, op, name, matrix.rows,
             matrix.columns, other_name, other.rows, other.columns);
}

void check_sequences(const AttentionArgs& args) {
  check_same("paged_attention", "cu_seqlens' end", args.cu_seqlens[args.num_sequences], "rows",
             args.queries.rows);
  for (std::int64_t s = 0; s < args.num_sequences; ++s) {
    const std::int64_t rows = std::int64_t{args.cu_seqlens[s + 1]} - args.cu_seqlens[s];
    const std::int64_t length = args.first_positions[s] + rows;
    const std::int64_t num_blocks = args.block_offsets[s + 1] - args.block_offsets[s];
    LMTP_CHECK(rows > 0 && args.first_positions[s] >= 0 && length <= num_blocks * kBlockSize, s,
               rows, args.first_positions[s], length, num_blocks);
    LMTP_CHECK(rows <= args.chunk_max && length <= args.context_max, s, rows, args.chunk_max,
               length, args.context_max);
    const std::int32_t* table = args.block_tables + args.table_starts[s];
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      LMTP_CHECK(table[i] >= 0 && table[i] < args.cache.num_blocks, table[i],
                 args.cache.num_blocks);
    }
  }
  LMTP_CHECK(args.block_offsets[args.num_sequences] <= args.num_table_blocks,
             args.block_offsets[args.num_sequences], args.num_table_blocks);
}

void check(const LayerNormArgs& args) {
  constexpr const char* kOp = "layer_norm";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same_shape(kOp, "x", args.x, "y", args.y);
  LMTP_CHECK(args.weight != nullptr);
}

void check(const RmsNormArgs& args) {
  constexpr const char* kOp = "rms_norm";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same_shape(kOp, "x", args.x, "y", args.y);
  LMTP_CHECK(args.weight != nullptr && args.groups >= 1 && args.x.columns % args.groups == 0,
             args.groups, args.x.columns);
  if (!args.residual.empty()) check_same_shape(kOp, "residual", args.residual, "y", args.y);
}

void check(const GatedActivationArgs& args) {
  constexpr const char* kOp = "gated_activation";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same(kOp, "x rows", args.x.rows, "y rows", args.y.rows);
  check_same(kOp, "x columns", args.x.columns, "twice y columns", 2 * args.y.columns);
}

void check_prologue(std::monostate /*none*/, const Matrix<const float>& /*x*/) {}
template <typename Args>
void check_prologue(const Args& args, const Matrix<const float>& x) {
  check(args);
  check_same_shape("linear", "the prologue's y", args.y, "x", x);
  LMTP_CHECK(args.y.data == x.data && args.y.stride == x.stride, args.y.stride, x.stride);
}

// Arrays on a device are not read here: their contents are checked where they are built.
bool on_host(const Stream& stream) { return stream.backend().device == nullptr; }

void check_weight_type(const Stream& stream, const PackedLinear& weight) {
  LMTP_CHECK(on_host(stream) ? is_for_host(weight.type) : !is_kept_narrow(weight.type));
  LMTP_CHECK(!is_kept_narrow(weight.type) || weight.k % 2 == 0, weight.k);
}

void check_cache(const char* op, const KvLayer& cache) {
  LMTP_CHECK(cache.keys != nullptr && cache.values != nullptr && cache.num_blocks > 0 &&
                 cache.num_kv_heads > 0 && cache.head_dim > 0 && cache.head_dim <= kHeadDimMax,
             op, cache.num_blocks, cache.num_kv_heads, cache.head_dim);
}

}  // namespace

const Backend& cpu_backend() {
  static const Backend* const kBest = cpu_backends().front();
  return *kBest;
}

void linear(Stream& stream, const LinearArgs& args) {
  constexpr const char* kOp = "linear";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same(kOp, "x columns", args.x.columns, "weight inputs", args.weight.k);
  check_same(kOp, "y columns", args.y.columns, "weight outputs", args.weight.n);
  check_same(kOp, "x rows", args.x.rows, "y rows", args.y.rows);
  if (!args.residual.empty()) check_same_shape(kOp, "residual", args.residual, "y", args.y);
  check_weight_type(stream, args.weight);
  if (args.weight.type == WeightType::kInt8) {
    LMTP_CHECK(args.weight.k <= kInt8InputsMax, args.weight.k);
    LMTP_CHECK(!on_host(stream) || (args.weight.scales != nullptr && args.weight.sums != nullptr));
  }
  std::visit([&](const auto& prologue) { check_prologue(prologue, args.x); }, args.prologue);
  if (args.x.rows == 0) return;
  const Backend& backend = stream.backend();
  LinearArgs rest = args;
  if (backend.takes_prologue == nullptr || !backend.takes_prologue(args)) {
    run_prologue(stream, std::exchange(rest.prologue, {}));
  }
  const Slowed<LMTP_SLOWED_LINEAR> slowed;
  backend.linear(stream, rest);
}

void run_prologue(Stream& stream, const LinearPrologue& prologue) {
  if (const auto* layer = std::get_if<LayerNormArgs>(&prologue)) layer_norm(stream, *layer);
  if (const auto* rms = std::get_if<RmsNormArgs>(&prologue)) rms_norm(stream, *rms);
  if (const auto* gate = std::get_if<GatedActivationArgs>(&prologue)) {
    gated_activation(stream, *gate);
  }
}

std::size_t packed_bytes(const Backend& backend, WeightType type, std::int64_t n, std::int64_t k,
                         const Grouping& grouping) {
  LMTP_CHECK(n > 0 && k > 0, n, k);
  return backend.packed_bytes(type, n, k, grouping);
}

void pack(Stream& stream, const SourceWeight& source, const PackTarget& to) {
  LMTP_CHECK(source.data != nullptr && to.panels != nullptr);
  LMTP_CHECK(on_host(stream) ? is_for_host(to.type)
                             : to.type != WeightType::kWidened && !is_kept_narrow(to.type));
  stream.backend().pack(stream, source, to);
}

void pack_codes(Stream& stream, const SourceCodes& source, const PackTarget& to) {
  LMTP_CHECK(!on_host(stream) && source.codes != nullptr && source.scales != nullptr &&
             to.panels != nullptr);
  const Grouping& by = to.grouping;
  LMTP_CHECK(by.has_offsets == (source.offsets != nullptr));
  LMTP_CHECK(by.group >= source.k || by.group % kGroupMin == 0, by.group, source.k);
  LMTP_CHECK(to.type == WeightType::kInt8
                 ? by.group >= source.k && by.codes == CodeType::kInt8 && !by.has_offsets
                 : is_grouped(to.type),
             by.group);
  LMTP_CHECK(source.first % kPanelColumns == 0 && source.first + source.count <= source.n &&
                 (source.count % kPanelColumns == 0 || source.first + source.count == source.n),
             source.first, source.count, source.n);
  stream.backend().pack_codes(stream, source, to);
}

void fill_random(Stream& stream, const FillRandomArgs& args) {
  LMTP_CHECK(args.to != nullptr);
  LMTP_CHECK(args.tensor.type != ElementType::kF16 && args.first >= 0 && args.count >= 0,
             args.first, args.count);
  if (args.count > 0) stream.backend().fill_random(stream, args);
}

void layer_norm(Stream& stream, const LayerNormArgs& args) {
  check(args);
  stream.backend().layer_norm(stream, args);
}

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  check(args);
  stream.backend().rms_norm(stream, args);
}

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  constexpr const char* kOp = "rotary_angles";
  check_matrix(kOp, "cosines", args.cosines);
  check_matrix(kOp, "sines", args.sines);
  check_same_shape(kOp, "cosines", args.cosines, "sines", args.sines);
  stream.backend().rotary_angles(stream, args);
}

void rotary(Stream& stream, const RotaryArgs& args) {
  constexpr const char* kOp = "rotary";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "cosines", args.cosines);
  check_matrix(kOp, "sines", args.sines);
  check_same(kOp, "cosines rows", args.cosines.rows, "x rows", args.x.rows);
  check_same_shape(kOp, "cosines", args.cosines, "sines", args.sines);
  LMTP_CHECK(args.head_dim >= 2 * args.cosines.columns && args.x.columns % args.head_dim == 0,
             args.head_dim, args.cosines.columns, args.x.columns);
  stream.backend().rotary(stream, args);
}

void gated_activation(Stream& stream, const GatedActivationArgs& args) {
  check(args);
  stream.backend().gated_activation(stream, args);
}

void activate(Stream& stream, Matrix<float> x, Activation activation) {
  check_matrix("activate", "x", x);
  stream.backend().activate(stream, x, activation);
}

void lora(Stream& stream, const LoraArgs& args) {
  constexpr const char* kOp = "lora";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same(kOp, "x rows", args.x.rows, "y rows", args.y.rows);
  LMTP_CHECK(args.linear >= 0 && args.rows.num_rows <= args.y.rows, args.linear, args.rows.num_rows,
             args.y.rows);
  stream.backend().lora(stream, args);
}

void soft_cap(Stream& stream, Matrix<float> x, float cap) {
  check_matrix("soft_cap", "x", x);
  LMTP_CHECK(cap > 0.0F, cap);
  stream.backend().soft_cap(stream, x, cap);
}

void embedding(Stream& stream, const EmbeddingArgs& args) {
  constexpr const char* kOp = "embedding";
  check_matrix(kOp, "y", args.y);
  LMTP_CHECK(args.table.panels != nullptr || !args.position_table.empty());
  if (args.table.panels != nullptr) {
    check_weight_type(stream, args.table);
    check_same(kOp, "table width", args.table.k, "y columns", args.y.columns);
    for (std::int64_t row = 0; on_host(stream) && row < args.y.rows; ++row) {
      LMTP_CHECK(args.is_part || (args.ids[row] >= args.first_id &&
                                  args.ids[row] < args.first_id + args.table.n),
                 args.ids[row], args.first_id, args.table.n);
    }
  }
  if (!args.position_table.empty()) {
    check_same(kOp, "position width", args.position_table.columns, "y columns", args.y.columns);
    for (std::int64_t row = 0; on_host(stream) && row < args.y.rows; ++row) {
      const std::int64_t at = std::int64_t{args.positions[row]} + args.position_offset;
      LMTP_CHECK(at >= 0 && at < args.position_table.rows, at, args.position_table.rows);
    }
  }
  stream.backend().embedding(stream, args);
}

void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  constexpr const char* kOp = "gather_rows";
  check_matrix(kOp, "x", args.x);
  check_matrix(kOp, "y", args.y);
  check_same(kOp, "x columns", args.x.columns, "y columns", args.y.columns);
  if (args.rows == nullptr) check_same(kOp, "x rows", args.x.rows, "y rows", args.y.rows);
  for (std::int64_t row = 0; args.rows != nullptr && on_host(stream) && row < args.y.rows; ++row) {
    LMTP_CHECK(args.rows[row] >= 0 && args.rows[row] < args.x.rows, args.rows[row], args.x.rows);
  }
  stream.backend().gather_rows(stream, args);
}

void kv_store(Stream& stream, const KvStoreArgs& args) {
  constexpr const char* kOp = "kv_store";
  check_matrix(kOp, "keys", args.keys);
  check_matrix(kOp, "values", args.values);
  check_cache(kOp, args.cache);
  const std::int64_t width = std::int64_t{args.cache.num_kv_heads} * args.cache.head_dim;
  check_same(kOp, "keys columns", args.keys.columns, "heads x head_dim", width);
  check_same_shape(kOp, "keys", args.keys, "values", args.values);
  for (std::int64_t row = 0; on_host(stream) && row < args.keys.rows; ++row) {
    LMTP_CHECK(args.slots[row] >= 0 && args.slots[row] / kBlockSize < args.cache.num_blocks,
               args.slots[row], args.cache.num_blocks);
  }
  stream.backend().kv_store(stream, args);
}

void kv_copy(Stream& stream, const KvLayer& cache, const KvCopies& copies) {
  check_cache("kv_copy", cache);
  LMTP_CHECK(copies.num_host_blocks == 0 || copies.host_keys != nullptr);
  const std::int64_t num_blocks = cache.num_blocks + copies.num_host_blocks;
  for (std::int64_t i = 0; on_host(stream) && i < copies.count; ++i) {
    const KvCopy& copy = copies.copies[i];
    LMTP_CHECK(copy.from >= 0 && copy.from < num_blocks && copy.to >= 0 && copy.to < num_blocks &&
                   copy.from != copy.to && copy.num_tokens >= 1 && copy.num_tokens <= kBlockSize,
               copy.from, copy.to, copy.num_tokens, num_blocks);
  }
  stream.backend().kv_copy(stream, cache, copies);
}

void paged_attention(Stream& stream, const AttentionArgs& args) {
  constexpr const char* kOp = "paged_attention";
  check_matrix(kOp, "queries", args.queries);
  check_matrix(kOp, "y", args.y);
  check_cache(kOp, args.cache);
  LMTP_CHECK(args.num_heads > 0 && args.num_heads % args.cache.num_kv_heads == 0, args.num_heads,
             args.cache.num_kv_heads);
  LMTP_CHECK(args.window >= 0 && args.soft_cap >= 0.0F, args.window, args.soft_cap);
  LMTP_CHECK(args.block_tables != nullptr && args.table_starts != nullptr, kOp);
  const std::int64_t width = std::int64_t{args.num_heads} * args.cache.head_dim;
  check_same(kOp, "queries columns", args.queries.columns, "heads x head_dim", width);
  check_same_shape(kOp, "queries", args.queries, "y", args.y);
  if (on_host(stream)) check_sequences(args);
  const Slowed<LMTP_SLOWED_ATTENTION> slowed;
  stream.backend().paged_attention(stream, args);
}

void sample(Stream& stream, const SampleArgs& args) {
  constexpr const char* kOp = "sample";
  check_matrix(kOp, "logits", args.logits);
  LMTP_CHECK(args.rows != nullptr && args.positions != nullptr && args.records != nullptr);
  if (!args.raw.empty()) check_same_shape(kOp, "logits", args.logits, "raw", args.raw);
  LMTP_CHECK(args.mask_of == nullptr || args.masks != nullptr);
  stream.backend().sample(stream, args);
}

void step_batch(Stream& stream, const StepBatchArgs& args) {
  LMTP_CHECK(args.step != nullptr && args.patches != nullptr && args.rows != nullptr &&
             args.words != nullptr && args.slot_samples != nullptr &&
             args.block_tables != nullptr && args.records != nullptr && args.samples != nullptr);
  LMTP_CHECK(args.ids != nullptr && args.positions != nullptr && args.slots != nullptr &&
             args.cu_seqlens != nullptr && args.block_offsets != nullptr &&
             args.table_starts != nullptr);
  LMTP_CHECK(args.num_groups == 1 || (args.num_groups > 1 && args.slots_stride >= args.num_padded),
             args.num_groups, args.slots_stride);
  LMTP_CHECK(args.step->num_rows >= 1 && args.step->num_rows <= args.num_padded &&
                 args.num_padded <= kStepRowsMax && args.step->num_patches >= 0,
             args.step->num_rows, args.num_padded, args.step->num_patches);
  stream.backend().step_batch(stream, args);
}

void drawn_ids(Stream& stream, const DrawnIdsArgs& args) {
  LMTP_CHECK(
      args.tokens != nullptr && args.records != nullptr && args.ids != nullptr && args.count >= 1,
      args.count);
  stream.backend().drawn_ids(stream, args);
}

void order_inputs(Stream& stream, Matrix<const float> x, const std::int32_t* inputs,
                  Matrix<float> to) {
  LMTP_CHECK(stream.device_api() == nullptr);
  check_same("order_inputs", "x.rows", x.rows, "to.rows", to.rows);
  check_same("order_inputs", "x.columns", x.columns, "to.columns", to.columns);
  stream.pool().parallel_for(static_cast<int>(x.rows), [&](int row, int) {
    const float* const from = x.row(row);
    float* const out = to.row(row);
    for (std::int64_t j = 0; j < to.columns; ++j) out[j] = from[inputs[j]];
  });
}

}  // namespace lmtp::kernels
