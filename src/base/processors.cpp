#include "lmtp/base/processors.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp {
namespace {

namespace fs = std::filesystem;

constexpr int kProcessorsMax = CPU_SETSIZE;

// "0-3,8" in a file of one line.
std::vector<int> read_ids(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<int> ids;
  for (std::string part; std::getline(stream, part, ',');) {
    std::istringstream range(part);
    int first = 0;
    if (!(range >> first)) break;
    int last = first;
    if (range.get() == '-') range >> last;
    for (int id = first; id <= std::min(last, kProcessorsMax); ++id) ids.push_back(id);
  }
  return ids;
}

std::map<int, int> read_nodes(const fs::path& sys) {
  std::map<int, int> node_of;
  for (const int node : read_ids(sys / "node" / "online")) {
    const std::string name = "node" + std::to_string(node);
    for (const int id : read_ids(sys / "node" / name / "cpulist")) node_of[id] = node;
  }
  return node_of;
}

}  // namespace

std::vector<Processor> find_processors(const std::string& sys) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  const std::map<int, int> node_of = read_nodes(sys);
  std::vector<Processor> processors;
  for (int id = 0; id < kProcessorsMax; ++id) {
    if (!CPU_ISSET(id, &allowed)) continue;
    const fs::path folder = fs::path(sys) / "cpu" / ("cpu" + std::to_string(id));
    const std::vector<int> siblings = read_ids(folder / "topology" / "thread_siblings_list");
    const auto node = node_of.find(id);
    processors.push_back(
        {id, siblings.empty() ? id : siblings.front(), node == node_of.end() ? 0 : node->second});
  }
  return processors;
}

std::vector<ProcessorShare> split_processors(std::vector<Processor> processors, int num_shares) {
  LMTP_CHECK(num_shares >= 1 && num_shares <= std::ssize(processors), num_shares);
  std::ranges::sort(processors, {}, [](const Processor& processor) {
    return std::tuple(processor.node, processor.core, processor.id);
  });
  const bool has_nodes = processors.front().node != processors.back().node;
  std::vector<std::size_t> begins;  // of cores
  for (std::size_t i = 0; i < processors.size(); ++i) {
    if (i == 0 || processors[i].core != processors[i - 1].core) begins.push_back(i);
  }
  if (std::ssize(begins) < num_shares) {
    begins.resize(processors.size());
    for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i;
  }
  const std::size_t num_parts = begins.size();
  begins.push_back(processors.size());
  std::vector<ProcessorShare> shares;
  const auto count = static_cast<std::size_t>(num_shares);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = begins[i * num_parts / count];
    const std::size_t end = begins[(i + 1) * num_parts / count];
    ProcessorShare& share = shares.emplace_back();
    for (std::size_t k = begin; k < end; ++k) share.ids.push_back(processors[k].id);
    const int node = processors[begin].node;
    if (has_nodes && node == processors[end - 1].node) share.node = node;
  }
  return shares;
}

Binding::Binding(const ProcessorShare& share) {
  CPU_ZERO(&processors_);
  for (const int id : share.ids) CPU_SET(id, &processors_);
  if (!share.node || *share.node >= kNodesMax) return;
  constexpr int kBits = 8 * sizeof(nodes_[0]);
  nodes_[static_cast<std::size_t>(*share.node / kBits)] |= 1UL << (*share.node % kBits);
}

void Binding::apply() const {
  if (CPU_COUNT(&processors_) > 0) sched_setaffinity(0, sizeof(processors_), &processors_);
  if (std::ranges::any_of(nodes_, [](unsigned long word) { return word != 0; })) {
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes_.data(), kNodesMax);
  }
}

}  // namespace lmtp
