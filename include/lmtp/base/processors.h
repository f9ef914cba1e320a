// Equal shares of the machine's processors, for servers or ranks beside each other.
#pragma once

#include <sched.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lmtp {

struct Processor {
  int id = 0;
  int core = 0;  // the least id of those that share its core
  int node = 0;  // whose memory is near
};

// Those that this thread may run on, as `sys` describes them; what it does not say is 0, or the
// processor's own core. Empty: the system does not tell.
std::vector<Processor> find_processors(const std::string& sys = "/sys/devices/system");

struct ProcessorShare {
  std::vector<int> ids;
  std::optional<int> node;  // of all of them, where the processors have several
};

// By nodes, then cores: with as many shares as nodes each is one; shares differ by a core at most,
// or by a processor where there are fewer cores than shares. REQUIRES: 1 <= num_shares <=
// processors.size().
std::vector<ProcessorShare> split_processors(std::vector<Processor> processors, int num_shares);

// Binds threads to a share: made before a fork, applied behind it.
class Binding {
 public:
  Binding() = default;  // to nothing
  // REQUIRES: ids of find_processors().
  explicit Binding(const ProcessorShare& share);

  // From now on this thread, and those that it starts, run on the share's processors and prefer the
  // memory of its node. Where that is not allowed, they run anywhere. Async-signal-safe.
  void apply() const;

 private:
  static constexpr int kNodesMax = 1024;

  cpu_set_t processors_{};                                                      // none: any
  std::array<unsigned long, kNodesMax / (8 * sizeof(unsigned long))> nodes_{};  // none: any
};

}  // namespace lmtp
