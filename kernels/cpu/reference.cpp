// The plain twin of every op: the definition written down, sums in double, one thread.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "group_element.h"
#include "kernels/backend.h"
#include "kernels/draw_weight.h"
#include "kernels/e4m3.h"
#include "kv_copy.h"
#include "lmtp/base/half.h"
#include "plain_ops.h"
#include "round_bf16.h"
#include "sample.h"
#include "unit_element.h"

namespace lmtp::kernels {
namespace {

double packed_at(const PackedLinear& weight, std::int64_t n, std::int64_t k) {
  return static_cast<double>(packed_element(weight, n, k));
}

// A number as an operand of a bf16 product.
double seen_as_bf16(float value) {
  return static_cast<double>(unit_element<WeightType::kBF16>(round_to_bf16(value), 0));
}

// A row of x as an operand of products with a weight of that type.
std::vector<double> seen_inputs(const float* x, const PackedLinear& weight) {
  std::vector<double> seen(x, x + weight.k);
  if (weight.type == WeightType::kBF16) {
    for (double& value : seen) value = seen_as_bf16(static_cast<float>(value));
  } else if (weight.type == WeightType::kInt8) {
    float largest = 0.0F;
    for (std::int64_t k = 0; k < weight.k; ++k) largest = std::max(largest, std::fabs(x[k]));
    const float scale = largest * (1.0F / 127.0F);
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    for (std::int64_t k = 0; k < weight.k; ++k) {
      seen[static_cast<std::size_t>(k)] =
          static_cast<double>(std::nearbyint(x[k] * inverse)) * static_cast<double>(scale);
    }
  }
  return seen;
}

double xielu(const Activation& numbers, double x) {
  const double line = static_cast<double>(numbers.slope) * x;
  if (x > 0.0) return static_cast<double>(numbers.above) * x * x + line;
  const double near = static_cast<double>(numbers.near);
  return (std::expm1(std::min(x, near)) - x) * static_cast<double>(numbers.below) + line;
}

double activate(const Activation& activation, double x) {
  const auto limit = static_cast<double>(activation.limit);
  switch (activation.kind) {
    case Activation::kNone:
      return x;
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::kClippedGelu:
      return std::min(0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))), limit);
    case Activation::kQuickGelu:
      return x / (1.0 + std::exp(-1.702 * x));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kClippedRelu:
      return std::min(std::max(x, 0.0), limit);
    case Activation::kSquaredRelu:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kXielu:
      return xielu(activation, x);
  }
  return x;
}

// A row times output n of a weight of kInt4: what every vector kernel with fused operations gives.
float int4_product(const float* x, const PackedLinear& weight, std::int64_t n) {
  const PanelGroupAt first_group = panel_group(weight, n / kPanelColumns, 0);
  LMTP_CHECK(first_group.offsets == nullptr);
  float sum = 0.0F;
  for (std::int64_t first = 0; first < weight.k; first += weight.grouping.group) {
    const std::int64_t end = std::min(first + weight.grouping.group, weight.k);
    const PanelGroupAt group =
        panel_group(weight, n / kPanelColumns, first / weight.grouping.group);
    const float weight_scale = element_at(group.scales, weight.grouping.scales, n % kPanelColumns);
    float largest = 0.0F;
    for (std::int64_t k = first; k < end; ++k) largest = std::max(largest, std::fabs(x[k]));
    const float scale = largest * (1.0F / 127.0F);
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    std::int32_t products = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const std::int64_t i = k - first;
      const std::uint32_t word = group.words[i / 8 * kPanelColumns + n % kPanelColumns];
      products +=
          static_cast<std::int32_t>(std::nearbyint(x[k] * inverse)) *
          static_cast<std::int32_t>(code_value(weight.grouping, word, static_cast<int>(i % 8)));
    }
    sum = std::fma(static_cast<float>(products), scale * weight_scale, sum);
  }
  return sum;
}

