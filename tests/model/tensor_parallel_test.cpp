// Models that are divided among ranks: their logits against those of the whole model, and their
// bits from run to run and whatever the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/local_ranks.h"
#include "run_ranks.h"
#include "tiny_families.h"

namespace lmtp {
namespace {

using kernels::WeightType;
using model::Communicator;
using model::LocalRanks;
using testing::TinyFamily;

// Tokens [first, first + count) of a sequence, in one step.
struct Chunk {
  int sequence = 0;
  int first = 0;
  int count = 0;
};
using Step = std::vector<Chunk>;

constexpr int kLengths[] = {1, 7, 17, 33, 40};
constexpr int kBlocksEach = 3;
constexpr int kMaxTokens = 128;

std::int32_t token_of(int sequence, int position) {
  return (sequence * 31 + position * 17 + position * position) % 97;
}

// By sequence and position: the logits behind that token.
using Logits = std::map<std::pair<int, int>, std::vector<float>>;

// All sequences in one step.
std::vector<Step> together() {
  Step step;
  for (int s = 0; s < 5; ++s) step.push_back({s, 0, kLengths[s]});
  return {step};
}

// Each sequence alone, in chunks of so many tokens.
std::vector<Step> alone(int chunk) {
  std::vector<Step> steps;
  for (int s = 0; s < 5; ++s) {
    for (int first = 0; first < kLengths[s]; first += chunk) {
      steps.push_back({{s, first, std::min(chunk, kLengths[s] - first)}});
    }
  }
  return steps;
}

// Prompts first; then decodes of all that are not at their end, one token a step.
std::vector<Step> decoded() {
  std::vector<Step> steps(1);
  for (int s = 0; s < 5; ++s) steps[0].push_back({s, 0, (kLengths[s] + 1) / 2});
  for (int token = 0; token < 20; ++token) {
    Step step;
    for (int s = 4; s >= 0; --s) {
      const int position = (kLengths[s] + 1) / 2 + token;
      if (position < kLengths[s]) step.push_back({s, position, 1});
    }
    steps.push_back(step);
  }
  return steps;
}

model::ModelInput input_of(const Step& step) {
  model::ModelInput input;
  input.cu_seqlens = {0};
  input.block_offsets = {0};
  for (const Chunk& chunk : step) {
    const int end = chunk.first + chunk.count;
    const auto block = [&](int index) { return 1 + chunk.sequence + 5 * index; };
    for (int position = chunk.first; position < end; ++position) {
      input.logit_rows.push_back(static_cast<std::int32_t>(input.ids.size()));
      input.ids.push_back(token_of(chunk.sequence, position));
      input.positions.push_back(position);
      input.slots[0].push_back(block(position / kBlockSize) * kBlockSize + position % kBlockSize);
    }
    for (int i = 0; i * kBlockSize < end; ++i) input.block_tables.push_back(block(i));
    input.cu_seqlens.push_back(static_cast<std::int32_t>(input.ids.size()));
    input.first_positions.push_back(chunk.first);
    input.block_offsets.push_back(static_cast<std::int32_t>(input.block_tables.size()));
  }
  return input;
}

// A rank's share of a model, on a stream of its own.
class RankModel {
 public:
  RankModel(const model::ModelConfig& config, WeightType type, Communicator& communicator,
            std::unique_ptr<model::TensorSource> source = std::make_unique<testing::TinySource>())
      : source_(std::move(source)), vocab_size_(config.vocab_size) {
    const auto store = model::make_host_store(pool_, type);
    model::WeightLoader loader(*source_, *store, 0, nullptr, communicator.shard());
    auto made = model::make_causal_lm(config, loader,
                                      {.max_tokens = kMaxTokens, .communicator = communicator});
    if (!made.ok()) throw std::runtime_error(made.error().message);
    model_ = std::move(*made);
    cache_ =
        std::make_unique<model::KvCache>(model::kv_specs(model_->config()), 1 + 5 * kBlocksEach,
                                         stream_, kernels::element_type(type));
  }

