// Ops in a stream of a device without waiting in between. There a kernel begins before the one
// ahead of it has ended (programmatic dependent launch) and waits where it must, which ops that are
// synchronised one by one cannot test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda/linear.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::Matrix;
using kernels::Memory;
using kernels::Stream;
using kernels::WeightType;

constexpr int kLayers = 20;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 32;
constexpr std::int64_t kWidth = kHeads * kHeadDim;
constexpr std::int64_t kKvWidth = kKvHeads * kHeadDim;
constexpr std::int64_t kInner = 160;
// A chunk, which prefill takes, and a single token behind two splits, which decode takes.
constexpr std::int64_t kChunk = 69;
constexpr std::int64_t kRows = kChunk + 1;
constexpr std::int32_t kFirstPositions[] = {190, 519};

template <typename T>
Memory upload(const std::vector<T>& values) {
  Memory memory = Memory::allocate(testing::device_under_test(), values.size() * sizeof(T));
  testing::copy_to_device(memory.data(), values.data(), memory.num_bytes());
  return memory;
}

Memory random_memory(std::int64_t count, unsigned seed, float scale) {
  return upload(testing::random_floats(static_cast<std::size_t>(count), seed, scale));
}

const std::int32_t* indices(const Memory& memory) {
  return static_cast<const std::int32_t*>(memory.data());
}

struct Weight {
  Weight(Stream& stream, std::int64_t n, std::int64_t k, unsigned seed)
      : memory(Memory::allocate(stream.backend(),
                                kernels::packed_bytes(stream.backend(), kType, n, k))),
        packed{.panels = memory.data(), .n = n, .k = k, .type = kType} {
    const Memory source = random_memory(n * k, seed, 0.1F);
    kernels::pack(stream, {.data = source.data(), .n = n, .k = k},
                  {.panels = memory.data(), .type = kType});
    stream.synchronize();
  }

  static constexpr WeightType kType = WeightType::kBF16;
  Memory memory;
  kernels::PackedLinear packed;
};

// The layers of a model that has the same weights and cache in each of them: every op reads what
// the one before wrote, and writes where others have just read.
class Layers {
 public:
  Layers() {
    const std::int32_t ends[] = {kFirstPositions[0] + static_cast<std::int32_t>(kChunk),
                                 kFirstPositions[1] + 1};
    std::vector<std::int32_t> positions(kRows, kFirstPositions[1]);
    std::iota(positions.begin(), positions.begin() + kChunk, kFirstPositions[0]);
    std::vector<std::int32_t> offsets = {0};
    for (const std::int32_t end : ends) {
      offsets.push_back(offsets.back() + (end + kBlockSize - 1) / kBlockSize);
    }
    std::vector<std::int32_t> tables(static_cast<std::size_t>(offsets.back()));
    std::iota(tables.begin(), tables.end(), 0);
    std::vector<std::int32_t> slots = positions;
    slots.back() += offsets[1] * kBlockSize;
    context_max_ = ends[1];
    positions_ = upload(positions);
    slots_ = upload(slots);
    cu_seqlens_ = upload(std::vector<std::int32_t>{0, kChunk, kRows});
    first_positions_ = upload(std::vector<std::int32_t>{kFirstPositions[0], kFirstPositions[1]});
    block_offsets_ = upload(offsets);
    block_tables_ = upload(tables);
    cache_ = {.num_blocks = offsets.back(),
              .num_kv_heads = kKvHeads,
              .head_dim = kHeadDim,
              .type = kernels::ElementType::kBF16};
    // Pairs of bf16 that are numbers, and small.
    half_cache_ = std::vector<std::uint16_t>(
        static_cast<std::size_t>(cache_.block_size() * cache_.num_blocks), 0x3E00);
    keys_ = upload(half_cache_);
    values_ = upload(half_cache_);
    cache_.keys = keys_.data();
    cache_.values = values_.data();
  }

  // As before the first layer.
  void reset() {
    testing::copy_to_device(x_.data(), start_.data(), x_.num_bytes());
    for (const Memory* half : {&keys_, &values_}) {
      testing::copy_to_device(half->data(), half_cache_.data(), half->num_bytes());
    }
  }

  // Puts all layers into the stream; `each`: waits for each op.
  void put(bool each) {
    for (int layer = 0; layer < kLayers; ++layer) put_layer(layer, each);
  }

  Stream& stream() { return stream_; }

  // What the last layer leaves, once all is done.
  std::vector<float> output() {
    stream_.synchronize();
    std::vector<float> x(start_.size());
    testing::copy_to_host(x.data(), x_.data(), x_.num_bytes());
    return x;
  }

