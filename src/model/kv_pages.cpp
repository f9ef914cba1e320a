#include "lmtp/model/kv_pages.h"

#include <sys/resource.h>

#include <algorithm>

#include "kernels/populate.h"

namespace lmtp::model {
namespace {

constexpr int kNice = 10;  // a tenth of a processor where steps use all of it
// Of one call, during which no memory can be given back to the system: a huge page.
constexpr std::size_t kCallBytes = std::size_t{2} << 20;

}  // namespace

KvPages::KvPages(const KvCache& cache)
    : num_blocks_(cache.num_blocks()), block_bytes_(cache.num_bytes() / cache.num_blocks()) {
  std::size_t most = 1;
  for (const kernels::KvLayer& layer : cache.slots()) {
    const auto size =
        static_cast<std::size_t>(layer.block_size() * kernels::element_size(layer.type));
    regions_.push_back({static_cast<std::byte*>(layer.keys), size});
    regions_.push_back({static_cast<std::byte*>(layer.values), size});
    most = std::max(most, size);
  }
  run_ = static_cast<int>(std::max<std::size_t>(1, kCallBytes / most));
  use(kNullBlock);
  thread_ = std::thread([this] { work(); });
}

KvPages::~KvPages() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
  thread_.join();
}

int KvPages::num_ahead(int num_used) const {
  const std::int64_t bytes =
      std::clamp(num_used * block_bytes_ / 4, kAheadBytesMin, kAheadBytesMax);
  const auto wanted = static_cast<int>(std::max<std::int64_t>(1, bytes / block_bytes_));
  return std::min(wanted, num_blocks_ - num_used);
}

void KvPages::use(BlockId block) {
  if (block < num_used_ || block >= num_blocks_) return;  // a stub has no pages
  num_used_ = block + 1;
  const int ahead = num_ahead(num_used_);
  const int wanted = num_used_ + ahead;
  // Not for each block, since it wakes the thread.
  if (wanted < num_blocks_ && wanted - num_asked_ < (ahead + 3) / 4) return;
  if (wanted == num_asked_) return;
  num_asked_ = wanted;
  {
    const std::lock_guard lock(mutex_);
    used_ = num_used_;
    wanted_ = wanted;
  }
  changed_.notify_one();
}

void KvPages::work() {
  // Best effort: a refusal is ignored. 0: this thread alone.
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  for (int next = 0; next < num_blocks_;) {
    int end = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [&] { return is_stopping_.load(std::memory_order_relaxed) || wanted_ > next; });
      if (is_stopping_.load(std::memory_order_relaxed)) return;
      next = std::max(next, used_);  // a step that runs now writes those before
      end = std::min(wanted_, next + run_);
    }
    if (next < end && !take(next, end)) return;
    next = end;
    num_ready_.store(next, std::memory_order_release);
  }
}

// False: at the end, or where there is no such call.
bool KvPages::take(int first, int end) const {
  return std::ranges::all_of(regions_, [&](const Region& region) {
    const auto begin = static_cast<std::size_t>(first) * region.block_bytes;
    const auto size = static_cast<std::size_t>(end - first) * region.block_bytes;
    return !is_stopping_.load(std::memory_order_relaxed) &&
           kernels::populate(region.data + begin, size);
  });
}

}  // namespace lmtp::model
