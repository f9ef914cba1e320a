// KvPages: takes the pages of a KV cache from the system shortly before its blocks are first
// written, so that no step waits while they are cleared.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/model/kv_cache.h"

namespace lmtp::model {

// A thread of low priority, which sleeps while nothing new is used. It changes no contents, and so
// runs beside those who write. Blocks are handed out in ascending order until each has been used
// (cache::BlockPool), so that what comes next lies behind the last one. Where the system has no
// such call (Linux before 5.14), pages come as they are written.
// Owner: the agent, whose thread calls all but num_ready().
class KvPages {
 public:
  // Taken ahead: a quarter of what has been used, but at least and at most so many bytes (and what
  // is left of a huge page in each layer).
  static constexpr std::int64_t kAheadBytesMin = std::int64_t{16} << 20;
  static constexpr std::int64_t kAheadBytesMax = std::int64_t{256} << 20;

  // Begins with the first blocks. `cache`: in the host's memory; outlives this.
  explicit KvPages(const KvCache& cache);
  // Waits for one call to the system, of a few pages.
  ~KvPages();
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;

  // This block is used from now on, and those before it: what is behind them is made ready.
  // Ids beyond the cache have no pages and are let pass.
  void use(BlockId block);

  // Blocks [0, num_ready()) are used or have their pages. Any thread.
  int num_ready() const { return num_ready_.load(std::memory_order_acquire); }

  // Blocks that are made ready behind so many used ones.
  int num_ahead(int num_used) const;

 private:
  // Keys or values of a layer.
  struct Region {
    std::byte* data = nullptr;
    std::size_t block_bytes = 0;
  };

  void work();
  bool take(int first, int end) const;

  const int num_blocks_;
  const std::int64_t block_bytes_;  // over all layers
  int run_ = 1;                     // blocks of which a call takes the pages in one region
  std::vector<Region> regions_;
  int num_used_ = 0;  // of the agent's thread
  int num_asked_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  int used_ = 0;    // under the mutex
  int wanted_ = 0;  // as well
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int> num_ready_ = 0;
  std::thread thread_;
};

}  // namespace lmtp::model
