#include "lmtp/model/local_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "kernels/device_api.h"
#include "kernels/memory.h"
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
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    const auto is_over = [&] { return num_begun_ != begun || !abort_reason_.empty(); };
    if (!changed_.wait_until(lock, deadline, is_over)) end_group(absent_text());
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

class LocalRanks::Rank : public Communicator {
 public:
  Rank(Meeting& meeting, Shard shard) : meeting_(meeting), shard_(shard) {}

  Shard shard() const override { return shard_; }

  void sum(kernels::Stream& stream, kernels::Matrix<float> y) override {
    on_host(stream, y, [this](kernels::Matrix<float> own) { sum_on_host(own); });
  }
  void gather(kernels::Stream& stream, kernels::Matrix<float> y) override {
    on_host(stream, y, [this](kernels::Matrix<float> own) { gather_on_host(own); });
  }

 private:
  // Calls combine(y), on a device with a copy of y, which is copied back.
  template <typename Combine>
  void on_host(kernels::Stream& stream, kernels::Matrix<float> y, const Combine& combine) {
    const kernels::DeviceApi* device = stream.device_api();
    if (device == nullptr) return combine(y);
    const auto num_bytes = static_cast<std::size_t>(y.rows * y.columns) * sizeof(float);
    if (staged_.num_bytes() < num_bytes) {
      stream.synchronize();
      staged_ = kernels::Memory::allocate_pinned(stream.backend(), num_bytes);
    }
    const auto staged = kernels::make_matrix(staged_.floats(), y.rows, y.columns);
    copy(y, staged, [&](float* from, float* to, std::size_t size) {
      device->copy_to_host(stream.handle(), to, from, size);
    });
    stream.synchronize();
    combine(staged);
    copy(y, staged, [&](float* to, float* from, std::size_t size) {
      device->copy_to_device(stream.handle(), to, from, size);
    });
  }

  // Row by row, or all at once.
  template <typename Copy>
  static void copy(kernels::Matrix<float> y, kernels::Matrix<float> staged, const Copy& copy_row) {
    const bool is_whole = y.stride == y.columns;
    const std::int64_t at_once = is_whole ? y.rows : 1;
    const auto size = static_cast<std::size_t>(at_once * y.columns) * sizeof(float);
    for (std::int64_t row = 0; row < y.rows; row += at_once) {
      copy_row(y.row(row), staged.row(row), size);
    }
  }

  const Matrices& meet(kernels::Matrix<float> y) {
    const Matrices& all = meeting_.begin(shard_.rank, y);
    for (const kernels::Matrix<float>& other : all) {
      LMTP_CHECK(other.rows == y.rows && other.columns == y.columns, shard_.rank, y.rows, y.columns,
                 other.rows, other.columns);
    }
    return all;
  }

  void gather_on_host(kernels::Matrix<float> y) {
    const Matrices& all = meet(y);
    for (int rank = 0; rank < shard_.count; ++rank) {
      const VocabShare share = vocab_share(y.columns, {rank, shard_.count});
      for (std::int64_t row = 0; rank != shard_.rank && row < y.rows; ++row) {
        const float* theirs = all[static_cast<std::size_t>(rank)].row(row) + share.first;
        std::copy(theirs, theirs + share.count, y.row(row) + share.first);
      }
    }
    meeting_.finish();
  }

  void sum_on_host(kernels::Matrix<float> y) {
    const Matrices& all = meet(y);
    sum_columns(all, y.columns * shard_.rank / shard_.count,
                y.columns * (shard_.rank + 1) / shard_.count);
    meeting_.finish();
  }

  Meeting& meeting_;
  const Shard shard_;
  kernels::Memory staged_;  // page-locked, of a device's matrix
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
