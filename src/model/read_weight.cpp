#include "read_weight.h"

#include <algorithm>

namespace lmtp::model {
namespace {

// What one thread reads at a time.
constexpr std::size_t kPartBytes = std::size_t{1} << 20;

}  // namespace

Result<void> read_weight(const StoredWeight& weight, std::uint64_t first, std::size_t count,
                         std::byte* to) {
  const std::uint64_t end = first + count;
  std::uint64_t run_first = 0;
  for (const StoredWeight::Run& run : weight.runs) {
    const std::uint64_t run_end = run_first + run.num_bytes;
    const std::uint64_t from = std::max(first, run_first);
    if (from < std::min(end, run_end)) {
      auto done = (*run.read)(run.first + (from - run_first), std::min(end, run_end) - from,
                              to + (from - first));
      if (!done.ok()) return done;
    }
    run_first = run_end;
  }
  return {};
}

Result<void> read_weight(kernels::WorkerPool& pool, const StoredWeight& weight, std::uint64_t first,
                         std::size_t count, std::byte* to) {
  FirstError error;
  const auto num_parts = static_cast<int>((count + kPartBytes - 1) / kPartBytes);
  pool.parallel_for(num_parts, [&](int part, int) {
    const std::size_t from = static_cast<std::size_t>(part) * kPartBytes;
    error.note(read_weight(weight, first + from, std::min(kPartBytes, count - from), to + from));
  });
  return error.result();
}

}  // namespace lmtp::model
