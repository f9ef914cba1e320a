// The agent of a device with keys and values in fp8_e4m3.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "device_under_test.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::WeightType;
using scheduler::TokenResult;
using testing::AgentDriver;
using testing::DrivenStream;
using testing::prompt_of;

std::unique_ptr<scheduler::ModelAgent> load(WeightType type, const kernels::Backend* device,
                                            std::optional<ElementType> kv_cache_type) {
  const std::string folder = testing::source_dir() + "/tests/goldens/families/llama3-tied";
  return testing::load_agent(testing::folder_source(folder), 2, type, device, kv_cache_type);
}

std::vector<TokenResult> score(scheduler::ModelAgent& agent) {
  AgentDriver driver(agent);
  const DrivenStream& stream = driver.score(prompt_of(1, 20), prompt_of(2, 10));
  driver.run();
  return stream.results;
}

TEST(CudaKvTypeTest, LogprobsAreThoseOfTheHost) {
  const auto agent = load(WeightType::kF32, &testing::device_under_test(), ElementType::kE4M3);
  const auto on_host = load(WeightType::kF32, nullptr, ElementType::kE4M3);
  const auto exact = load(WeightType::kF32, nullptr, {});
  const std::vector<TokenResult> results = score(*agent);
  const std::vector<TokenResult> expected = score(*on_host);
  const std::vector<TokenResult> without = score(*exact);
  ASSERT_EQ(results.size(), expected.size());
  double error = 0.0;
  double cost = 0.0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    error += std::abs(static_cast<double>(results[i].logprob - expected[i].logprob));
    cost += std::abs(static_cast<double>(results[i].logprob - without[i].logprob));
  }
  EXPECT_LT(error, cost) << "nearer to what the host computes in e4m3 than to float32";
  // A block has a quarter of the bytes.
  EXPECT_GE(agent->info().num_blocks, 4 * exact->info().num_blocks);
}

}  // namespace
}  // namespace lmtp
