#include "emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bulk_copies.h"
#include "place.h"

namespace lmtp::cuda_emulation {

void fail(const std::string& what) {
  std::fprintf(stderr, "CUDA emulation: %s\n", what.c_str());
  std::abort();
}

std::string where() {
  const Grid block = block_index();
  return "block " + std::to_string(block.x) + "," + std::to_string(block.y) + "," +
         std::to_string(block.z) + " thread " + std::to_string(thread_index());
}

namespace {

using kernels::cuda::kWarpSize;

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr std::size_t kGuardBytes = 4096;  // behind shared memory; must stay as it is
constexpr unsigned char kNoNumber = 0xFF;  // four of them are a NaN, of f32, bf16 and f16

struct Fiber {
  ucontext_t start;
  Place place;
  std::unique_ptr<std::byte[]> stack;
  int block = -1;   // of the cluster
  int thread = -1;  // of the block
  int num_meetings = 0;
  bool waited_for_grid = false;
  std::vector<std::vector<Copy>> copies;                     // groups in flight, then the open one
  std::vector<std::vector<std::function<void()>>> products;  // likewise
};

// Two sets of slots in turn: a lane that is one exchange ahead does not overwrite what others still
// read.
struct Warp {
  int num_waiting = 0;
  Meeting meeting = Meeting::kBarrier;  // of those that wait
  alignas(16) std::byte slots[2][kWarpSize][kExchangeStride];
};

struct Emulator {
  Place scheduler;
  std::vector<std::unique_ptr<Fiber>> fibers;  // kept for later launches
  std::vector<State> states;  // of the fibers: side by side, since all are looked at
  std::vector<Warp> warps;
  std::vector<int> order;     // thread at a place in the order
  std::vector<int> place_of;  // its inverse
  const std::function<void()>* thread = nullptr;
  LaunchShape shape;
  Grid block;        // the first of the cluster
  int current = -1;  // thread of the cluster
  Fiber none;
  Fiber* running = &none;
  std::vector<int> num_at_group_barrier;  // as num_at_barrier
  std::vector<int> num_at_barrier;        // by block of the cluster
  int num_at_cluster_barrier = 0;
  int num_done = 0;
  std::byte* shared = nullptr;  // of all blocks of the cluster, shared_stride each
  std::size_t shared_stride = 0;
  bool has_wgmma = false;
  int num_multiprocessors = 1;
  int cluster_max = kernels::cuda::kClusterMax;
  std::unordered_map<const void*, int> atomics;  // of this block, by address
  int atomics_max = 0;
  unsigned seed = 0;
  bool has_backward_sums = false;
  bool is_recording = false;
  bool is_lazy = false;
  std::deque<std::function<void()>> put_off;
  std::int64_t num_put = 0;
  std::vector<Launch> recorded;
  int num_launches = 0;
  std::size_t shared_bytes_max = kLeastSharedBytes;
  std::mt19937 random;
};

Emulator& emulator() {
  static thread_local Emulator one;  // each thread has a device of its own
  return one;
}

Fiber& me() { return *emulator().running; }
State& state(int thread) { return emulator().states[static_cast<std::size_t>(thread)]; }
void set_state_of_me(State state_now) { state(emulator().current) = state_now; }

int num_fibers() { return emulator().shape.num_threads * emulator().shape.cluster; }
// The running thread's block, counted within the cluster.
int my_block() { return me().block; }

std::byte* shared_of(int block) {
  return emulator().shared + emulator().shared_stride * static_cast<std::size_t>(block);
}

[[noreturn]] void fail_stuck() {
  const Emulator& e = emulator();
  const auto count_in = [](State wanted) {
    int count = 0;
    for (int i = 0; i < num_fibers(); ++i) count += state(i) == wanted ? 1 : 0;
    return std::to_string(count);
  };
  fail(where() + ": no thread can go on: " + count_in(State::kAtBarrier) +
       " threads wait at a block barrier, " + count_in(State::kAtGroupBarrier) +
       " at that of a group, " + count_in(State::kAtClusterBarrier) + " at that of a cluster, " +
       count_in(State::kInWarp) + " in a warp operation, and " + std::to_string(e.num_done) +
       " have left the kernel");
}

// Switches to the next thread that can run; from a thread, returns when it is its turn again.
void switch_from(Place& from) {
  Emulator& e = emulator();
  const int count = num_fibers();
  if (e.num_done == count) {
    switch_places(from, e.scheduler);
    return;
  }
  int place = e.current < 0 ? -1 : e.place_of[static_cast<std::size_t>(e.current)];
  for (int step = 0; step < count; ++step) {
    place = place + 1 == count ? 0 : place + 1;
    const auto next = static_cast<std::size_t>(e.order[static_cast<std::size_t>(place)]);
    if (e.states[next] == State::kReady) {
      e.current = static_cast<int>(next);
      e.running = e.fibers[next].get();
      switch_places(from, e.running->place);
      return;
    }
  }
  fail_stuck();
}

void finish_thread() {
  Fiber& self = me();
  if (!self.waited_for_grid) fail(where() + " ends without grid_dependency_wait()");
  for (const auto& group : self.copies) {
    if (!group.empty()) fail(where() + " ends with copies that it did not wait for");
  }
  if (self.products.size() > 1 || !self.products[0].empty()) {
    fail(where() + " ends with products that it did not wait for");
  }
  set_state_of_me(State::kDone);
  ++emulator().num_done;
}

// A fiber begins here, comes back at once, and then runs a thread of each block.
void fiber_main() {
  Emulator& e = emulator();
  switch_places(e.fibers.back()->place, e.scheduler);
  for (;;) {
    (*emulator().thread)();
    finish_thread();
    switch_from(me().place);
  }
}

[[gnu::noinline]] void start_fiber(ucontext_t& start) {
  if (__builtin_setjmp(emulator().scheduler.words) == 0) setcontext(&start);
}

void prepare_fibers(int count) {
  Emulator& e = emulator();
  while (static_cast<int>(e.fibers.size()) < count) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->stack.get();
    fiber->start.uc_stack.ss_size = kStackBytes;
    fiber->start.uc_link = nullptr;
    makecontext(&fiber->start, fiber_main, 0);
    e.fibers.push_back(std::move(fiber));
    start_fiber(e.fibers.back()->start);
  }
}

std::vector<int> some_order(int count) {
  Emulator& e = emulator();
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (e.seed != 0) std::shuffle(order.begin(), order.end(), e.random);
  return order;
}

void run_cluster() {
  Emulator& e = emulator();
  const int count = num_fibers();
  const auto num_blocks = static_cast<std::size_t>(e.shape.cluster);
  std::memset(e.shared, kNoNumber, e.shared_stride * num_blocks);
  e.order = some_order(count);
  e.place_of.resize(e.order.size());
  for (int i = 0; i < count; ++i) {
    e.place_of[static_cast<std::size_t>(e.order[static_cast<std::size_t>(i)])] = i;
    Fiber& fiber = *e.fibers[static_cast<std::size_t>(i)];
    fiber.block = i / e.shape.num_threads;
    fiber.thread = i % e.shape.num_threads;
    fiber.num_meetings = 0;
    fiber.waited_for_grid = false;
    fiber.copies.assign(1, {});
    fiber.products.assign(1, {});
  }
  e.warps.assign(static_cast<std::size_t>(count / kWarpSize), Warp{});
  e.states.assign(e.order.size(), State::kReady);
  e.current = -1;
  e.running = &e.none;
  forget_barriers();
  e.num_at_barrier.assign(num_blocks, 0);
  e.num_at_group_barrier.assign(num_blocks, 0);
  e.num_at_cluster_barrier = 0;
  e.num_done = 0;
  e.atomics.clear();
  switch_from(e.scheduler);
  if (has_bulk_copies()) fail(where() + ": a block ends with bulk copies under way");
  for (int block = 0; block < e.shape.cluster; ++block) {
    const std::byte* guard = shared_of(block) + e.shape.shared_bytes;
    if (std::any_of(guard, guard + kGuardBytes,
                    [](std::byte b) { return b != std::byte{kNoNumber}; })) {
      fail(where() + ": the block wrote beyond its " + std::to_string(e.shape.shared_bytes) +
           " bytes of shared memory");
    }
  }
}

}  // namespace

