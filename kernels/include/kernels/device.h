// Is there a CUDA device that this program could compute on?
#pragma once

#include <string>

namespace lmtp::kernels::cuda {

struct Probe {
  bool available = false;
  std::string reason;  // one line: why not; empty where available
  std::string name;    // the device's, where there is one
};

// Any thread. May take a second the first time: it starts the driver.
Probe probe();

}  // namespace lmtp::kernels::cuda
