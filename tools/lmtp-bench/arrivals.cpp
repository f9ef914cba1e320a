#include "arrivals.h"

#include <cmath>

#include "lmtp/base/check.h"

namespace lmtp::tools {

Arrivals::Arrivals(double rate, double burstiness, std::uint64_t seed)
    : engine_(seed), gap_s_(burstiness, 1.0 / (rate * burstiness)) {
  LMTP_CHECK(rate > 0 && std::isfinite(rate) && burstiness > 0, rate, burstiness);
}

double Arrivals::next_s() {
  const double now_s = next_s_;
  next_s_ += gap_s_(engine_);
  return now_s;
}

}  // namespace lmtp::tools