void linear_plain(Stream&, const LinearArgs& args) {
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    const std::vector<double> x = seen_inputs(args.x.row(row), args.weight);
    for (std::int64_t n = 0; n < args.weight.n; ++n) {
      const bool is_int4 = args.weight.type == WeightType::kInt4;
      double sum =
          is_int4 ? static_cast<double>(int4_product(args.x.row(row), args.weight, n)) : 0.0;
      for (std::int64_t k = 0; k < args.weight.k && !is_int4; ++k) {
        sum += x[static_cast<std::size_t>(k)] * packed_at(args.weight, n, k);
      }
      if (args.bias != nullptr) sum += static_cast<double>(args.bias[n]);
      sum = activate(args.activation, sum) * static_cast<double>(args.scale);
      if (!args.residual.empty()) sum += static_cast<double>(args.residual.row(row)[n]);
      args.y.row(row)[n] = static_cast<float>(sum);
    }
  }
}

void layer_norm_plain(Stream&, const LayerNormArgs& args) {
  const std::int64_t width = args.x.columns;
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    const float* x = args.x.row(row);
    double sum = 0.0;
    for (std::int64_t c = 0; c < width; ++c) sum += static_cast<double>(x[c]);
    const double mean = sum / static_cast<double>(width);
    double squares = 0.0;
    for (std::int64_t c = 0; c < width; ++c) {
      squares += (static_cast<double>(x[c]) - mean) * (static_cast<double>(x[c]) - mean);
    }
    const double variance = squares / static_cast<double>(width);
    const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(args.epsilon));
    for (std::int64_t c = 0; c < width; ++c) {
      const double bias = args.bias == nullptr ? 0.0 : static_cast<double>(args.bias[c]);
      const double scaled = (static_cast<double>(x[c]) - mean) * inverse;
      args.y.row(row)[c] = static_cast<float>(scaled * static_cast<double>(args.weight[c]) + bias);
    }
  }
}

void rms_norm_plain(Stream&, const RmsNormArgs& args) {
  const std::int64_t width = args.x.columns / args.groups;
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    for (std::int64_t first = 0; first < args.x.columns; first += width) {
      const float* x = args.x.row(row) + first;
      double squares = 0.0;
      for (std::int64_t c = 0; c < width; ++c) {
        squares += static_cast<double>(x[c]) * static_cast<double>(x[c]);
      }
      const double mean = squares / static_cast<double>(width);
      const double inverse = 1.0 / std::sqrt(mean + static_cast<double>(args.epsilon));
      for (std::int64_t c = 0; c < width; ++c) {
        const double residual =
            args.residual.empty() ? 0.0 : static_cast<double>(args.residual.row(row)[first + c]);
        args.y.row(row)[first + c] = static_cast<float>(
            static_cast<double>(x[c]) * inverse * static_cast<double>(args.weight[c]) + residual);
      }
    }
  }
}

void rotary_plain(Stream&, const RotaryArgs& args) {
  const std::int64_t half = args.cosines.columns;
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    for (std::int64_t head = 0; head < args.x.columns; head += args.head_dim) {
      for (std::int64_t d = 0; d < half; ++d) {
        float* first = args.x.row(row) + head + d;
        const double a = static_cast<double>(first[0]);
        const double b = static_cast<double>(first[half]);
        const double cosine = static_cast<double>(args.cosines.row(row)[d]);
        const double sine = static_cast<double>(args.sines.row(row)[d]);
        first[0] = static_cast<float>(a * cosine - b * sine);
        first[half] = static_cast<float>(b * cosine + a * sine);
      }
    }
  }
}

void gated_activation_plain(Stream&, const GatedActivationArgs& args) {
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    for (std::int64_t c = 0; c < args.y.columns; ++c) {
      const float* x = args.x.row(row);
      double gate = static_cast<double>(x[args.interleaved ? 2 * c : c]);
      double up = static_cast<double>(x[args.interleaved ? 2 * c + 1 : args.y.columns + c]);
      if (args.limit > 0.0F) {
        const double limit = static_cast<double>(args.limit);
        gate = gate > limit ? limit : gate;
        up = up > limit ? limit : up < -limit ? -limit : up;
      }
      up += static_cast<double>(args.up_added);
      args.y.row(row)[c] = static_cast<float>(activate(args.activation, gate) * up);
    }
  }
}

double capped(double value, double cap) { return cap * std::tanh(value / cap); }

void activate_rows_plain(Stream&, Matrix<float> x, Activation activation) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      x.row(row)[c] = static_cast<float>(activate(activation, static_cast<double>(x.row(row)[c])));
    }
  }
}