void set_order(unsigned seed) {
  emulator().seed = seed;
  emulator().random.seed(seed);
}

void set_shared_bytes_max(std::size_t num_bytes) { emulator().shared_bytes_max = num_bytes; }
std::size_t shared_bytes_max() { return emulator().shared_bytes_max; }

void set_backward_sums(bool backward) { emulator().has_backward_sums = backward; }
bool has_backward_sums() { return emulator().has_backward_sums; }

void set_cluster_max(int num_blocks) { emulator().cluster_max = num_blocks; }
int cluster_max() { return emulator().cluster_max; }

void set_num_multiprocessors(int count) { emulator().num_multiprocessors = count; }
int num_multiprocessors() { return emulator().num_multiprocessors; }

void set_wgmma(bool there) { emulator().has_wgmma = there; }
bool has_wgmma() { return emulator().has_wgmma; }

void begin_recording() {
  emulator().is_recording = true;
  emulator().recorded.clear();
}

bool is_recording() { return emulator().is_recording; }

std::vector<Launch> end_recording() {
  emulator().is_recording = false;
  return std::exchange(emulator().recorded, {});
}

void submit(const LaunchShape& shape, std::function<void()> thread) {
  if (emulator().is_recording) {
    emulator().recorded.push_back({shape, std::move(thread)});
  } else {
    put([shape, thread = std::move(thread)] { run(shape, thread); });
  }
}