 private:
  void put_layer(int layer, bool each) {
    const auto done = [&] {
      if (each) stream_.synchronize();
    };
    // All rows, or as few as linear_stream.cuh takes.
    const std::int64_t rows = std::vector<std::int64_t>{kRows, 1, 12, 40}[layer % 4U];
    const auto x = kernels::make_matrix(x_.floats(), kRows, kWidth);
    const auto h = kernels::make_matrix(h_.floats(), kRows, kWidth);
    const auto qkv = kernels::make_matrix(qkv_.floats(), kRows, kWidth + 2 * kKvWidth);
    const auto inner = kernels::make_matrix(inner_.floats(), kRows, 2 * kInner);
    const auto some = [&](const Matrix<float>& all) { return testing::slice_rows(all, 0, rows); };
    kernels::layer_norm(stream_, {.x = x, .weight = norm_.floats(), .epsilon = 1e-5F, .y = h});
    done();
    kernels::linear(stream_, {.x = h, .weight = to_qkv_.packed, .y = qkv});
    done();
    attend(qkv, h, done);
    kernels::linear(stream_, {.x = some(h),
                              .weight = to_x_.packed,
                              .activation = kernels::Activation::kGeluTanh,
                              .residual = some(x),
                              .y = some(x)});
    done();
    kernels::rms_norm(stream_, {.x = x, .weight = norm_.floats(), .epsilon = 1e-5F, .y = h});
    done();
    kernels::linear(stream_, {.x = some(h), .weight = to_inner_.packed, .y = some(inner)});
    done();
    kernels::gated_activation(stream_, {.x = inner, .y = inner.slice_columns(0, kInner)});
    done();
    kernels::linear(stream_, {.x = some(inner.slice_columns(0, kInner)),
                              .weight = from_inner_.packed,
                              .residual = some(x),
                              .y = some(x)});
    done();
  }

  template <typename Done>
  void attend(const Matrix<float>& qkv, const Matrix<float>& y, const Done& done) {
    const auto queries = qkv.slice_columns(0, kWidth);
    const auto keys = qkv.slice_columns(kWidth, kKvWidth);
    const auto cosines = kernels::make_matrix(cosines_.floats(), kRows, kHeadDim / 2);
    const auto sines = kernels::make_matrix(sines_.floats(), kRows, kHeadDim / 2);
    kernels::rotary_angles(stream_, {.positions = indices(positions_),
                                     .inverse_periods = inverse_periods_.floats(),
                                     .cosines = cosines,
                                     .sines = sines});
    done();
    for (const Matrix<float>& turned : {queries, keys}) {
      kernels::rotary(stream_,
                      {.x = turned, .head_dim = kHeadDim, .cosines = cosines, .sines = sines});
      done();
    }
    kernels::kv_store(stream_, {.keys = keys,
                                .values = qkv.slice_columns(kWidth + kKvWidth, kKvWidth),
                                .slots = indices(slots_),
                                .cache = cache_});
    done();
    kernels::paged_attention(stream_, {.queries = queries,
                                       .cache = cache_,
                                       .num_heads = kHeads,
                                       .scale = 0.2F,
                                       .num_sequences = 2,
                                       .chunk_max = kChunk,
                                       .context_max = context_max_,
                                       .num_table_blocks = cache_.num_blocks,
                                       .cu_seqlens = indices(cu_seqlens_),
                                       .first_positions = indices(first_positions_),
                                       .block_offsets = indices(block_offsets_),
                                       .block_tables = indices(block_tables_),
                                       .table_starts = indices(block_offsets_),
                                       .y = y});
    done();
  }

  static Memory activations(std::int64_t columns) {
    return random_memory(kRows * columns, 9, 1.0F);
  }

  kernels::WorkerPool pool_{1};
  Stream stream_{testing::device_under_test(), pool_};
  const std::vector<float> start_ = testing::random_floats(kRows * kWidth, 1);
  const Weight to_qkv_{stream_, kWidth + 2 * kKvWidth, kWidth, 2};
  const Weight to_x_{stream_, kWidth, kWidth, 3};
  const Weight to_inner_{stream_, 2 * kInner, kWidth, 4};
  const Weight from_inner_{stream_, kWidth, kInner, 5};
  const Memory norm_ = random_memory(kWidth, 6, 1.0F);
  const Memory inverse_periods_ = random_memory(kHeadDim / 2, 7, 0.1F);
  const Memory x_ = activations(kWidth);
  const Memory h_ = activations(kWidth);
  const Memory qkv_ = activations(kWidth + 2 * kKvWidth);
  const Memory inner_ = activations(2 * kInner);
  const Memory cosines_ = activations(kHeadDim / 2);
  const Memory sines_ = activations(kHeadDim / 2);
  std::vector<std::uint16_t> half_cache_;
  Memory keys_;
  Memory values_;
  kernels::KvLayer cache_;
  std::int32_t context_max_ = 0;
  Memory positions_;
  Memory slots_;
  Memory cu_seqlens_;
  Memory first_positions_;
  Memory block_offsets_;
  Memory block_tables_;
};

