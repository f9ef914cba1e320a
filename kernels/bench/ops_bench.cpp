// How fast the ops are on GPT-2 medium's shapes, with one thread for each core (--threads=2: two)
// and the best kernels of this processor, or others: --backend=avx2; --linear-shape=12:2x512 has
// linears of up to 12 rows take one pass, and others blocks of 2 panels by 512 units. Weights are
// far larger than the caches, as in a model. Linears and attention run in turns with readings of
// the machine's limits (turns.h): of_read and of_peak are the medians of the shares of what was
// read from memory and of the multiply-adds of float32 beside them, of_least of the greater of
// both.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/memory.h"
#include "read_memory.h"
#include "turns.h"

namespace lmtp::kernels {
namespace {

constexpr std::int64_t kHidden = 1024;
constexpr std::int64_t kMlp = 4096;
constexpr std::int64_t kVocabSize = 50257;
// Weights of one round: more than any cache of the machines met (32 MB).
constexpr std::int64_t kRoundFloats = std::int64_t{64} << 20;

int& num_threads() {
  static int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return count;
}

Backend& chosen_backend() {
  static Backend backend = cpu_backend();
  return backend;
}

// Values that neither vanish nor grow.
std::vector<float> some_floats(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 2654435761U % 1000U) * 1e-3F - 0.5F;
  }
  return values;
}

// Turns floats into units of two finite bf16, which are finite f16 too: a query whose output is not
// finite is computed twice.
void make_units_of_16_bits(std::vector<float>& floats) {
  for (float& unit : floats) {
    const std::uint32_t bf16 = std::bit_cast<std::uint32_t>(unit) >> 16;
    unit = std::bit_cast<float>(bf16 << 16 | bf16);
  }
}

// A round's.
class Weights : public bench::Floats {
 public:
  Weights() : Floats(kRoundFloats) { LMTP_CHECK(data() != nullptr); }
};

void count_bytes(benchmark::State& state, std::int64_t bytes_an_iteration) {
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes_an_iteration) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void measure_in_turns(benchmark::State& state, WorkerPool& pool, const Weights& memory,
                      bench::Work work, const std::function<void()>& kernel) {
  bench::Turns(pool, cpu_backend().name, memory, kRoundFloats).run(state, work, kernel);
}

// All threads read memory once: the upper bound of decoding.
void read_memory(benchmark::State& state) {
  using Quarter = float __attribute__((vector_size(16)));  // of a line
  constexpr int kNumTasks = 32;
  constexpr std::int64_t kFloatsEach = kRoundFloats / kNumTasks;
  const Weights weights;
  WorkerPool pool(num_threads());
  while (state.KeepRunning()) {
    pool.parallel_for(kNumTasks, [&](int task, int) {
      bench::read_vectors<Quarter, 8>(weights.data() + task * kFloatsEach, kFloatsEach / 4);
    });
  }
  count_bytes(state, kRoundFloats * 4);
}
BENCHMARK(read_memory)->UseRealTime();

