// Equal shares of the machine's processors, and its devices, for servers beside each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lmtp::tools {

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

// What CUDA_VISIBLE_DEVICES calls each of the devices that the driver shows. `variable`: its value
// in this process; nullptr: it is not set.
std::vector<std::string> device_names(const char* variable, int num_devices);

}  // namespace lmtp::tools