double lora_element(const LoraAdapter& adapter, std::int64_t at) {
  const void* piece = adapter.pieces[at / adapter.piece_size];
  const std::int64_t within = at % adapter.piece_size;
  if (adapter.type == ElementType::kF32) {
    return static_cast<double>(static_cast<const float*>(piece)[within]);
  }
  return static_cast<double>(
      unit_element<WeightType::kBF16>(static_cast<const std::uint16_t*>(piece)[within], 0));
}

void add_delta(const LoraAdapter& adapter, const LoraDelta& delta, Matrix<const float> x, float* y,
               std::int64_t row) {
  const std::int64_t inputs = lora_lane_groups(x.columns);
  const std::int64_t ranks = lora_rank_groups(delta.rank);
  for (std::int64_t n = 0; n < delta.num_outputs; ++n) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < delta.rank; ++r) {
      double low = 0.0;
      const std::int64_t of_rank = r % kLoraRanks * kLoraLanes;
      for (std::int64_t k = 0; k < x.columns; ++k) {
        const std::int64_t chunk = r / kLoraRanks * inputs + k / kLoraLanes;
        low += lora_element(adapter, delta.a + chunk * kLoraChunk + of_rank + k % kLoraLanes) *
               static_cast<double>(x.row(row)[k]);
      }
      const std::int64_t chunk = n / kLoraLanes * ranks + r / kLoraRanks;
      sum += lora_element(adapter, delta.b + chunk * kLoraChunk + of_rank + n % kLoraLanes) * low;
    }
    y[delta.first_output + n] += static_cast<float>(sum);
  }
}

void lora_plain(Stream&, const LoraArgs& args) {
  for (std::int64_t i = 0; i < args.rows.num_rows; ++i) {
    const LoraRow& row = args.rows.rows[i];
    const LoraAdapter& adapter = args.rows.adapters[row.adapter];
    const std::int32_t* deltas = adapter.first_delta + args.linear;
    for (std::int32_t d = deltas[0]; d < deltas[1]; ++d) {
      add_delta(adapter, adapter.deltas[d], args.x, args.y.row(row.row), row.row);
    }
  }
}

void soft_cap_plain(Stream&, Matrix<float> x, float cap) {
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      x.row(row)[c] =
          static_cast<float>(capped(static_cast<double>(x.row(row)[c]), static_cast<double>(cap)));
    }
  }
}

void embedding_plain(Stream&, const EmbeddingArgs& args) {
  for (std::int64_t row = 0; row < args.y.rows; ++row) {
    const std::int64_t id = args.table.panels != nullptr ? args.ids[row] - args.first_id : 0;
    const bool is_elsewhere = args.is_part && (id < 0 || id >= args.table.n);
    for (std::int64_t c = 0; c < args.y.columns; ++c) {
      double value = 0.0;
      if (args.table.panels != nullptr && !is_elsewhere) {
        value = packed_at(args.table, id, c) * static_cast<double>(args.scale);
      }
      if (!args.position_table.empty() && !is_elsewhere) {
        const std::int32_t at = args.positions[row] + args.position_offset;
        value += static_cast<double>(args.position_table.row(at)[c]);
      }
      args.y.row(row)[c] = static_cast<float>(value);
    }
  }
}

void gather_rows_plain(Stream&, const GatherRowsArgs& args) {
  for (std::int64_t row = 0; row < args.y.rows; ++row) {
    for (std::int64_t c = 0; c < args.y.columns; ++c) {
      args.y.row(row)[c] = args.x.row(args.rows != nullptr ? args.rows[row] : row)[c];
    }
  }
}

void combine_plain(Stream&, const CombineArgs& args) {
  for (std::int64_t row = 0; row < args.y.rows; ++row) {
    const std::int32_t* slots = args.slots + row * args.weights.columns;
    double gate = 1.0;
    if (!args.shared_gate.empty()) {
      gate = 1.0 / (1.0 + std::exp(-static_cast<double>(args.shared_gate.row(row)[0])));
    }
    for (std::int64_t c = 0; c < args.y.columns; ++c) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < args.weights.columns; ++i) {
        sum += static_cast<double>(args.weights.row(row)[i]) *
               static_cast<double>(args.x.row(slots[i])[c]);
      }
      if (!args.shared.empty()) sum += gate * static_cast<double>(args.shared.row(row)[c]);
      sum *= static_cast<double>(args.scale);
      if (!args.residual.empty()) sum += static_cast<double>(args.residual.row(row)[c]);
      args.y.row(row)[c] = static_cast<float>(sum);
    }
  }
}