  Logits run(const std::vector<Step>& steps) {
    Logits result;
    for (const Step& step : steps) {
      if (step.empty()) continue;
      const model::ModelInput input = input_of(step);
      const auto hidden = model_->forward(stream_, model::arrays_of(input), *cache_);
      const auto num_rows = static_cast<std::int64_t>(input.logit_rows.size());
      std::vector<float> values(static_cast<std::size_t>(num_rows * vocab_size_));
      model_->logits(stream_, hidden, input.logit_rows.data(),
                     kernels::make_matrix(values.data(), num_rows, vocab_size_));
      auto next = values.begin();
      for (const Chunk& chunk : step) {
        for (int position = chunk.first; position < chunk.first + chunk.count; ++position) {
          result[{chunk.sequence, position}] = {next, next + vocab_size_};
          next += vocab_size_;
        }
      }
    }
    return result;
  }

 private:
  const std::unique_ptr<model::TensorSource> source_;
  kernels::WorkerPool pool_{1};
  kernels::Stream stream_{kernels::cpu_backend(), pool_};
  const std::int64_t vocab_size_;
  std::unique_ptr<model::CausalLM> model_;
  std::unique_ptr<model::KvCache> cache_;
};

// The logits of every rank for each of the schedules, one after another on the same model.
std::vector<std::vector<Logits>> run_divided(const model::ModelConfig& config, WeightType type,
                                             int num_ranks,
                                             const std::vector<std::vector<Step>>& schedules) {
  LocalRanks ranks(num_ranks);
  std::vector<std::vector<Logits>> results(static_cast<std::size_t>(num_ranks));
  const auto errors = testing::run_ranks(ranks, [&](Communicator& communicator) {
    RankModel rank(config, type, communicator);
    for (const auto& schedule : schedules) {
      results[static_cast<std::size_t>(communicator.shard().rank)].push_back(rank.run(schedule));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
  return results;
}

Logits run_whole(const model::ModelConfig& config, WeightType type,
                 const std::vector<Step>& schedule) {
  model::SingleRank single;
  return RankModel(config, type, single).run(schedule);
}

void expect_same_bits(const Logits& a, const Logits& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [at, logits] : a) {
    const auto& others = b.at(at);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(logits[i]), std::bit_cast<std::uint32_t>(others[i]))
          << "sequence " << at.first << ", position " << at.second << ", token " << i;
    }
  }
}

double largest(const Logits& logits) {
  double result = 0.0;
  for (const auto& [at, values] : logits) {
    for (const float value : values) result = std::max(result, std::fabs(double{value}));
  }
  return result;
}

void expect_near(const Logits& a, const Logits& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [at, logits] : a) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], b.at(at)[i], tolerance)
          << "sequence " << at.first << ", position " << at.second << ", token " << i;
    }
  }
}

class TensorParallelTest : public ::testing::TestWithParam<std::tuple<TinyFamily, int>> {
 protected:
  TinyFamily family() const { return std::get<0>(GetParam()); }
  int num_ranks() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kTinyFamilies),
                                            ::testing::Values(2, 4)),
                         [](const auto& which) {
                           return std::string(std::get<0>(which.param).name) + "_" +
                                  std::to_string(std::get<1>(which.param));
                         });

TEST_P(TensorParallelTest, LogitsAreThoseOfTheWholeModel) {
  const auto config = testing::config_of(family());
  const Logits whole = run_whole(config, WeightType::kF32, together());
  const double scale = largest(whole);
  ASSERT_GT(scale, 0.5);  // so that a bias that is added twice is more than the tolerance
  for (const auto& results : run_divided(config, WeightType::kF32, num_ranks(), {together()})) {
    expect_near(results[0], whole, 2e-5 * scale);
  }
}