void set_lazy(bool lazy) {
  catch_up(num_put());
  emulator().is_lazy = lazy;
}

void put(std::function<void()> work) {
  Emulator& e = emulator();
  if (e.is_recording) fail("work that is no launch is put while launches are recorded");
  ++e.num_put;
  e.put_off.push_back(std::move(work));
  if (!e.is_lazy) catch_up(e.num_put);
}

std::int64_t num_put() { return emulator().num_put; }
std::int64_t num_done() {
  return emulator().num_put - static_cast<std::int64_t>(emulator().put_off.size());
}

void catch_up(std::int64_t count) {
  while (num_done() < count && !emulator().put_off.empty()) {  // else of another thread, and done
    const std::function<void()> work = std::move(emulator().put_off.front());
    emulator().put_off.pop_front();
    work();
  }
}

int take_num_launches() { return std::exchange(emulator().num_launches, 0); }

int take_atomics_max() { return std::exchange(emulator().atomics_max, 0); }

void run(const LaunchShape& shape, const std::function<void()>& thread) {
  constexpr int kThreadsMax = 1024;
  constexpr int kGridSideMax = 65535;  // of y and z
  Emulator& e = emulator();
  const Grid& grid = shape.grid;
  if (shape.num_threads < 1 || shape.num_threads > kThreadsMax ||
      shape.num_threads % kWarpSize != 0 || shape.shared_bytes > shared_bytes_max() || grid.x < 1 ||
      grid.y < 1 || grid.z < 1 || grid.y > kGridSideMax || grid.z > kGridSideMax ||
      shape.cluster < 1 || shape.cluster > e.cluster_max || grid.z % shape.cluster != 0 ||
      (shape.cluster > 1 && !e.has_wgmma)) {
    fail("a launch of " + std::to_string(grid.x) + "x" + std::to_string(grid.y) + "x" +
         std::to_string(grid.z) + " blocks, " + std::to_string(shape.cluster) + " together, of " +
         std::to_string(shape.num_threads) + " threads and " + std::to_string(shape.shared_bytes) +
         " bytes");
  }
  e.shape = shape;
  e.thread = &thread;
  ++e.num_launches;
  prepare_fibers(shape.num_threads * shape.cluster);
  e.shared_stride = (shape.shared_bytes + kGuardBytes + 255) / 256 * 256;
  const std::size_t num_bytes = e.shared_stride * static_cast<std::size_t>(shape.cluster);
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::unique_ptr<std::byte, Free> shared(
      static_cast<std::byte*>(std::aligned_alloc(256, num_bytes)));
  e.shared = shared.get();
  for (const int index : some_order(grid.x * grid.y * grid.z / shape.cluster)) {
    e.block = {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y * shape.cluster};
    run_cluster();
  }
}

int thread_index() { return me().thread; }
int num_threads() { return emulator().shape.num_threads; }
Grid grid_size() { return emulator().shape.grid; }
Grid block_index() {
  const Grid& first = emulator().block;
  return {first.x, first.y, first.z + my_block()};
}

void block_barrier() {
  Emulator& e = emulator();
  const int block = my_block();
  int& num_there = e.num_at_barrier[static_cast<std::size_t>(block)];
  if (++num_there < e.shape.num_threads) {
    set_state_of_me(State::kAtBarrier);
    switch_from(me().place);
    return;
  }
  num_there = 0;
  const int first = block * e.shape.num_threads;
  for (int i = first; i < first + e.shape.num_threads; ++i) state(i) = State::kReady;
}

