// Detection of a usable CUDA device, and the backend for it.
#pragma once

#include <cstdint>
#include <string>

namespace lmtp::kernels {
struct Backend;
}

namespace lmtp::kernels::cuda {

struct Probe {
  bool available = false;
  std::string reason;   // one line: why not; empty where available
  std::string name;     // the device's, where there is one
  int num_devices = 0;  // that the driver shows
  int num_multiprocessors = 0;
  int compute_capability = 0;  // 90 for 9.0
};

// Any thread. The first call may take a second: it starts the driver.
Probe probe(int device = 0);

// REQUIRES of a use: probe says that the stream's device is available.
const Backend& backend();

// Of weights as codes, as many as take so many bytes of scratch memory are widened at a time.
inline constexpr std::int64_t kWidenedBytesMax = std::int64_t{64} << 20;
// What blocks of a linear that share its outputs may leave for one another, likewise.
inline constexpr std::int64_t kPartialBytesMax = std::int64_t{16} << 20;

}  // namespace lmtp::kernels::cuda