TEST_P(TensorParallelTest, BitsDependNeitherOnTheRunNorOnTheBatch) {
  const auto config = testing::config_of(family());
  const auto results = run_divided(config, WeightType::kF32, num_ranks(),
                                   {together(), alone(5), decoded(), together()});
  const auto again = run_divided(config, WeightType::kF32, num_ranks(), {alone(64)});
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    SCOPED_TRACE(rank);
    for (const Logits& logits : results[rank]) expect_same_bits(logits, results[0][0]);
    expect_same_bits(again[rank][0], results[0][0]);
  }
}

// int8 rounds inputs and weights by their largest one: of a share of the inputs, that is another.
TEST(TensorParallelTypesTest, NarrowWeightsAreNearTheWholeModelAndKeepTheirBits) {
  const std::pair<WeightType, double> kTypes[] = {{WeightType::kBF16, 0.03},
                                                  {WeightType::kInt8, 0.1}};
  for (const char* name : {"gpt2", "llama_biased", "phi3"}) {
    const auto* family =
        std::ranges::find(testing::kTinyFamilies, std::string(name), &TinyFamily::name);
    const auto config = testing::config_of(*family);
    for (const auto& [type, tolerance] : kTypes) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(static_cast<int>(type)));
      const Logits whole = run_whole(config, type, together());
      for (const auto& results : run_divided(config, type, 2, {together(), decoded()})) {
        expect_near(results[0], whole, tolerance * largest(whole));
        expect_same_bits(results[1], results[0]);
      }
    }
  }
}

// One rank of a group takes the same path as the whole model.
TEST(TensorParallelTypesTest, AGroupOfOneHasTheBitsOfTheWholeModel) {
  for (const TinyFamily& family : testing::kTinyFamilies) {
    SCOPED_TRACE(family.name);
    const auto config = testing::config_of(family);
    expect_same_bits(run_divided(config, WeightType::kF32, 1, {together()})[0][0],
                     run_whole(config, WeightType::kF32, together()));
  }
}

// TinySource's tensors of a Llama under InternLM 2's names, queries, keys and values by group.
class InternLm2Source : public model::TensorSource {
 public:
  explicit InternLm2Source(const model::ModelConfig& config) : config_(config) {}

  Result<model::SourceTensor> tensor(const model::TensorSpec& spec) override {
    constexpr std::string_view kFused = "attention.wqkv";
    if (const auto at = spec.name.find(kFused); at != std::string::npos) {
      return fused(spec, spec.name.substr(0, at) + "self_attn.",
                   spec.name.substr(at + kFused.size()));
    }
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"tok_embeddings", "embed_tokens"},       {"attention.wo", "self_attn.o_proj"},
        {"feed_forward.w1", "mlp.gate_proj"},     {"feed_forward.w3", "mlp.up_proj"},
        {"feed_forward.w2", "mlp.down_proj"},     {"attention_norm", "input_layernorm"},
        {"ffn_norm", "post_attention_layernorm"}, {"output", "lm_head"}};
    model::TensorSpec llama = spec;
    for (const auto& [own, name] : kNames) {
      if (const auto at = llama.name.find(own); at != std::string::npos) {
        llama.name.replace(at, own.size(), name);
      }
    }
    return llama_.tensor(llama);
  }

 private:
  Result<model::SourceTensor> fused(const model::TensorSpec& spec, const std::string& prefix,
                                    const std::string& leaf) {
    const auto width = static_cast<std::size_t>(spec.shape.size() > 1 ? spec.shape[1] : 1);
    const auto heads = static_cast<std::size_t>(config_.num_heads / config_.num_kv_heads);
    std::vector<float> all;
    for (std::size_t group = 0; group < static_cast<std::size_t>(config_.num_kv_heads); ++group) {
      const auto append = [&](const char* part, std::size_t num_heads) {
        const std::size_t size = num_heads * static_cast<std::size_t>(config_.head_dim) * width;
        model::TensorSpec own = spec;
        own.name = prefix + part + leaf;
        own.shape[0] =
            static_cast<std::int64_t>(num_heads) * config_.num_kv_heads * config_.head_dim;
        all.resize(all.size() + size);
        const auto read = llama_.tensor(own)->read(group * size * sizeof(float),
                                                   size * sizeof(float), &all[all.size() - size]);
        EXPECT_TRUE(read.ok());
      };
      append("q_proj", heads);
      append("k_proj", 1);
      append("v_proj", 1);
    }
    return model::SourceTensor{
        .read = [all](std::uint64_t first, std::size_t count, void* to) -> Result<void> {
          std::memcpy(to, reinterpret_cast<const char*>(all.data()) + first, count);
          return {};
        }};
  }

  const model::ModelConfig config_;
  testing::TinySource llama_;
};

