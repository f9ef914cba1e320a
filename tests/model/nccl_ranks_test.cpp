// Ranks that NCCL connects, on emulated devices, whose memory is the host's: the sums of LocalRanks
// in bits, and the end of a group. NCCL itself needs two real devices (tools/gpu-check); here its
// calls are memory copies between threads that wait for each other.
#include "nccl_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device_under_test.h"
#include "kernels/memory.h"
#include "lmtp/model/local_ranks.h"
#include "run_ranks.h"

namespace lmtp {
namespace {

using model::Communicator;
using model::NcclApi;
using model::RankGroup;

constexpr int kAborted = 6;  // any but kSuccess

// What the communicators of a group share.
struct Copies {
  explicit Copies(int num_ranks) : count(num_ranks), from(static_cast<std::size_t>(num_ranks)) {}

  // Waits for all ranks, twice an exchange; false: the group was aborted.
  bool meet() {
    std::unique_lock lock(mutex);
    const long long meeting = num_meetings;
    if (++num_present == count) {
      num_present = 0;
      ++num_meetings;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return num_meetings != meeting || is_aborted; });
    return num_meetings != meeting;
  }

  const int count;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::map<int, const void*>> from;  // by rank: what it sends to each
  int num_present = 0;
  long long num_meetings = 0;
  bool is_aborted = false;
};

struct Comm {
  std::shared_ptr<Copies> copies;
  int rank = 0;
};

// Of the calling thread, between group_start and group_end.
struct Pending {
  Comm* comm = nullptr;
  std::map<int, const void*> sends;
  std::map<int, std::pair<void*, std::size_t>> receives;
};
thread_local Pending pending;

Comm& comm_of(NcclApi::Comm comm) { return *static_cast<Comm*>(comm); }

int comm_init_all(NcclApi::Comm* comms, int count, const int* devices) {
  const auto copies = std::make_shared<Copies>(count);
  for (int rank = 0; rank < count; ++rank) {
    if (devices[rank] != 1 + rank) return kAborted;
    comms[rank] = new Comm{copies, rank};
  }
  return NcclApi::kSuccess;
}

std::atomic<int> num_freed{0};

int comm_abort(NcclApi::Comm comm) {
  const std::unique_ptr<Comm> own(&comm_of(comm));
  const std::lock_guard lock(own->copies->mutex);
  own->copies->is_aborted = true;
  own->copies->changed.notify_all();
  ++num_freed;
  return NcclApi::kSuccess;
}

int send(const void* from, std::size_t, int, int peer, NcclApi::Comm comm, void*) {
  pending.comm = &comm_of(comm);
  pending.sends[peer] = from;
  return NcclApi::kSuccess;
}

int receive(void* to, std::size_t count, int type, int peer, NcclApi::Comm comm, void*) {
  if (type != NcclApi::kFloat) return kAborted;
  pending.comm = &comm_of(comm);
  pending.receives[peer] = {to, count * sizeof(float)};
  return NcclApi::kSuccess;
}

int group_start() {
  pending = {};
  return NcclApi::kSuccess;
}

int group_end() {
  if (pending.comm == nullptr) return NcclApi::kSuccess;
  const std::shared_ptr<Copies> copies = pending.comm->copies;
  const int rank = pending.comm->rank;
  {
    const std::lock_guard lock(copies->mutex);
    copies->from[static_cast<std::size_t>(rank)] = pending.sends;
  }
  if (!copies->meet()) return kAborted;
  for (const auto& [peer, to] : pending.receives) {
    std::memcpy(to.first, copies->from[static_cast<std::size_t>(peer)].at(rank), to.second);
  }
  return copies->meet() ? NcclApi::kSuccess : kAborted;
}

int all_gather(const void* from, void* to, std::size_t count, int type, NcclApi::Comm comm,
               void* stream) {
  const std::size_t num_bytes = count * sizeof(float);
  group_start();
  for (int peer = 0; peer < comm_of(comm).copies->count; ++peer) {
    send(from, count, type, peer, comm, stream);
    receive(static_cast<char*>(to) + static_cast<std::size_t>(peer) * num_bytes, count, type, peer,
            comm, stream);
  }
  return group_end();
}

constexpr NcclApi kCopying = {.comm_init_all = comm_init_all,
                              .comm_abort = comm_abort,
                              .all_gather = all_gather,
                              .send = send,
                              .receive = receive,
                              .group_start = group_start,
                              .group_end = group_end,
                              .error_text = [](int) { return "aborted"; }};

std::unique_ptr<RankGroup> connected(int count, std::chrono::milliseconds timeout) {
  std::vector<int> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), 1);
  auto made = model::make_nccl_ranks(kCopying, devices, timeout);
  if (!made.ok()) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

float element(int rank, std::int64_t row, std::int64_t column) {
  const auto number = static_cast<float>(rank * 7 + row * 5 + column);
  return std::sin(number) * std::exp(8.0F * std::cos(3.0F * number));
}

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

