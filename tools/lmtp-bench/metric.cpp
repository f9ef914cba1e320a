#include "metric.h"

#include <cstdio>

namespace lmtp::tools {

const char* metric_title(Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return "TTFT";
    case Metric::kTpot:
      return "TPOT";
    case Metric::kItl:
      return "ITL";
    case Metric::kE2el:
      break;
  }
  return "E2EL";
}

const char* metric_key(Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return "ttft";
    case Metric::kTpot:
      return "tpot";
    case Metric::kItl:
      return "itl";
    case Metric::kE2el:
      break;
  }
  return "e2el";
}

const TimeHistogram& times_of(const LoadStats& stats, Metric metric) {
  switch (metric) {
    case Metric::kTtft:
      return stats.ttft;
    case Metric::kTpot:
      return stats.tpot;
    case Metric::kItl:
      return stats.itl;
    case Metric::kE2el:
      break;
  }
  return stats.e2el;
}

std::string percentile_name(double percentile) {
  char text[32];
  std::snprintf(text, sizeof(text), "p%g", percentile);
  return text;
}

double per_second(std::int64_t count, const LoadStats& stats) {
  return stats.duration_s > 0 ? static_cast<double>(count) / stats.duration_s : 0.0;
}

}  // namespace lmtp::tools
