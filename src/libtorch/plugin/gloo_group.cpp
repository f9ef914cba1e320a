#include "gloo_group.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lmtp::libtorch {
namespace {

using Clock = std::chrono::steady_clock;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::chrono::milliseconds kConnectTimeout = std::chrono::minutes(1);
constexpr std::uint32_t kTags = 1U << 30;

// A tensor of these bytes, which it does not own.
at::Tensor tensor_of(const std::byte* data, std::size_t size) {
  // c10d takes what it sends as what it may write to, too.
  return at::from_blob(const_cast<std::byte*>(data), {static_cast<std::int64_t>(size)}, at::kByte);
}

// libtorch adds lines with the place in its source.
std::string first_line(const std::string& what) { return what.substr(0, what.find('\n')); }

Error ended(const std::string& what) {
  return {ErrorCode::kCancelled, "gloo: " + first_line(what)};
}

Error not_connected(const std::string& what) {
  return {ErrorCode::kUnavailable, "the ranks cannot be connected by gloo: " + first_line(what)};
}

// One rank's end of the group.
class RankEnd {
 public:
  RankEnd(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks,
          std::chrono::milliseconds timeout)
      : rank_(rank), timeout_(timeout) {
    auto options = c10d::ProcessGroupGloo::Options::create(kConnectTimeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kLoopback));
    options->threads = 1;  // of its collectives, of which none is called
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, num_ranks, options);
  }

  Result<void> exchange(GlooGroup::Outgoing outgoing, GlooGroup::Incoming incoming) {
    const auto deadline = Clock::now() + timeout_;
    std::vector<int> peers;  // of each work that waits for one: those of the receiving
    const Result<void> begun = begin(outgoing, incoming, peers);
    const Result<void> done = begun ? finish(peers, deadline) : begun;
    const std::lock_guard lock(mutex_);
    works_.clear();  // it waits for what still reads or writes their memory
    return done;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    for (const auto& work : works_) work->abort();
  }

 private:
  // What is to be received first, so that it finds its place.
  Result<void> begin(GlooGroup::Outgoing outgoing, GlooGroup::Incoming incoming,
                     std::vector<int>& peers) {
    const std::lock_guard lock(mutex_);
    if (is_aborted_) return ended("the group has ended");
    const auto tag = static_cast<int>(num_exchanges_++ % kTags);
    for (int peer = 0; peer < std::ssize(incoming); ++peer) {
      const std::span<std::byte> bytes = incoming[static_cast<std::size_t>(peer)];
      if (peer == rank_ || bytes.empty()) continue;
      std::vector<at::Tensor> tensors{tensor_of(bytes.data(), bytes.size())};
      works_.push_back(group_->recv(tensors, peer, tag));
      peers.push_back(peer);
    }
    for (int peer = 0; peer < std::ssize(outgoing); ++peer) {
      const std::span<const std::byte> bytes = outgoing[static_cast<std::size_t>(peer)];
      if (peer == rank_ || bytes.empty()) continue;
      std::vector<at::Tensor> tensors{tensor_of(bytes.data(), bytes.size())};
      works_.push_back(group_->send(tensors, peer, tag));
      peers.push_back(peer);
    }
    return {};
  }

  // works_ is changed by this thread alone, so that it may be read here without the mutex.
  Result<void> finish(const std::vector<int>& peers, Clock::time_point deadline) {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      try {
        if (!works_[i]->wait(std::max(left, std::chrono::milliseconds(1)))) {
          return ended("the group has ended");
        }
      } catch (const std::exception& error) {
        if (Clock::now() < deadline) return ended(error.what());
        return Error{ErrorCode::kUnavailable, "no sign of rank " + std::to_string(peers[i]) +
                                                  " for " + std::to_string(timeout_.count()) +
                                                  " ms"};
      }
    }
    return {};
  }

  const int rank_;
  const std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::mutex mutex_;
  Works works_;  // that wait
  std::uint32_t num_exchanges_ = 0;
  bool is_aborted_ = false;
};

class ConnectedGroup : public GlooGroup {
 public:
  explicit ConnectedGroup(std::vector<std::unique_ptr<RankEnd>> ends) : ends_(std::move(ends)) {}

  Result<void> exchange(int rank, Outgoing outgoing, Incoming incoming) override {
    try {
      return ends_[static_cast<std::size_t>(rank)]->exchange(outgoing, incoming);
    } catch (const std::exception& error) {
      return ended(error.what());
    }
  }

  void abort() override {
    for (const auto& end : ends_) {
      try {
        end->abort();
      } catch (const std::exception&) {
        continue;  // its connections have failed already
      }
    }
  }

 private:
  std::vector<std::unique_ptr<RankEnd>> ends_;  // by rank
};

}  // namespace

// Each rank waits for the others to connect, so each has a thread.
Result<std::unique_ptr<GlooGroup>> connect_gloo(int num_ranks, std::chrono::milliseconds timeout) {
  const auto count = static_cast<std::size_t>(num_ranks);
  std::vector<std::unique_ptr<RankEnd>> ends(count);
  std::vector<std::string> errors(count);
  try {
    const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
    store->setTimeout(kConnectTimeout);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        try {
          ends[at] = std::make_unique<RankEnd>(store, rank, num_ranks, timeout);
        } catch (const std::exception& error) {
          errors[at] = error.what();
        }
      });
    }
  } catch (const std::exception& error) {
    return not_connected(error.what());
  }
  for (const std::string& error : errors) {
    if (!error.empty()) return not_connected(error);
  }
  return std::unique_ptr<GlooGroup>(std::make_unique<ConnectedGroup>(std::move(ends)));
}

}  // namespace lmtp::libtorch