// Rank by rank what is in its matrix behind a sum, or a gather, gaps included.
std::vector<std::vector<float>> combined(RankGroup& ranks, const kernels::Backend& backend,
                                         const Shape& shape, bool is_sum) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks.count()));
  const auto errors = testing::run_ranks(ranks, [&](Communicator& communicator) {
    kernels::WorkerPool pool(1);
    kernels::Stream stream(backend, pool);
    const int rank = communicator.shard().rank;
    std::vector<float>& values = results[static_cast<std::size_t>(rank)];
    values.assign(static_cast<std::size_t>(shape.rows * shape.stride), 123.0F);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t i = 0; i < shape.columns; ++i) {
        values[static_cast<std::size_t>(row * shape.stride + i)] = element(rank, row, i);
      }
    }
    const kernels::Memory memory =
        kernels::Memory::allocate(backend, values.size() * sizeof(float));
    const bool on_device = backend.device != nullptr;
    const std::span<float> there(on_device ? memory.floats() : values.data(), values.size());
    if (on_device) testing::copy_to_device(there.data(), values.data(), there.size_bytes());
    const kernels::Matrix<float> y{there.data(), shape.rows, shape.columns, shape.stride};
    is_sum ? communicator.sum(stream, y) : communicator.gather(stream, y);
    stream.synchronize();
    if (on_device) testing::copy_to_host(values.data(), there.data(), there.size_bytes());
  });
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
  return results;
}

TEST(NcclRanksTest, SumsAndGathersHaveTheBitsOfLocalRanks) {
  // Whole and by rows, with gaps and without, of fewer rows than ranks.
  constexpr Shape kShapes[] = {
      {3, 37, 37}, {3, 37, 41}, {2, 70'000, 70'000}, {130, 700, 700}, {131, 700, 704}};
  for (const int count : {1, 2, 3, 4}) {
    const auto ranks = connected(count, std::chrono::seconds(30));
    model::LocalRanks local(count);
    for (int i = 0; i < 2 * static_cast<int>(std::size(kShapes)); ++i) {
      const Shape& shape = kShapes[i / 2];
      const auto got = combined(*ranks, testing::device_under_test(), shape, i % 2 == 0);
      const auto expected = combined(local, kernels::cpu_backend(), shape, i % 2 == 0);
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        ASSERT_TRUE(std::ranges::equal(
            got[rank], expected[rank], {}, [](float x) { return std::bit_cast<std::uint32_t>(x); },
            [](float x) { return std::bit_cast<std::uint32_t>(x); }))
            << count << " ranks, " << shape.rows << " rows, rank " << rank;
      }
    }
  }
}

std::vector<std::string> errors_where_one_fails(RankGroup& ranks, int failing, bool is_silent) {
  return testing::run_ranks(ranks, [&](Communicator& communicator) {
    kernels::WorkerPool pool(1);
    kernels::Stream stream(testing::device_under_test(), pool);
    const kernels::Memory memory =
        kernels::Memory::allocate(testing::device_under_test(), 64 * sizeof(float));
    for (int round = 0; round < 5; ++round) {
      if (round == 3 && communicator.shard().rank == failing) {
        if (is_silent) return;
        throw std::runtime_error("no memory");
      }
      communicator.sum(stream, kernels::make_matrix(memory.floats(), 4, 16));
    }
  });
}

TEST(NcclRanksTest, ARankThatFailsEndsTheGroupAndFreesIt) {
  num_freed = 0;
  const auto ranks = connected(3, std::chrono::seconds(30));
  const auto errors = errors_where_one_fails(*ranks, 1, false);
  EXPECT_EQ(errors, (std::vector<std::string>{"rank 1 failed: no memory", "no memory",
                                              "rank 1 failed: no memory"}));
  EXPECT_EQ(num_freed, 3);
}

TEST(NcclRanksTest, ARankThatIsBehindIsNamed) {
  const auto ranks = connected(3, std::chrono::milliseconds(200));
  const auto errors = errors_where_one_fails(*ranks, 2, true);
  EXPECT_EQ(errors, (std::vector<std::string>{"no sign of rank 2 for 200 ms",
                                              "no sign of rank 2 for 200 ms", ""}));
}

TEST(NcclLibraryTest, TheOneThatIsInstalledHasWhatRanksCall) {
  const auto nccl = model::load_nccl();
  if (!nccl.ok()) GTEST_SKIP() << nccl.error().message;
  EXPECT_STREQ((*nccl)->error_text(NcclApi::kSuccess), "no error");
  // Devices that no machine has.
  const auto made = model::make_nccl_ranks(**nccl, {1000, 1001}, std::chrono::seconds(30));
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(made.error().message.starts_with("NCCL cannot connect the devices: "))
      << made.error().message;
}

TEST(NcclRanksTest, AGroupThatIsNoLongerUsedIsFreed) {
  num_freed = 0;
  connected(4, std::chrono::seconds(30)).reset();
  EXPECT_EQ(num_freed, 4);
}

}  // namespace
}  // namespace lmtp
