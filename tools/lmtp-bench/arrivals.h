// When requests arrive in an open loop: an endless sequence of times.
#pragma once

#include <cstdint>
#include <random>

namespace lmtp::tools {

// Gaps are drawn from a gamma distribution of mean 1 / rate. Burstiness is its shape, as in vLLM's
// benchmark: 1 makes a Poisson process, less comes in bursts, more comes evenly.
// Owner: the caller; one thread at a time.
class Arrivals {
 public:
  // REQUIRES: rate > 0 requests a second, finite; burstiness > 0.
  Arrivals(double rate, double burstiness, std::uint64_t seed);

  // Seconds since the start; the first is 0, none lies before the one before it.
  double next_s();

 private:
  std::mt19937_64 engine_;
  std::gamma_distribution<double> gap_s_;
  double next_s_ = 0.0;
};

}  // namespace lmtp::tools
