#include "gloo_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host_rank.h"
#include "lmtp/base/check.h"
#include "lmtp/libtorch/library.h"

namespace lmtp::model {
namespace {

using libtorch::GlooGroup;
using Floats = std::vector<float>;

// Up to here every rank gets the whole of every matrix and adds all of it: one exchange, whose
// latency is what a small one costs. Beyond, each adds its share of the columns and sends that.
constexpr std::int64_t kWholeBytesMax = 32 << 10;

// y [m, count] of columns [first, first + count), without gaps.
void pack(kernels::Matrix<float> y, VocabShare columns, Floats& to) {
  to.resize(static_cast<std::size_t>(y.rows * columns.count));
  float* next = to.data();
  for (std::int64_t row = 0; row < y.rows; ++row) {
    const float* from = y.row(row) + columns.first;
    next = std::copy(from, from + columns.count, next);
  }
}

void unpack(const Floats& from, VocabShare columns, kernels::Matrix<float> y) {
  const float* next = from.data();
  for (std::int64_t row = 0; row < y.rows; ++row) {
    std::copy(next, next + columns.count, y.row(row) + columns.first);
    next += columns.count;
  }
}

// What the ranks share: their connections, and why the group has ended.
class Link {
 public:
  Link(std::unique_ptr<GlooGroup> group, std::chrono::milliseconds timeout)
      : group_(std::move(group)), timeout_(timeout) {}

  // Throws RankError.
  void exchange(int rank, GlooGroup::Outgoing outgoing, GlooGroup::Incoming incoming) {
    throw_if_ended();
    const Result<void> done = group_->exchange(rank, outgoing, incoming);
    if (done) return;
    if (done.error().code == ErrorCode::kCancelled) {
      // Another rank's has ended before, which says why.
      std::unique_lock lock(mutex_);
      has_ended_.wait_for(lock, std::min(timeout_, kReasonWait), [&] { return !reason_.empty(); });
    }
    end(done.error().message);
    throw_if_ended();
  }

  void end(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) return;
      reason_ = reason.empty() ? "a rank failed" : reason;
    }
    has_ended_.notify_all();
    group_->abort();
  }

 private:
  static constexpr std::chrono::milliseconds kReasonWait = std::chrono::seconds(1);

  void throw_if_ended() const {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw RankError(reason_);
  }

  const std::unique_ptr<GlooGroup> group_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable has_ended_;
  std::string reason_;  // the first; empty: it goes on
};

class GlooRank : public HostRank {
 public:
  GlooRank(Link& link, Shard shard)
      : HostRank(shard), link_(link), parts_(static_cast<std::size_t>(shard.count)) {}

 private:
  void sum_on_host(kernels::Matrix<float> y) override {
    if (y.rows * y.columns * static_cast<std::int64_t>(sizeof(float)) <= kWholeBytesMax) {
      const VocabShare all{0, y.columns};
      pack(y, all, own_);
      for (Floats& part : parts_) part.resize(own_.size());
      exchange_own();
      add_parts();
      return unpack(own_, all, y);
    }
    outgoing_.resize(parts_.size());
    for (int rank = 0; rank < shard().count; ++rank) {
      pack(y, columns_of(y, rank), outgoing_[at(rank)]);
    }
    own_.swap(outgoing_[at(shard().rank)]);
    for (Floats& part : parts_) part.resize(own_.size());
    std::vector<std::span<const std::byte>> bytes;
    for (const Floats& part : outgoing_) bytes.push_back(std::as_bytes(std::span(part)));
    exchange(bytes);
    add_parts();
    share(y, [&](int rank) { return columns_of(y, rank); });
    unpack(own_, columns_of(y, shard().rank), y);
  }

  void gather_on_host(kernels::Matrix<float> y) override {
    const auto columns = [&](int rank) { return vocab_share(y.columns, {rank, shard().count}); };
    pack(y, columns(shard().rank), own_);
    share(y, columns);
  }

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  VocabShare columns_of(kernels::Matrix<float> y, int rank) const {
    const std::int64_t first = y.columns * rank / shard().count;
    return {first, y.columns * (rank + 1) / shard().count - first};
  }

  // own_, this rank's part, becomes the sum of all.
  void add_parts() {
    parts_[at(shard().rank)].swap(own_);
    own_ = parts_[0];
    for (std::size_t rank = 1; rank < parts_.size(); ++rank) {
      const float* part = parts_[rank].data();
      for (std::size_t i = 0; i < own_.size(); ++i) own_[i] += part[i];
    }
  }

  // Every other rank gets own_, which are this rank's columns of y, and y gets theirs.
  template <typename Columns>
  void share(kernels::Matrix<float> y, const Columns& columns) {
    for (int rank = 0; rank < shard().count; ++rank) {
      parts_[at(rank)].resize(static_cast<std::size_t>(y.rows * columns(rank).count));
    }
    exchange_own();
    for (int rank = 0; rank < shard().count; ++rank) {
      if (rank != shard().rank) unpack(parts_[at(rank)], columns(rank), y);
    }
  }

  // All get own_.
  void exchange_own() {
    const auto bytes = std::as_bytes(std::span(std::as_const(own_)));
    exchange(std::vector<std::span<const std::byte>>(parts_.size(), bytes));
  }
  // Each its own; from each comes its part.
  void exchange(const std::vector<std::span<const std::byte>>& outgoing) {
    std::vector<std::span<std::byte>> incoming;
    for (Floats& part : parts_) incoming.push_back(std::as_writable_bytes(std::span(part)));
    link_.exchange(shard().rank, outgoing, incoming);
  }

  Link& link_;
  Floats own_;                    // of this rank's columns, or of all
  std::vector<Floats> parts_;     // by rank, of the same columns
  std::vector<Floats> outgoing_;  // by rank, of its columns
};

class GlooRanks : public RankGroup {
 public:
  GlooRanks(std::unique_ptr<GlooGroup> group, int count, std::chrono::milliseconds timeout)
      : link_(std::move(group), timeout) {
    for (int rank = 0; rank < count; ++rank) {
      ranks_.push_back(std::make_unique<GlooRank>(link_, Shard{rank, count}));
    }
  }

  int count() const override { return static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) override { return *ranks_[static_cast<std::size_t>(rank)]; }
  void abort(const std::string& reason) override { link_.end(reason); }

 private:
  Link link_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> make_gloo_ranks(int count, std::chrono::milliseconds timeout) {
  LMTP_CHECK(count >= 1 && count <= kRanksMax, count);
  const Result<const libtorch::Library*> library = libtorch::load();
  if (!library) return library.error();
  auto group = (*library)->make_gloo_group(count, timeout);
  if (!group) return group.error();
  return std::unique_ptr<RankGroup>(std::make_unique<GlooRanks>(std::move(*group), count, timeout));
}

}  // namespace lmtp::model