// Number `index` of a unit of keys or values.
double element_of(const KvLayer& cache, float unit, std::int64_t index) {
  if (cache.type == ElementType::kF32) return static_cast<double>(unit);
  const auto bits = std::bit_cast<std::uint32_t>(unit);
  if (cache.type == ElementType::kE4M3) {
    return static_cast<double>(widen_e4m3(bits >> (8 * byte_of_e4m3(static_cast<int>(index)))));
  }
  if (cache.type == ElementType::kF16) {
    return static_cast<double>(half_value((bits >> (16 * index)) & 0xFFFFU));
  }
  return static_cast<double>(unit_element<WeightType::kBF16>(bits, index));
}

// Keys and values are seen as bf16, else as f32.
bool sees_bf16(const KvLayer& cache) {
  return cache.type == ElementType::kBF16 || cache.type == ElementType::kE4M3;
}

// query[d] as an operand of its products with keys.
double seen_query(const AttentionArgs& args, float value) {
  if (sees_bf16(args.cache)) return seen_as_bf16(value * args.scale);
  return static_cast<double>(value) * static_cast<double>(args.scale);
}

// The maximum of each split's scores from `begin` on.
std::vector<double> split_maxima(const std::vector<double>& scores, std::int64_t begin) {
  std::vector<double> maxima(scores.size() / kAttentionSplit + 1,
                             -std::numeric_limits<double>::infinity());
  for (auto t = static_cast<std::size_t>(begin); t < scores.size(); ++t) {
    maxima[t / kAttentionSplit] = std::max(maxima[t / kAttentionSplit], scores[t]);
  }
  return maxima;
}

// e^(score - max) as an operand of its products with bf16 values: rounded relative to its split's
// maximum.
double seen_weight(double score, double split_max, double max) {
  return seen_as_bf16(static_cast<float>(std::exp(score - split_max))) * std::exp(split_max - max);
}

void attend_row_plain(const AttentionArgs& args, std::int64_t sequence, std::int64_t row,
                      int head) {
  const KvLayer& cache = args.cache;
  const int kv_head = head / (args.num_heads / cache.num_kv_heads);
  const std::int64_t position = args.first_positions[sequence] + (row - args.cu_seqlens[sequence]);
  const std::int32_t* table = args.block_tables + args.table_starts[sequence];
  const std::int64_t column = std::int64_t{head} * cache.head_dim;
  const float* query = args.queries.row(row) + column;
  const std::int64_t begin =
      args.window > 0 ? std::max<std::int64_t>(0, position + 1 - args.window) : 0;
  std::vector<double> scores(static_cast<std::size_t>(position + 1));
  double max = -std::numeric_limits<double>::infinity();
  const int per_unit = cache.per_unit();
  for (std::int64_t t = begin; t <= position; ++t) {
    const float* keys = cache.key_units(table[t / kBlockSize]) +
                        std::int64_t{kv_head} * cache.key_rows() * kBlockSize + t % kBlockSize;
    double score = 0.0;
    for (int d = 0; d < cache.head_dim; ++d) {
      score += seen_query(args, query[d]) *
               element_of(cache, keys[d / per_unit * kBlockSize], d % per_unit);
    }
    scores[static_cast<std::size_t>(t)] =
        args.soft_cap > 0.0F ? capped(score, static_cast<double>(args.soft_cap)) : score;
    max = std::max(max, scores[static_cast<std::size_t>(t)]);
  }
  const std::vector<double> maxima = split_maxima(scores, begin);
  const bool has_sinks = args.sinks != nullptr;
  double total = has_sinks ? std::exp(static_cast<double>(args.sinks[head]) - max) : 0.0;
  std::vector<double> output(static_cast<std::size_t>(cache.head_dim));
  const int padded = padded_head_dim(cache.head_dim);
  for (std::int64_t t = begin; t <= position; ++t) {
    const double weight = std::exp(scores[static_cast<std::size_t>(t)] - max);
    const float* value =
        cache.value_units(table[t / kBlockSize]) +
        (std::int64_t{kv_head} * cache.value_rows() + t % kBlockSize / per_unit) * padded;
    const double seen =
        sees_bf16(cache) ? seen_weight(scores[static_cast<std::size_t>(t)],
                                       maxima[static_cast<std::size_t>(t / kAttentionSplit)], max)
                         : weight;
    total += weight;
    for (int d = 0; d < cache.head_dim; ++d) {
      output[static_cast<std::size_t>(d)] += seen * element_of(cache, value[d], t % per_unit);
    }
  }
  for (int d = 0; d < cache.head_dim; ++d) {
    args.y.row(row)[column + d] = static_cast<float>(output[static_cast<std::size_t>(d)] / total);
  }
}