// range(0) rows through [n, k] weights, one after another of those that make a round.
void linear(benchmark::State& state, WeightType type, const Grouping& by = {}) {
  const std::int64_t rows = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  const std::int64_t size = packed_size(n, k, type, by);
  const Weights weights;
  const std::vector<float> scales(static_cast<std::size_t>(padded_columns(n)), 0.01F);
  const std::vector<std::int32_t> sums(scales.size());
  WorkerPool pool(num_threads());
  Stream stream(chosen_backend(), pool);
  const auto x = some_floats(rows * k);
  std::vector<float> y(static_cast<std::size_t>(rows * n));
  const std::int64_t num_weights = std::max<std::int64_t>(1, kRoundFloats / size);
  std::int64_t next = 0;
  measure_in_turns(state, pool, weights, {size * 4, 2 * rows * n * k}, [&] {
    kernels::linear(stream, {.x = make_matrix(x.data(), rows, k),
                             .weight = {weights.data() + next * size, n, k, type, scales.data(),
                                        sums.data(), by},
                             .y = make_matrix(y.data(), rows, n)});
    next = (next + 1) % num_weights;
  });
}
void linear_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "n", "k"})
      ->ArgsProduct({{1, 2, 4, 6, 8, 12, 16, 32, 48, 64, 256}, {kMlp}, {kHidden}})
      ->ArgsProduct({{1, 8, 256}, {kHidden}, {kHidden, kMlp}})
      ->Args({1, kVocabSize, kHidden})
      ->UseManualTime()
      ->Iterations(1);
}
BENCHMARK_CAPTURE(linear, f32, WeightType::kF32)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, f32_as_bf16, WeightType::kF32AsBF16)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, f32_as_f16, WeightType::kF32AsF16)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, bf16, WeightType::kBF16)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, int8, WeightType::kInt8)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, int4, WeightType::kInt4)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, widened_int4, WeightType::kWidened)->Apply(linear_shapes);
// As GGUF's kinds and MXFP4 are kept.
constexpr Grouping kQ4K{CodeType::kInt4, 32, ElementType::kF32, true};
constexpr Grouping kQ6K{CodeType::kInt8, 16, ElementType::kF32};
constexpr Grouping kQ80{CodeType::kInt8, 32, ElementType::kF16};
constexpr Grouping kMxfp4{CodeType::kE2M1, 32};
BENCHMARK_CAPTURE(linear, q4_k, WeightType::kWidened, kQ4K)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, q6_k, WeightType::kWidened, kQ6K)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, q8_0, WeightType::kWidened, kQ80)->Apply(linear_shapes);
BENCHMARK_CAPTURE(linear, mxfp4, WeightType::kWidened, kMxfp4)->Apply(linear_shapes);

// range(0) sequences whose last range(1) tokens attend to range(2) before them and to themselves,
// with heads of range(3).
void attention(benchmark::State& state, ElementType type) {
  const auto num_sequences = static_cast<std::int32_t>(state.range(0));
  const auto num_new = static_cast<std::int32_t>(state.range(1));
  const auto num_before = static_cast<std::int32_t>(state.range(2));
  const auto head_dim = static_cast<int>(state.range(3));
  const int num_heads = static_cast<int>(kHidden) / head_dim;
  const std::int64_t hidden = std::int64_t{num_heads} * head_dim;
  const std::int32_t blocks_each = (num_new + num_before + kBlockSize - 1) / kBlockSize;
  KvLayer cache{.num_blocks = num_sequences * blocks_each,
                .num_kv_heads = num_heads,
                .head_dim = head_dim,
                .type = type};
  auto some = some_floats(2 * cache.num_blocks * (cache.block_size() / cache.per_unit()));
  if (type != ElementType::kF32) make_units_of_16_bits(some);
  const auto memory = Memory::allocate(chosen_backend(), some.size() * sizeof(float));
  std::copy(some.begin(), some.end(), memory.floats());
  cache.keys = memory.data();
  cache.values = memory.floats() + some.size() / 2;
  std::vector<std::int32_t> cu_seqlens = {0};
  std::vector<std::int32_t> firsts;
  std::vector<std::int32_t> offsets = {0};
  std::vector<std::int32_t> tables;
  for (std::int32_t s = 0; s < num_sequences; ++s) {
    cu_seqlens.push_back(cu_seqlens.back() + num_new);
    firsts.push_back(num_before);
    for (std::int32_t block = 0; block < blocks_each; ++block) {
      tables.push_back(s * blocks_each + block);
    }
    offsets.push_back(static_cast<std::int32_t>(tables.size()));
  }
  const std::int64_t rows = cu_seqlens.back();
  const auto queries = some_floats(rows * hidden);
  std::vector<float> y(queries.size());
  WorkerPool pool(num_threads());
  Stream stream(chosen_backend(), pool);
  const Weights to_read;
  const std::int64_t pairs =
      std::int64_t{num_sequences} *
      (std::int64_t{num_new} * num_before + std::int64_t{num_new} * (num_new + 1) / 2);
  const std::int64_t num_bytes = std::int64_t{num_sequences} * (num_before + num_new) * 2 * hidden *
                                 static_cast<std::int64_t>(sizeof(float)) / cache.per_unit();
  measure_in_turns(state, pool, to_read, {num_bytes, pairs * 4 * hidden}, [&] {
    paged_attention(stream, {.queries = make_matrix(queries.data(), rows, hidden),
                             .cache = cache,
                             .num_heads = num_heads,
                             .scale = 0.125F,
                             .num_sequences = num_sequences,
                             .chunk_max = num_new,
                             .context_max = num_before + num_new,
                             .num_table_blocks = offsets.back(),
                             .cu_seqlens = cu_seqlens.data(),
                             .first_positions = firsts.data(),
                             .block_offsets = offsets.data(),
                             .block_tables = tables.data(),
                             .table_starts = offsets.data(),
                             .y = make_matrix(y.data(), rows, hidden)});
  });
}
// Decoding over contexts that together do not fit the caches, and prefill.
void attention_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "new", "before", "head"})->UseManualTime()->Iterations(1);
  for (const int head_dim : {48, 64, 96, 128, 256}) {
    bench->Args({64, 1, 100, head_dim})
        ->Args({32, 1, 500, head_dim})
        ->Args({8, 1, 2000, head_dim})
        ->Args({1, 1, 16000, head_dim});
  }
  bench->Args({1, 256, 0, 64})->Args({1, 512, 0, 64})->Args({1, 256, 768, 64});
}
BENCHMARK_CAPTURE(attention, f32, ElementType::kF32)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, bf16, ElementType::kBF16)->Apply(attention_shapes);
BENCHMARK_CAPTURE(attention, f16, ElementType::kF16)->Apply(attention_shapes);

