#include "free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "temp_folder.h"

namespace lmtp::agent {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(FreeMemory, IsTheLeastOfTheMachineAndTheGroupsAround) {
  const testing::TempFolder folder;
  const std::filesystem::path root(folder.path());
  const auto ask = [&] { return free_memory_bytes(root / "proc", root / "cgroup"); };
  EXPECT_EQ(ask(), std::nullopt);
  write_file(root / "proc/meminfo", "MemTotal:  64 kB\nMemAvailable:  32 kB\n");
  EXPECT_EQ(ask(), 32 * 1024);
  write_file(root / "proc/self/cgroup", "0::/system.slice/lmtp.service\n");
  write_file(root / "cgroup/system.slice/lmtp.service/memory.max", "max\n");
  write_file(root / "cgroup/system.slice/lmtp.service/memory.current", "100\n");
  EXPECT_EQ(ask(), 32 * 1024);
  write_file(root / "cgroup/system.slice/memory.max", "9000\n");
  write_file(root / "cgroup/system.slice/memory.current", "1000\n");
  EXPECT_EQ(ask(), 8000);
  write_file(root / "cgroup/system.slice/memory.stat",
             "anon 300\ninactive_file 100\nactive_file 400\nkernel 200\n");
  EXPECT_EQ(ask(), 8500) << "what is only cached can be taken back";
  write_file(root / "cgroup/system.slice/lmtp.service/memory.max", "50\n");  // over its limit
  EXPECT_EQ(ask(), 0);
}

}  // namespace
}  // namespace lmtp::agent