void paged_attention_plain(Stream&, const AttentionArgs& args) {
  for (std::int64_t s = 0; s < args.num_sequences; ++s) {
    for (std::int64_t row = args.cu_seqlens[s]; row < args.cu_seqlens[s + 1]; ++row) {
      for (int head = 0; head < args.num_heads; ++head) attend_row_plain(args, s, row, head);
    }
  }
}

float row_max_plain(const float* row, std::int64_t count) {
  float best = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i) best = row[i] > best ? row[i] : best;
  return best;
}

LogSumExp row_logsumexp_plain(const float* row, std::int64_t count) {
  const float max = row_max_plain(row, count);
  if (std::isinf(max) && max < 0.0F) {
    const bool numbers = std::none_of(row, row + count, [](float v) { return std::isnan(v); });
    return {max, numbers ? max : std::numeric_limits<float>::quiet_NaN()};
  }
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += std::exp(static_cast<double>(row[i]) - static_cast<double>(max));
  }
  return {max, static_cast<float>(std::log(sum))};
}

float row_entropy_plain(const float* row, std::int64_t count, LogSumExp of) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto logprob = static_cast<double>(of.log_probability(row[i]));
    if (std::isfinite(logprob)) sum -= std::exp(logprob) * logprob;
  }
  return static_cast<float>(sum);
}

void draw_weights_plain(const float* row, std::int64_t count, float max, float temperature,
                        float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = draw_weight(row[i], max, temperature);
}

std::int64_t row_select_plain(const float* row, std::int64_t count, float threshold,
                              std::int32_t* indices) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (row[i] >= threshold) indices[found++] = static_cast<std::int32_t>(i);
  }
  return found;
}

void sample_plain(Stream& stream, const SampleArgs& args) {
  static constexpr RowOps kOps = {row_max_plain, row_logsumexp_plain, row_entropy_plain,
                                  draw_weights_plain, row_select_plain};
  plain::sample(stream, args, kOps);
}

}  // namespace

const Backend& reference_backend() {
  static constexpr Backend kBackend = {.name = "reference",
                                       .device = nullptr,
                                       .packed_bytes = plain::packed_bytes,
                                       .pack = plain::pack,
                                       .pack_codes = nullptr,
                                       .fill_random = plain::fill_random,
                                       .reserve = plain::reserve,
                                       .linear = linear_plain,
                                       .lora = lora_plain,
                                       .layer_norm = layer_norm_plain,
                                       .rms_norm = rms_norm_plain,
                                       .rotary_angles = plain::rotary_angles,
                                       .rotary = rotary_plain,
                                       .gated_activation = gated_activation_plain,
                                       .activate = activate_rows_plain,
                                       .soft_cap = soft_cap_plain,
                                       .embedding = embedding_plain,
                                       .gather_rows = gather_rows_plain,
                                       .kv_store = plain::kv_store,
                                       .kv_copy = plain::kv_copy,
                                       .paged_attention = paged_attention_plain,
                                       .sample = sample_plain,
                                       .step_batch = plain::step_batch,
                                       .drawn_ids = plain::drawn_ids,
                                       .route = plain::route,
                                       .expert_rows = plain::expert_rows,
                                       .expert_linear = plain::expert_linear,
                                       .combine = combine_plain};
  return kBackend;
}

}  // namespace lmtp::kernels