// The rows of range(0) tokens out of an embedding table: other tokens each time, far apart.
void embedding(benchmark::State& state, WeightType type) {
  const std::int64_t rows = state.range(0);
  const Weights weights;
  const std::vector<float> scales(static_cast<std::size_t>(padded_columns(kVocabSize)), 0.01F);
  WorkerPool pool(num_threads());
  Stream stream(chosen_backend(), pool);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  std::vector<float> y(static_cast<std::size_t>(rows * kHidden));
  std::int64_t id = 0;
  while (state.KeepRunning()) {
    for (std::int32_t& to : ids) {
      id = (id + 7919) % kVocabSize;
      to = static_cast<std::int32_t>(id);
    }
    kernels::embedding(
        stream, {.ids = ids.data(),
                 .table = {weights.data(), kVocabSize, kHidden, type, scales.data(), nullptr},
                 .y = make_matrix(y.data(), rows, kHidden)});
  }
  state.SetItemsProcessed(state.iterations() * rows);
}
void embedding_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("rows")->Arg(1)->Arg(32)->Arg(512)->UseRealTime();
}
BENCHMARK_CAPTURE(embedding, f32, WeightType::kF32)->Apply(embedding_shapes);
BENCHMARK_CAPTURE(embedding, bf16, WeightType::kBF16)->Apply(embedding_shapes);
BENCHMARK_CAPTURE(embedding, int8, WeightType::kInt8)->Apply(embedding_shapes);

void norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const auto x = some_floats(rows * kHidden);
  const auto weight = some_floats(kHidden);
  std::vector<float> y(x.size());
  WorkerPool pool(num_threads());
  Stream stream(chosen_backend(), pool);
  while (state.KeepRunning()) {
    layer_norm(stream, {.x = make_matrix(x.data(), rows, kHidden),
                        .weight = weight.data(),
                        .bias = weight.data(),
                        .epsilon = 1e-5F,
                        .y = make_matrix(y.data(), rows, kHidden)});
  }
  count_bytes(state, rows * kHidden * 8);
}
BENCHMARK(norm)->ArgName("rows")->Arg(1)->Arg(32)->Arg(256)->UseRealTime();

