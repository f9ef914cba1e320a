#include "simulator.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "failing_allocations.h"
#include "lmtp/base/check.h"

namespace lmtp::simulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{8} << 20;  // of which few are touched
constexpr std::size_t kGuardBytes = 4096;
// More than any state of the simulation needs: something goes round in circles.
constexpr std::int64_t kEventsAtOnceMax = 1'000'000;
constexpr std::chrono::hours kTimeMax{4};
// A million seconds, so that no time is the clock's beginning, which stands for none.
constexpr Clock::time_point kBegin{std::chrono::seconds(1'000'000)};

void* map_stack() {
  void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LMTP_CHECK(memory != MAP_FAILED, "no memory for a stack");
  LMTP_CHECK(::mprotect(memory, kGuardBytes, PROT_NONE) == 0, "mprotect");
  return memory;
}

// What the runtime of exceptions keeps for each thread of the system.
struct ExceptionState {
  std::array<std::byte, 16> bytes = {};

  void swap() {
    void* const globals = abi::__cxa_get_globals();
    std::array<std::byte, 16> other = {};
    std::memcpy(other.data(), globals, other.size());
    std::memcpy(globals, bytes.data(), bytes.size());
    bytes = other;
  }
};

}  // namespace

struct Simulator::Fiber {
  std::uint64_t id = 0;
  std::function<void()> run;
  void* stack = nullptr;
  ucontext_t context = {};
  ExceptionState exceptions;
  const void* place = nullptr;  // where it waits
  bool is_ready = false;        // it has been woken
  std::uint64_t wait = 0;       // the number of its waits
  int allocations_left = 0;     // until one of it fails; 0: none does
  bool has_ended = false;
};

EnoughMemory::EnoughMemory() : left_(std::exchange(testing::allocations_left, 0)) {}
EnoughMemory::~EnoughMemory() { testing::allocations_left = left_; }

void fail(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", why.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

void expect(bool holds, const std::string& why) {
  if (!holds) fail(why);
}

Simulator::Simulator(std::uint64_t seed)
    : ties_(seed ^ 0x7135), bits_(seed ^ 0xB175), now_(kBegin) {}

Simulator::~Simulator() {
  for (void* const stack : stacks_) ::munmap(stack, kStackBytes);
}

std::int64_t Simulator::now_us() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(now_ - kBegin).count();
}

std::uint64_t Simulator::start(std::function<void()> run) {
  const EnoughMemory enough;
  auto fiber = std::make_unique<Fiber>();
  fiber->id = ++num_started_;
  fiber->run = std::move(run);
  if (stacks_.empty()) stacks_.push_back(map_stack());
  fiber->stack = stacks_.back();
  stacks_.pop_back();
  ::getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = static_cast<std::byte*>(fiber->stack) + kGuardBytes;
  fiber->context.uc_stack.ss_size = kStackBytes - kGuardBytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Simulator::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  push(*fiber, now_);
  fibers_.push_back(std::move(fiber));
  return num_started_;
}

void Simulator::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<Simulator*>(std::uintptr_t{high} << 32 | low);
  {
    const std::function<void()> run = std::move(self.current_->run);
    run();
  }
  self.current_->has_ended = true;
  self.wake(self.current_, true);  // who joins it
  self.leave();
}

void Simulator::push(Fiber& fiber, Clock::time_point time) {
  events_.push({time, ties_.bits(), ++num_events_, fiber.id, fiber.wait});
}

void Simulator::run(std::function<void()> main) {
  LMTP_CHECK(runtime::simulation == nullptr, "one at a time");
  runtime::simulation = this;
  start(std::move(main));
  while (!fibers_.empty()) {
    if (events_.empty()) fail("nothing can go on: every thread waits for another one");
    const Event event = events_.top();
    events_.pop();
    // The fiber may have gone on since, or have ended.
    Fiber* const fiber = find(event.fiber);
    if (fiber == nullptr || fiber->wait != event.wait) continue;
    if (event.time > now_) num_at_once_ = 0;
    if (++num_at_once_ > kEventsAtOnceMax) fail("something goes round in circles: no time passes");
    now_ = std::max(now_, event.time);
    if (now_ > kBegin + kTimeMax) fail("it does not end");
    resume(*fiber);
    if (!fiber->has_ended) continue;
    stacks_.push_back(fiber->stack);
    std::erase_if(fibers_, [&](const auto& one) { return one.get() == fiber; });
  }
  runtime::simulation = nullptr;
}

Simulator::Fiber* Simulator::find(std::uint64_t id) const {
  const auto at = std::ranges::find(fibers_, id, [](const auto& one) { return one->id; });
  return at == fibers_.end() ? nullptr : at->get();
}

void Simulator::resume(Fiber& fiber) {
  ++num_switches_;
  ++fiber.wait;
  fiber.place = nullptr;
  fiber.is_ready = false;
  current_ = &fiber;
  fiber.exceptions.swap();
  std::swap(testing::allocations_left, fiber.allocations_left);
  ::swapcontext(&main_, &fiber.context);
  std::swap(testing::allocations_left, fiber.allocations_left);
  fiber.exceptions.swap();
  current_ = nullptr;
}

void Simulator::leave() {
  Fiber& fiber = *current_;
  ::swapcontext(&fiber.context, &main_);
}

void Simulator::join(std::uint64_t thread) {
  for (;;) {
    Fiber* const fiber = find(thread);
    if (fiber == nullptr || fiber->has_ended) return;
    wait(fiber, Clock::time_point::max());
  }
}

std::uint64_t Simulator::current() noexcept { return current_ == nullptr ? 0 : current_->id; }

void Simulator::wait(const void* place, Clock::time_point until) {
  LMTP_CHECK(current_ != nullptr, "only threads of the simulation wait");
  const EnoughMemory enough;
  current_->place = place;
  if (until != Clock::time_point::max()) push(*current_, std::max(until, now_));
  leave();
}

void Simulator::wake(const void* place, bool all) noexcept {
  const EnoughMemory enough;
  std::vector<Fiber*> waiting;
  for (const auto& fiber : fibers_) {
    if (fiber->place == place && !fiber->is_ready) waiting.push_back(fiber.get());
  }
  if (waiting.empty()) return;
  if (!all) {
    const auto chosen = ties_.bits() % waiting.size();
    waiting = {waiting[chosen]};
  }
  for (Fiber* const fiber : waiting) {
    fiber->is_ready = true;
    const bool late = is_late_ && ties_.one_in(8);
    push(*fiber, now_ + std::chrono::microseconds(late ? ties_.below(3000) : ties_.below(20)));
  }
}

}  // namespace lmtp::simulation
