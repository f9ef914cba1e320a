// Pages of the KV cache come ahead of need: a step writes keys and values without a page fault.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>

#include "agent_driver.h"
#include "backend_agent.h"
#include "bit_cases.h"
#include "eventually.h"
#include "source_dir.h"

namespace lmtp {
namespace {

constexpr int kNumStreams = 32;
constexpr int kLength = 480;  // tokens of a stream, of which 4 are generated
constexpr int kNumLayers = 5;

// One thread, so that all steps are this one's.
std::unique_ptr<scheduler::ModelAgent> load() {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::source_dir() + "/models/demo");
  options.config = *model::load_model_config(options.source);
  options.num_threads = 1;
  options.kv_cache_bytes = testing::kTestKvBytes;
  options.batch.max_tokens = testing::kTestBatchedTokens;
  auto agent = agent::make_agent(options, nullptr);
  EXPECT_TRUE(agent.ok()) << (agent.ok() ? "" : agent.error().message);
  return std::move(*agent);
}

long num_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Until the blocks of a stream more are there.
void wait_for(const model::KvPages& pages, int num_blocks) {
  ASSERT_TRUE(testing::eventually([&] { return pages.num_ready() >= num_blocks; }))
      << pages.num_ready() << ' ' << num_blocks;
}

// Of the steps of streams that come one after the other, each in blocks that none has used; the
// first one, which finds buffers unused as well, does not count.
long faults_of_steps(bool pages_ahead) {
  const auto agent = load();
  auto& backend_agent = dynamic_cast<agent::BackendAgent&>(*agent);
  if (!pages_ahead) backend_agent.leave_pages();
  const model::KvPages* pages = backend_agent.pages();
  EXPECT_EQ(pages != nullptr, pages_ahead);
  testing::AgentDriver driver(*agent);
  long sum = 0;
  int num_used = 1;
  for (int number = 0; number < kNumStreams; ++number) {
    const auto& stream =
        driver.generate(testing::prompt_of(number, kLength - 4), 4, testing::params_of(number));
    num_used += static_cast<int>(stream.sequence.blocks.size());
    if (pages != nullptr) wait_for(*pages, num_used);
    const long before = num_faults();
    driver.run();
    if (number > 0) sum += num_faults() - before;
  }
  return sum;
}

TEST(KvPagesTest, StepsDoNotFaultOnTheKvCache) {
  const long without = faults_of_steps(false);
  const long ahead = faults_of_steps(true);
  RecordProperty("without", static_cast<int>(without));
  RecordProperty("ahead", static_cast<int>(ahead));
  std::printf("page faults of %d streams: %ld, with pages ahead %ld\n", kNumStreams - 1, without,
              ahead);
  // Of keys and of values of each layer, every 170 blocks or more often.
  EXPECT_GE(without, 2 * kNumLayers * 5);
  EXPECT_LE(ahead, without / 8);
}

}  // namespace
}  // namespace lmtp