TEST(CudaStreamTest, OpsThatNobodyWaitsForLeaveTheSameBits) {
  Layers layers;
  layers.reset();
  layers.put(true);
  const std::vector<float> expected = layers.output();
  ASSERT_TRUE(
      std::all_of(expected.begin(), expected.end(), [](float v) { return std::isfinite(v); }));
  for (const unsigned seed : {1U, 2U}) {
    testing::set_thread_order(seed);
    layers.reset();
    layers.put(false);
    testing::expect_same_bits(layers.output(), expected);
  }
  testing::set_thread_order(0);
  // As a graph.
  const kernels::DeviceApi& device = *testing::device_under_test().device;
  device.begin_capture(layers.stream().handle());
  layers.put(false);
  void* graph = device.end_capture(layers.stream().handle());
  for (int launch = 0; launch < 3; ++launch) {
    layers.reset();
    device.launch_graph(graph, layers.stream().handle());
    testing::expect_same_bits(layers.output(), expected);
  }
  device.release(kernels::DeviceApi::HandleKind::kGraph, graph);
}

// Few outputs of many inputs, which several blocks share where there are multiprocessors for them.
TEST(CudaStreamTest, SharedOutputsOfAGraphHaveTheSameBits) {
  constexpr std::int64_t kManyInputs = 4096;
  kernels::WorkerPool pool(1);
  Stream stream(testing::device_under_test(), pool);
  const Weight weight(stream, kWidth, kManyInputs, 1);
  const Memory x = random_memory(kRows * kManyInputs, 2, 1.0F);
  const Memory y = random_memory(kRows * kWidth, 3, 1.0F);
  const std::vector<float> nothing(static_cast<std::size_t>(kRows * kWidth), NAN);
  const auto put = [&] {
    kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.floats(), kRows, kManyInputs),
                             .weight = weight.packed,
                             .y = kernels::make_matrix(y.floats(), kRows, kWidth)});
  };
  const auto result = [&] {
    stream.synchronize();
    std::vector<float> values(nothing.size());
    testing::copy_to_host(values.data(), y.data(), y.num_bytes());
    testing::copy_to_device(y.data(), nothing.data(), y.num_bytes());
    return values;
  };
  put();
  const std::vector<float> expected = result();
  if (testing::set_num_multiprocessors(132)) {
    ASSERT_GT(
        kernels::cuda::linear_split_bytes(kernels::ElementType::kBF16, kRows, kWidth, kManyInputs)
            .counters,
        0U);
  }
  put();  // takes the memory that a graph does not
  testing::expect_same_bits(result(), expected);
  const kernels::DeviceApi& device = *testing::device_under_test().device;
  device.begin_capture(stream.handle());
  put();
  void* graph = device.end_capture(stream.handle());
  for (int launch = 0; launch < 3; ++launch) {
    device.launch_graph(graph, stream.handle());
    testing::expect_same_bits(result(), expected);
  }
  device.release(kernels::DeviceApi::HandleKind::kGraph, graph);
  testing::set_num_multiprocessors(1);
}

TEST(CudaStreamTest, CountersAreZerosOfTheirOwn) {
  kernels::WorkerPool pool(1);
  Stream one(testing::device_under_test(), pool);
  Stream other(testing::device_under_test(), pool);
  std::uint32_t* const first = one.counters(64);
  EXPECT_NE(first, other.counters(64));
  EXPECT_EQ(one.num_scratch_moves(), 1);
  EXPECT_EQ(one.counters(32), first);
  EXPECT_EQ(one.num_scratch_moves(), 1) << "graphs would be dropped";
  // More of them: others, and zeros again whatever has been counted.
  testing::copy_to_device(first, std::vector<std::uint32_t>(16, 7).data(), 64);
  constexpr std::size_t kNumBytes = 4096;
  const std::uint32_t* const more = one.counters(kNumBytes);
  EXPECT_EQ(one.num_scratch_moves(), 2);
  one.synchronize();
  std::vector<std::uint32_t> counters(kNumBytes / sizeof(std::uint32_t), 7);
  testing::copy_to_host(counters.data(), more, kNumBytes);
  EXPECT_EQ(counters, std::vector<std::uint32_t>(counters.size(), 0));
}

TEST(CudaStreamTest, MemoryThatCouldNotGrowHasMoved) {
  kernels::WorkerPool pool(1);
  Stream stream(testing::device_under_test(), pool);
  (void)stream.scratch(64);
  constexpr std::size_t kMoreThanThereIs = std::size_t{1} << 50;
  EXPECT_THROW((void)stream.scratch(kMoreThanThereIs), kernels::DeviceError);
  EXPECT_EQ(stream.num_scratch_moves(), 2) << "graphs with the old address would be launched";
  EXPECT_NE(stream.scratch(64), nullptr);
}

}  // namespace
}  // namespace lmtp
