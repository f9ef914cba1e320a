// What narrower weights cost: perplexity on text that the model was not trained on, against
// float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "agent_driver.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "source_dir.h"
#include "test_data.h"

namespace lmtp {
namespace {

// By how much perplexity may be higher, as a part of float32's. Lower is not a fault.
constexpr double kInt8Limit = 0.01;
constexpr double kInt4Limit = 0.05;
constexpr double kBF16Limit = 0.003;
constexpr double kFp8CacheLimit = 0.01;  // of keys and values alone
constexpr double kBF16CacheLimit = 0.002;
constexpr double kF16CacheLimit = 0.0002;

std::string held_out(const std::string& name) {
  const std::string path = testing::source_dir() + "/tests/goldens/held-out/" + name;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// A text as token ids, in windows of the whole context, each behind the token that begins texts.
std::vector<std::vector<TokenId>> windows_of(const std::vector<TokenId>& ids, int context_length) {
  const auto size = static_cast<std::size_t>(context_length) - 1;
  std::vector<std::vector<TokenId>> windows;
  for (std::size_t first = 0; first < ids.size(); first += size) {
    const std::size_t end = std::min(first + size, ids.size());
    windows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(first),
                         ids.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return windows;
}

// The mean of what SCORE gives is minus the logarithm of the perplexity.
double perplexity(const std::string& folder, kernels::WeightType type, TokenId begin,
                  const std::vector<std::vector<TokenId>>& windows,
                  std::optional<kernels::ElementType> kv_cache_type = {}) {
  const auto agent =
      testing::load_agent(testing::folder_source(folder), 2, type, nullptr, kv_cache_type);
  double sum = 0.0;
  std::size_t count = 0;
  for (const std::vector<TokenId>& window : windows) {
    testing::AgentDriver driver(*agent);
    const testing::DrivenStream& stream = driver.score({begin}, window);
    driver.run();
    EXPECT_EQ(stream.results.size(), window.size());
    for (const scheduler::TokenResult& result : stream.results) {
      sum += static_cast<double>(result.logprob);
    }
    count += window.size();
  }
  return std::exp(-sum / static_cast<double>(count));
}

// `is_narrow`: the model is one that 4 bits, and 8 for keys and values, are not meant for: how much
// worse they are is printed.
// `plausible`: what float32's perplexity must be below, or the text was not read as the model's.
void check_quality(const std::string& folder, TokenId begin,
                   const std::vector<std::vector<TokenId>>& windows, double plausible,
                   bool is_narrow = false) {
  std::size_t num_tokens = 0;
  for (const auto& window : windows) num_tokens += window.size();
  const double exact = perplexity(folder, kernels::WeightType::kF32, begin, windows);
  const double bf16 = perplexity(folder, kernels::WeightType::kBF16, begin, windows);
  const double int8 = perplexity(folder, kernels::WeightType::kInt8, begin, windows);
  const double int4 = perplexity(folder, kernels::WeightType::kInt4, begin, windows);
  const auto of_cache = [&](kernels::ElementType type) {
    return perplexity(folder, kernels::WeightType::kF32, begin, windows, type);
  };
  const double bf16_cache = of_cache(kernels::ElementType::kBF16);
  const double fp8_cache = of_cache(kernels::ElementType::kE4M3);
  const double f16_cache = of_cache(kernels::ElementType::kF16);
  std::printf("bfloat16 cache %.4f (%+.4f %%), float16 cache %.4f (%+.5f %%)\n", bf16_cache,
              100.0 * (bf16_cache / exact - 1.0), f16_cache, 100.0 * (f16_cache / exact - 1.0));
  EXPECT_LT(bf16_cache, exact * (1.0 + kBF16CacheLimit));
  EXPECT_LT(f16_cache, exact * (1.0 + kF16CacheLimit));
  EXPECT_NE(bf16_cache, exact) << "keys and values not in bfloat16";
  EXPECT_NE(f16_cache, exact) << "keys and values not in float16";
  std::printf(
      "%s, %zu tokens: perplexity float32 %.4f, bfloat16 %.4f (%+.3f %%), "
      "int8 %.4f (%+.3f %%), int4 %.4f (%+.3f %%), fp8 cache %.4f (%+.3f %%)\n",
      folder.substr(folder.rfind('/') + 1).c_str(), num_tokens, exact, bf16,
      100.0 * (bf16 / exact - 1.0), int8, 100.0 * (int8 / exact - 1.0), int4,
      100.0 * (int4 / exact - 1.0), fp8_cache, 100.0 * (fp8_cache / exact - 1.0));
  EXPECT_GT(num_tokens, 1000U);
  EXPECT_LT(exact, plausible);
  EXPECT_LT(bf16, exact * (1.0 + kBF16Limit));
  EXPECT_LT(int8, exact * (1.0 + kInt8Limit));
  if (!is_narrow) {
    EXPECT_LT(int4, exact * (1.0 + kInt4Limit));
    EXPECT_LT(fp8_cache, exact * (1.0 + kFp8CacheLimit));
  }
  EXPECT_NE(int4, int8) << "not computed in int4";
  EXPECT_NE(bf16, exact) << "not computed in bfloat16";
  EXPECT_NE(fp8_cache, exact) << "keys and values not in e4m3";
  EXPECT_NE(int8, exact) << "not computed in int8";
}

TEST(QualityTest, NarrowerWeightsOfTheDemo) {
  const std::string folder = testing::source_dir() + "/models/demo";
  const auto tokenizer = tokenizer::load_tokenizer(folder);
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<TokenId> ids = *(*tokenizer)->encode(held_out("demo.txt"));
  const auto config = model::load_model_config(testing::folder_source(folder));
  ASSERT_TRUE(config.ok());
  check_quality(folder, (*tokenizer)->eos_id(), windows_of(ids, config->context_length), 100.0);
}

using testing::TestData;

TEST_F(TestData, NarrowerWeightsOfStories260K) {
  const std::string folder = data("models/stories260K");
  const auto tokenizer = tokenizer::load_tokenizer(folder);
  ASSERT_TRUE(tokenizer.ok());
  std::istringstream text(held_out("stories.txt"));
  std::vector<std::vector<TokenId>> stories;  // each line one
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) stories.push_back(*(*tokenizer)->encode(line));
  }
  // 64 wide, with heads of 8, and 172 inputs of its MLPs' second matrices.
  check_quality(folder, (*tokenizer)->bos_id(), stories, 20.0, true);
}

}  // namespace
}  // namespace lmtp
