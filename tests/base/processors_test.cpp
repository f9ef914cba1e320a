// What each server of --layout, and each rank, gets of the machine.
#include "lmtp/base/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "temp_folder.h"

namespace lmtp {
namespace {

using ::testing::ElementsAre;
using testing::TempFolder;

// `num_nodes` of `num_cores` each, of two processors whose ids are half of all apart, as on x86.
std::vector<Processor> machine(int num_nodes, int num_cores) {
  std::vector<Processor> processors;
  const int num_all = num_nodes * num_cores;
  for (int id = 0; id < 2 * num_all; ++id) {
    const int core = id % num_all;
    processors.push_back({id, core, core / num_cores});
  }
  return processors;
}

TEST(SplitProcessors, EachNodeIsAShare) {
  const auto shares = split_processors(machine(2, 2), 2);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_THAT(shares[0].ids, ElementsAre(0, 4, 1, 5));
  EXPECT_EQ(shares[0].node, 0);
  EXPECT_THAT(shares[1].ids, ElementsAre(2, 6, 3, 7));
  EXPECT_EQ(shares[1].node, 1);
}

TEST(SplitProcessors, SharesOfANodeHaveWholeCores) {
  const auto shares = split_processors(machine(2, 2), 4);
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_THAT(shares[0].ids, ElementsAre(0, 4));
  EXPECT_THAT(shares[1].ids, ElementsAre(1, 5));
  EXPECT_EQ(shares[1].node, 0);
  EXPECT_THAT(shares[2].ids, ElementsAre(2, 6));
  EXPECT_THAT(shares[3].ids, ElementsAre(3, 7));
  EXPECT_EQ(shares[3].node, 1);
}

TEST(SplitProcessors, AShareOfTwoNodesPrefersNone) {
  const auto shares = split_processors(machine(4, 1), 3);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_THAT(shares[0].ids, ElementsAre(0, 4));
  EXPECT_EQ(shares[0].node, 0);
  EXPECT_EQ(shares[1].node, 1);
  EXPECT_THAT(shares[2].ids, ElementsAre(2, 6, 3, 7));
  EXPECT_EQ(shares[2].node, std::nullopt);
}

TEST(SplitProcessors, MoreSharesThanCoresAreOfProcessors) {
  const auto shares = split_processors(machine(1, 2), 3);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_THAT(shares[0].ids, ElementsAre(0));
  EXPECT_THAT(shares[1].ids, ElementsAre(2));
  EXPECT_THAT(shares[2].ids, ElementsAre(1, 3));
  EXPECT_EQ(shares[0].node, std::nullopt) << "there is one alone";
}

void write_file(const std::filesystem::path& path, const char* text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(FindProcessors, ThoseAllowedAsTheSystemDescribesThem) {
  const TempFolder folder;
  const std::filesystem::path sys = folder.path();
  write_file(sys / "node/online", "0,3\n");
  write_file(sys / "node/node0/cpulist", "1000\n");
  write_file(sys / "node/node3/cpulist", "0-511,513-999\n");
  write_file(sys / "cpu/cpu0/topology/thread_siblings_list", "0,512\n");
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  if (!CPU_ISSET(0, &before)) GTEST_SKIP() << "processor 0 is not allowed here";
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
  const auto described = find_processors(sys.string());
  const auto unknown = find_processors((sys / "none").string());
  const auto real = find_processors();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_EQ(described.size(), 1U);
  EXPECT_EQ(described[0].core, 0);
  EXPECT_EQ(described[0].node, 3);
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].node, 0);
  ASSERT_EQ(real.size(), 1U);
  EXPECT_EQ(real[0].id, 0);
}

TEST(BindingTest, HoldsForThisThreadAndThoseThatItStarts) {
  const int own = find_processors().back().id;
  std::vector<int> here;
  std::vector<int> there;
  const auto ids = [] {
    std::vector<int> found;
    for (const Processor& processor : find_processors()) found.push_back(processor.id);
    return found;
  };
  std::jthread([&] {
    Binding({{own}, 0}).apply();
    here = ids();
    std::jthread([&] { there = ids(); }).join();
  }).join();
  EXPECT_THAT(here, ElementsAre(own));
  EXPECT_THAT(there, ElementsAre(own));
}

TEST(BindingTest, ToNothingChangesNothing) {
  const std::size_t before = find_processors().size();
  std::size_t then = 0;
  std::jthread([&] {
    Binding().apply();
    then = find_processors().size();
  }).join();
  EXPECT_EQ(then, before);
}

}  // namespace
}  // namespace lmtp
