#include "nccl_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "kernels/memory.h"
#include "kernels/sum_parts.h"
#include "lmtp/base/check.h"

namespace lmtp::model {
namespace {

using Clock = std::chrono::steady_clock;
using Matrix = kernels::Matrix<float>;

// Up to here every rank gets the whole of every matrix and adds all of it, in one exchange. Beyond,
// each adds its share of the rows and sends that. Not measured yet.
constexpr std::int64_t kWholeBytesMax = 256 << 10;

// What the ranks share: their communicators, and why the group has ended.
class NcclLink {
 public:
  NcclLink(const NcclApi& nccl, std::vector<NcclApi::Comm> comms, std::chrono::milliseconds timeout)
      : nccl_(nccl),
        timeout_(timeout),
        calls_(comms.size()),
        comms_(std::move(comms)),
        num_begun_(comms_.size(), 0),
        watch_([this](const std::stop_token& stop) { watch(stop); }) {}

  ~NcclLink() {
    watch_.request_stop();
    watch_.join();
    end("the group is no longer used");
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Runs call(nccl, comm), which enqueues one exchange of that rank. Throws RankError.
  template <typename Call>
  void exchange(int rank, const Call& call) {
    const auto at = static_cast<std::size_t>(rank);
    int result = NcclApi::kSuccess;
    {
      // An abort waits for it: the communicator is freed by it.
      const std::lock_guard in_call(calls_[at]);
      {
        const std::lock_guard lock(mutex_);
        if (!reason_.empty()) throw RankError(reason_);
        ++num_begun_[at];
      }
      result = call(nccl_, comms_[at]);
    }
    if (result != NcclApi::kSuccess) end(std::string("NCCL: ") + nccl_.error_text(result));
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw RankError(reason_);
  }

  void end(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) return;
      reason_ = reason.empty() ? "a rank failed" : reason;
    }
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      // A call that waits inside of NCCL ends by the abort alone.
      const std::unique_lock in_call(calls_[i], kCallPatience);
      (void)nccl_.comm_abort(comms_[i]);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kCallPatience = std::chrono::seconds(1);

  // Nobody waits for another rank but the devices: so a thread looks whether one is behind.
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    std::optional<long long> behind;
    Clock::time_point since;
    while (!stop.stop_requested() && reason_.empty()) {
      const auto [least, most] = std::ranges::minmax_element(num_begun_);
      if (*least == *most) {
        behind.reset();
      } else if (behind != *least) {
        behind = *least;
        since = Clock::now();
      } else if (Clock::now() - since >= timeout_) {
        const auto rank = least - num_begun_.begin();
        lock.unlock();
        return end("no sign of rank " + std::to_string(rank) + " for " +
                   std::to_string(timeout_.count()) + " ms");
      }
      stopped_.wait_for(lock, stop, timeout_ / 4 + std::chrono::milliseconds(1),
                        [] { return false; });
    }
  }

  const NcclApi& nccl_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::timed_mutex> calls_;     // by rank: while it calls NCCL
  const std::vector<NcclApi::Comm> comms_;  // by rank; freed once there is a reason
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<long long> num_begun_;  // exchanges, by rank
  std::string reason_;                // the first; empty: it goes on
  std::jthread watch_;                // the last: it uses all others
};

class NcclRank : public Communicator {
 public:
  NcclRank(NcclLink& link, Shard shard) : link_(link), shard_(shard) {}

  Shard shard() const override { return shard_; }

  void sum(kernels::Stream& stream, Matrix y) override {
    const std::int64_t size = y.rows * y.columns;
    const bool is_small = size * static_cast<std::int64_t>(sizeof(float)) <= kWholeBytesMax;
    const Matrix own = without_gaps(stream, y);
    if (is_small || y.rows < shard_.count) {
      float* parts = reserve(stream, parts_, shard_.count * size);
      link_.exchange(shard_.rank, [&](const NcclApi& nccl, NcclApi::Comm comm) {
        return nccl.all_gather(own.data, parts, static_cast<std::size_t>(size), NcclApi::kFloat,
                               comm, stream.handle());
      });
      return add(stream, parts, y);
    }
    const Matrix mine = rows_of(own, shard_.rank);
    float* parts = reserve(stream, parts_, shard_.count * mine.rows * mine.columns);
    const auto part_of = [&](int rank) {
      return kernels::make_matrix(parts + rank * mine.rows * mine.columns, mine.rows, mine.columns);
    };
    exchange(
        stream, [&](int rank) { return rows_of(own, rank); }, part_of);
    copy(stream, mine, part_of(shard_.rank));
    add(stream, parts, mine);
    exchange(
        stream, [&](int) { return mine; }, [&](int rank) { return rows_of(own, rank); });
    if (own.data != y.data) copy(stream, own, y);
  }

