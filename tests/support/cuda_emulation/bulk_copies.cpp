#include "bulk_copies.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "emulator.h"

namespace lmtp::cuda_emulation {
namespace {

struct BulkCopy {
  void* to;
  const void* from;
  int num_bytes;
};

// One in shared memory. `pending` arrivals and bytes end the phase.
struct PhaseBarrier {
  int arrivals = 0;
  int pending = 0;
  std::int64_t bytes = 0;
  int parity = 0;  // of the phase that goes on
  std::vector<BulkCopy> copies = {};

  void advance() {
    if (pending > 0 || bytes != 0) return;
    pending = arrivals;
    parity ^= 1;
  }
  void land() {
    for (const BulkCopy& copy : copies) {
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.num_bytes));
      bytes -= copy.num_bytes;
    }
    copies.clear();
    advance();
  }
};

// Of the running cluster.
std::map<const void*, PhaseBarrier>& barriers() {
  static std::map<const void*, PhaseBarrier> all;
  return all;
}

PhaseBarrier& barrier_at(const void* at) {
  const auto found = barriers().find(at);
  if (found == barriers().end()) fail(where() + ": a barrier that was not begun");
  return found->second;
}

}  // namespace

void forget_barriers() { barriers().clear(); }

bool has_bulk_copies() {
  for (const auto& [at, barrier] : barriers()) {
    if (!barrier.copies.empty()) return true;
  }
  return false;
}

void init_barrier(const void* barrier, int arrivals) {
  check_shared(barrier);
  barriers()[barrier] = {.arrivals = arrivals, .pending = arrivals};
}

void arrive(const void* barrier, int num_bytes) {
  PhaseBarrier& there = barrier_at(barrier);
  if (there.pending == 0) fail(where() + ": more arrivals at a barrier than it has");
  there.bytes += num_bytes;
  --there.pending;
  there.advance();
}

void wait_for_phase(const void* barrier, int parity) {
  constexpr int kTurnsMax = 1'000'000;
  PhaseBarrier& there = barrier_at(barrier);
  for (int turn = 0; there.parity == parity; ++turn) {
    there.land();
    if (there.parity != parity) return;
    if (turn == kTurnsMax) fail(where() + ": a barrier's phase does not end");
    yield();
  }
}

void bulk_copy(void* to_shared, const void* from, int num_bytes, const void* barrier) {
  check_aligned(to_shared, 16);
  check_aligned(from, 16);
  check_aligned(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(num_bytes)), 16);
  check_shared(to_shared);
  check_shared(static_cast<std::byte*>(to_shared) + num_bytes - 1);
  PhaseBarrier& there = barrier_at(barrier);
  there.copies.push_back({to_shared, from, num_bytes});
  if (there.bytes >= num_bytes && copies_at_once()) there.land();
}

void check_unchanged(const void* now, const void* before, std::size_t num_bytes) {
  if (std::memcmp(now, before, num_bytes) != 0) fail(where() + ": an operand changed too early");
}

}  // namespace lmtp::cuda_emulation