// No class of transformers reads InternLM 2.
TEST(TensorParallelTypesTest, InternLm2HasTheBitsOfTheSameLlama) {
  const std::string sizes = R"("vocab_size": 97, "max_position_embeddings": 64, "hidden_size": 64,
      "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 8,
      "num_key_value_heads": 4)";
  const std::string own = R"({"model_type": "internlm2", )" + sizes + "}";
  const std::string same = R"({"model_type": "llama", "attention_bias": true, )" + sizes + "}";
  const auto internlm = testing::config_of({"internlm2", own.c_str()});
  const auto llama = testing::config_of({"llama", same.c_str()});
  for (const int num_ranks : {1, 2}) {
    const auto expected = run_divided(llama, WeightType::kF32, num_ranks, {together()});
    LocalRanks ranks(num_ranks);
    const auto errors = testing::run_ranks(ranks, [&](Communicator& communicator) {
      RankModel rank(internlm, WeightType::kF32, communicator,
                     std::make_unique<InternLm2Source>(internlm));
      expect_same_bits(rank.run(together()), expected[0][0]);
    });
    EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
  }
}

// Fails in the sum of that number.
class FailingRank : public Communicator {
 public:
  FailingRank(Communicator& communicator, int good_sums)
      : communicator_(communicator), sums_left_(good_sums) {}
  model::Shard shard() const override { return communicator_.shard(); }
  void sum(kernels::Stream& stream, kernels::Matrix<float> y) override {
    if (sums_left_-- == 0) throw std::runtime_error("the device is gone");
    communicator_.sum(stream, y);
  }
  void gather(kernels::Stream& stream, kernels::Matrix<float> y) override {
    communicator_.gather(stream, y);
  }

 private:
  Communicator& communicator_;
  int sums_left_;
};

TEST(TensorParallelErrorTest, ARankThatFailsEndsTheStepsOfTheOthers) {
  const auto config = testing::config_of(testing::kTinyFamilies[1]);
  LocalRanks ranks(4);
  const auto errors = testing::run_ranks(ranks, [&](Communicator& communicator) {
    const bool fails = communicator.shard().rank == 2;
    FailingRank failing(communicator, 7);
    RankModel rank(config, WeightType::kF32, fails ? failing : communicator);
    for (int i = 0; i < 100; ++i) rank.run(together());
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "rank 2 failed: the device is gone");
  }
  EXPECT_EQ(errors[2], "the device is gone");
}

TEST(TensorParallelErrorTest, HeadsThatCannotBeDividedAreAnErrorThatNamesWhatCan) {
  const auto config = testing::config_of(testing::kTinyFamilies[1]);
  LocalRanks ranks(3);
  const auto errors = testing::run_ranks(ranks, [&](Communicator& communicator) {
    const RankModel rank(config, WeightType::kF32, communicator);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "this model cannot be divided among 3 ranks: 8 heads, 4 KV heads and an MLP of 100 "
              "allow 1, 2, 4");
  }
}

}  // namespace
}  // namespace lmtp