  void gather(kernels::Stream& stream, Matrix y) override {
    const auto columns_of = [&](int rank) {
      const VocabShare share = vocab_share(y.columns, {rank, shard_.count});
      return y.slice_columns(share.first, share.count);
    };
    float* parts = reserve(stream, parts_, y.rows * y.columns);
    const auto part_of = [&](int rank) {
      const VocabShare share = vocab_share(y.columns, {rank, shard_.count});
      return kernels::make_matrix(parts + share.first * y.rows, y.rows, share.count);
    };
    const Matrix mine = part_of(shard_.rank);
    copy(stream, columns_of(shard_.rank), mine);
    exchange(
        stream, [&](int) { return mine; }, part_of);
    for (int rank = 0; rank < shard_.count; ++rank) {
      if (rank != shard_.rank) copy(stream, part_of(rank), columns_of(rank));
    }
  }

 private:
  // At least so many floats on the rank's device; contents undefined.
  static float* reserve(kernels::Stream& stream, kernels::Memory& memory, std::int64_t count) {
    const auto num_bytes = static_cast<std::size_t>(count) * sizeof(float);
    if (memory.num_bytes() < num_bytes) {
      stream.synchronize();
      memory = kernels::Memory::allocate(stream.backend(), num_bytes);
    }
    return memory.floats();
  }

  static void copy(kernels::Stream& stream, Matrix from, Matrix to) {
    kernels::cuda::sum_parts(stream, {.first = from, .part_stride = 0, .num_parts = 1, .y = to});
  }

  // y becomes the sum of as many parts of its shape, one after another.
  void add(kernels::Stream& stream, const float* parts, Matrix y) const {
    kernels::cuda::sum_parts(stream, {.first = kernels::make_matrix(parts, y.rows, y.columns),
                                      .part_stride = y.rows * y.columns,
                                      .num_parts = shard_.count,
                                      .y = y});
  }

  // y itself, or a copy.
  Matrix without_gaps(kernels::Stream& stream, Matrix y) {
    if (y.stride == y.columns) return y;
    const Matrix own =
        kernels::make_matrix(reserve(stream, own_, y.rows * y.columns), y.rows, y.columns);
    copy(stream, y, own);
    return own;
  }

  Matrix rows_of(Matrix y, int rank) const {
    const std::int64_t first = y.rows * rank / shard_.count;
    const std::int64_t end = y.rows * (rank + 1) / shard_.count;
    return {y.row(first), end - first, y.columns, y.stride};
  }

  // Sends each other rank outgoing(it), and receives incoming(it); matrices without gaps.
  template <typename Outgoing, typename Incoming>
  void exchange(kernels::Stream& stream, const Outgoing& outgoing, const Incoming& incoming) {
    const auto size = [](Matrix y) { return static_cast<std::size_t>(y.rows * y.columns); };
    link_.exchange(shard_.rank, [&](const NcclApi& nccl, NcclApi::Comm comm) {
      int result = nccl.group_start();
      for (int peer = 0; peer < shard_.count && result == NcclApi::kSuccess; ++peer) {
        if (peer == shard_.rank) continue;
        const Matrix from = outgoing(peer);
        const Matrix to = incoming(peer);
        result = nccl.send(from.data, size(from), NcclApi::kFloat, peer, comm, stream.handle());
        if (result != NcclApi::kSuccess) break;
        result = nccl.receive(to.data, size(to), NcclApi::kFloat, peer, comm, stream.handle());
      }
      const int ended = nccl.group_end();
      return result != NcclApi::kSuccess ? result : ended;
    });
  }

  NcclLink& link_;
  const Shard shard_;
  kernels::Memory own_;    // of a matrix with gaps
  kernels::Memory parts_;  // of all ranks
};

class NcclRanks : public RankGroup {
 public:
  NcclRanks(const NcclApi& nccl, std::vector<NcclApi::Comm> comms,
            std::chrono::milliseconds timeout)
      : count_(static_cast<int>(comms.size())), link_(nccl, std::move(comms), timeout) {
    for (int rank = 0; rank < count_; ++rank) {
      ranks_.push_back(std::make_unique<NcclRank>(link_, Shard{rank, count_}));
    }
  }

  int count() const override { return count_; }
  Communicator& operator[](int rank) override { return *ranks_[static_cast<std::size_t>(rank)]; }
  void abort(const std::string& reason) override { link_.end(reason); }

 private:
  const int count_;
  NcclLink link_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> make_nccl_ranks(const NcclApi& nccl,
                                                   const std::vector<int>& devices,
                                                   std::chrono::milliseconds timeout) {
  LMTP_CHECK(!devices.empty() && std::ssize(devices) <= kRanksMax, devices.size());
  std::vector<NcclApi::Comm> comms(devices.size());
  const int result =
      nccl.comm_init_all(comms.data(), static_cast<int>(devices.size()), devices.data());
  if (result != NcclApi::kSuccess) {
    return Error{ErrorCode::kUnavailable, std::string("NCCL cannot connect the devices: ") +
                                              nccl.error_text(result) +
                                              "; NCCL_DEBUG=INFO says more"};
  }
  return std::unique_ptr<RankGroup>(std::make_unique<NcclRanks>(nccl, std::move(comms), timeout));
}

}  // namespace lmtp::model
