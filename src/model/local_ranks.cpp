#include "lmtp/model/local_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "host_rank.h"
#include "lmtp/base/check.h"

namespace lmtp::model {
namespace {

using Matrices = std::vector<kernels::Matrix<float>>;

// Columns [first, end) of every matrix become their sum, in order.
void sum_columns(const Matrices& matrices, std::int64_t first, std::int64_t end) {
  for (std::int64_t row = 0; row < matrices.front().rows; ++row) {
    float* total = matrices.front().row(row);
    for (std::size_t rank = 1; rank < matrices.size(); ++rank) {
      const float* part = matrices[rank].row(row);
      for (std::int64_t i = first; i < end; ++i) total[i] += part[i];
    }
    for (std::size_t rank = 1; rank < matrices.size(); ++rank) {
      std::copy(total + first, total + end, matrices[rank].row(row) + first);
    }
  }
}

}  // namespace

// Where the ranks meet, twice in each sum: when all have brought their matrices, and when all have
// summed their share of the columns, in everybody's matrix. A rank may leave the first meeting by
// an error, since nobody touches its matrix yet. It waits for the second one however long that
// takes: between the two the others do nothing but add, and they write to its matrix.
class LocalRanks::Meeting {
 public:
  Meeting(int count, std::chrono::milliseconds timeout)
      : timeout_(timeout), matrices_(static_cast<std::size_t>(count)) {}

  // The matrices of all ranks; valid until finish(). Throws RankError.
  const Matrices& begin(int rank, kernels::Matrix<float> y) {
    std::unique_lock lock(mutex_);
    throw_if_aborted();
    matrices_[static_cast<std::size_t>(rank)] = y;
    const long long begun = num_begun_;
    if (++num_present_ == count()) {
      num_present_ = 0;
      ++num_begun_;
      changed_.notify_all();
      return matrices_;
    }
    const auto is_over = [&] { return num_begun_ != begun || !abort_reason_.empty(); };
    // In parts: a process that was stopped for a while (SIGSTOP) loses one of them.
    bool has_come = false;
    for (int part = 0; part < kParts && !has_come; ++part) {
      has_come = changed_.wait_for(lock, timeout_ / kParts, is_over);
    }
    if (!has_come) end_group(absent_text());
    if (num_begun_ == begun) throw_if_aborted();
    return matrices_;
  }

  void finish() {
    std::unique_lock lock(mutex_);
    const long long finished = num_finished_;
    if (++num_present_ == count()) {
      num_present_ = 0;
      ++num_finished_;
      std::ranges::fill(matrices_, kernels::Matrix<float>{});
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return num_finished_ != finished; });
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    end_group(reason.empty() ? "a rank failed" : reason);
  }

 private:
  static constexpr int kParts = 8;

  int count() const { return static_cast<int>(matrices_.size()); }

  // Under the mutex, as all below.
  void end_group(const std::string& reason) {
    if (abort_reason_.empty()) abort_reason_ = reason;
    changed_.notify_all();
  }

  void throw_if_aborted() const {
    if (!abort_reason_.empty()) throw RankError(abort_reason_);
  }

  std::string absent_text() const {
    std::string absent;
    for (std::size_t rank = 0; rank < matrices_.size(); ++rank) {
      if (matrices_[rank].empty()) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
    }
    return "no sign of rank " + absent + " for " + std::to_string(timeout_.count()) + " ms";
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Matrices matrices_;    // by rank; empty: it has not come yet
  int num_present_ = 0;  // at the meeting that is next
  long long num_begun_ = 0;
  long long num_finished_ = 0;
  std::string abort_reason_;  // empty: not aborted
};

class LocalRanks::Rank : public HostRank {
 public:
  Rank(Meeting& meeting, Shard shard) : HostRank(shard), meeting_(meeting) {}

 private:
  const Matrices& meet(kernels::Matrix<float> y) {
    const Matrices& all = meeting_.begin(shard().rank, y);
    for (const kernels::Matrix<float>& other : all) {
      LMTP_CHECK(other.rows == y.rows && other.columns == y.columns, shard().rank, y.rows,
                 y.columns, other.rows, other.columns);
    }
    return all;
  }

  void gather_on_host(kernels::Matrix<float> y) override {
    const Matrices& all = meet(y);
    for (int rank = 0; rank < shard().count; ++rank) {
      const VocabShare share = vocab_share(y.columns, {rank, shard().count});
      for (std::int64_t row = 0; rank != shard().rank && row < y.rows; ++row) {
        const float* theirs = all[static_cast<std::size_t>(rank)].row(row) + share.first;
        std::copy(theirs, theirs + share.count, y.row(row) + share.first);
      }
    }
    meeting_.finish();
  }

  void sum_on_host(kernels::Matrix<float> y) override {
    const Matrices& all = meet(y);
    sum_columns(all, y.columns * shard().rank / shard().count,
                y.columns * (shard().rank + 1) / shard().count);
    meeting_.finish();
  }

  Meeting& meeting_;
};

LocalRanks::LocalRanks(int count, std::chrono::milliseconds timeout)
    : meeting_(std::make_unique<Meeting>(count, timeout)) {
  LMTP_CHECK(count >= 1 && count <= kRanksMax, count);
  for (int rank = 0; rank < count; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*meeting_, Shard{rank, count}));
  }
}

LocalRanks::~LocalRanks() = default;

void LocalRanks::abort(const std::string& reason) { meeting_->abort(reason); }

}  // namespace lmtp::model