// A row, by the temperature in tenths and top_p in hundredths.
void sampling(benchmark::State& state) {
  auto row = some_floats(kVocabSize);
  SampleRow params;
  params.num_top = 1;
  params.temperature = static_cast<float>(state.range(0)) / 10.0F;
  params.top_p = static_cast<float>(state.range(1)) / 100.0F;
  const std::int32_t position = 0;
  SampleRecord record;
  TopToken top;
  WorkerPool pool(1);
  Stream stream(chosen_backend(), pool);
  while (state.KeepRunning()) {
    sample(stream, {.logits = make_matrix(row.data(), 1, kVocabSize),
                    .rows = &params,
                    .positions = &position,
                    .records = &record,
                    .top = &top,
                    .top_stride = 1});
  }
  count_bytes(state, kVocabSize * 4);
}
BENCHMARK(sampling)
    ->ArgNames({"temperature", "top_p"})
    ->Args({0, 100})
    ->Args({10, 100})
    ->Args({10, 90});

void empty_region(benchmark::State& state) {
  WorkerPool pool(num_threads());
  while (state.KeepRunning()) pool.parallel_for(num_threads(), [](int, int) {});
}
BENCHMARK(empty_region)->UseRealTime();

bool choose_backend(std::string_view name) {
  const auto all = cpu_backends();
  const auto named = std::find_if(all.begin(), all.end(),
                                  [&](const Backend* backend) { return name == backend->name; });
  if (named == all.end()) {
    std::fprintf(stderr, "kernels-bench: no such backend here:");
    for (const Backend* backend : all) std::fprintf(stderr, " %s", backend->name);
    std::fprintf(stderr, " there are\n");
    return false;
  }
  chosen_backend() = **named;
  return true;
}

bool choose_linear_shape(std::string_view text) {
  LinearShape shape;
  // A number, and the separator behind it.
  const auto take = [&text](auto& number, std::string_view behind) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const bool right = error == std::errc() && number >= 1 && text.substr(0, 1) == behind;
    text.remove_prefix(right ? behind.size() : 0);
    return right;
  };
  constexpr int kPanelsMax = 16;
  if (!take(shape.gemv_rows_max, ":") || !take(shape.block_panels, "x") ||
      !take(shape.block_units, "") || shape.block_panels > kPanelsMax) {
    std::fprintf(stderr, "kernels-bench: --linear-shape is ROWS:PANELSxUNITS, as in 12:2x512\n");
    return false;
  }
  chosen_backend().linear_shape = shape;
  return true;
}

bool choose_threads(std::string_view text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), num_threads());
  if (error == std::errc() && end == text.data() + text.size() && num_threads() >= 1 &&
      num_threads() <= WorkerPool::kMaxThreads) {
    return true;
  }
  std::fprintf(stderr, "kernels-bench: --threads is a number from 1 to %d\n",
               WorkerPool::kMaxThreads);
  return false;
}

// Removes our own options from the arguments; false: one is invalid. --linear-shape comes after
// --backend.
bool take_options(int* argc, char** argv) {
  constexpr std::string_view kBackend = "--backend=";
  constexpr std::string_view kShape = "--linear-shape=";
  constexpr std::string_view kThreads = "--threads=";
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with(kBackend)) {
      if (!choose_backend(arg.substr(kBackend.size()))) return false;
    } else if (arg.starts_with(kShape)) {
      if (!choose_linear_shape(arg.substr(kShape.size()))) return false;
    } else if (arg.starts_with(kThreads)) {
      if (!choose_threads(arg.substr(kThreads.size()))) return false;
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return true;
}

}  // namespace
}  // namespace lmtp::kernels

int main(int argc, char** argv) {
  if (!lmtp::kernels::take_options(&argc, argv)) return 2;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const lmtp::kernels::Backend& backend = lmtp::kernels::chosen_backend();
  const lmtp::kernels::LinearShape& shape = backend.linear_shape;
  benchmark::AddCustomContext("backend", backend.name);
  benchmark::AddCustomContext("linear_shape", std::to_string(shape.gemv_rows_max) + ":" +
                                                  std::to_string(shape.block_panels) + "x" +
                                                  std::to_string(shape.block_units));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
