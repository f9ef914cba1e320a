// The machine's devices, by the names that CUDA_VISIBLE_DEVICES has for them.
#pragma once

#include <string>
#include <vector>

namespace lmtp::tools {

// What CUDA_VISIBLE_DEVICES calls each of the devices that the driver shows. `variable`: its value
// in this process; nullptr: it is not set.
std::vector<std::string> device_names(const char* variable, int num_devices);

}  // namespace lmtp::tools