void group_barrier(int num_threads) {
  Emulator& e = emulator();
  const int block = my_block();
  if (thread_index() >= num_threads) fail(where() + ": not of the group of this barrier");
  int& num_there = e.num_at_group_barrier[static_cast<std::size_t>(block)];
  if (++num_there < num_threads) {
    set_state_of_me(State::kAtGroupBarrier);
    switch_from(me().place);
    return;
  }
  num_there = 0;
  const int first = block * e.shape.num_threads;
  for (int i = first; i < first + num_threads; ++i) state(i) = State::kReady;
}

void cluster_barrier() {
  Emulator& e = emulator();
  if (++e.num_at_cluster_barrier < num_fibers()) {
    set_state_of_me(State::kAtClusterBarrier);
    switch_from(me().place);
    return;
  }
  e.num_at_cluster_barrier = 0;
  for (int i = 0; i < num_fibers(); ++i) state(i) = State::kReady;
}

const void* address_in_block(const void* at, int block) {
  const std::ptrdiff_t offset = static_cast<const std::byte*>(at) - shared_of(my_block());
  if (block < 0 || block >= emulator().shape.cluster || offset < 0 ||
      offset >= static_cast<std::ptrdiff_t>(emulator().shape.shared_bytes)) {
    fail(where() + ": no shared memory of a block of the cluster");
  }
  return shared_of(block) + offset;
}

const std::byte* exchange(Meeting meeting, const void* mine, std::size_t num_bytes) {
  Emulator& e = emulator();
  Fiber& self = me();
  const int lane = e.current % kWarpSize;
  const int first = e.current - lane;
  Warp& warp = e.warps[static_cast<std::size_t>(e.current / kWarpSize)];
  auto& slots = warp.slots[self.num_meetings++ % 2];
  if (num_bytes > 0) std::memcpy(slots[lane], mine, num_bytes);
  if (warp.num_waiting > 0 && warp.meeting != meeting) {
    fail(where() + ": lanes of a warp meet in different operations");
  }
  warp.meeting = meeting;
  if (++warp.num_waiting < kWarpSize) {
    set_state_of_me(State::kInWarp);
    switch_from(self.place);
    return slots[0];
  }
  warp.num_waiting = 0;
  for (int i = first; i < first + kWarpSize; ++i) state(i) = State::kReady;
  return slots[0];
}

void check_shared(const void* at) { (void)address_in_block(at, my_block()); }

void* shared_memory() { return shared_of(my_block()); }

void count_atomic(const void* at) {
  Emulator& e = emulator();
  e.atomics_max = std::max(e.atomics_max, ++e.atomics[at]);
}

void check_aligned(const void* at, std::size_t alignment) {
  if (std::bit_cast<std::uintptr_t>(at) % alignment != 0) {
    fail(where() + ": an address is not a multiple of " + std::to_string(alignment));
  }
}

void check_exact(bool exact) {
  if (!exact) fail(where() + ": fma_pairs() has a sum that f32 does not hold");
}

void copy_async(void* to_shared, const void* from, bool wanted) {
  Emulator& e = emulator();
  check_aligned(to_shared, 16);
  check_aligned(from, 16);
  const auto* to = static_cast<const std::byte*>(to_shared);
  const std::byte* shared = shared_of(my_block());
  if (to < shared || to + 16 > shared + e.shape.shared_bytes) {
    fail(where() + ": an asynchronous copy to what is not the block's shared memory");
  }
  const Copy copy{to_shared, from, wanted};
  if (copies_at_once()) {
    copy.carry_out();
  } else {
    me().copies.back().push_back(copy);
  }
}

void commit_copies() { me().copies.emplace_back(); }

void wait_for_copies(int num_pending) {
  auto& copies = me().copies;
  while (static_cast<int>(copies.size()) - 1 > num_pending) {
    for (const Copy& copy : copies.front()) copy.carry_out();
    copies.erase(copies.begin());
  }
}

void put_product(std::function<void()> product) {
  me().products.back().push_back(std::move(product));
}

void commit_products() { me().products.emplace_back(); }

void wait_for_products(int num_pending) {
  auto& products = me().products;
  while (static_cast<int>(products.size()) - 1 > num_pending) {
    const auto group = std::move(products.front());
    products.erase(products.begin());
    for (const auto& product : group) product();
  }
}

void grid_dependency_wait() { me().waited_for_grid = true; }

void yield() { switch_from(me().place); }

bool copies_at_once() {
  Emulator& e = emulator();
  return e.seed != 0 && e.random() % 2 == 0;
}

}  // namespace lmtp::cuda_emulation
