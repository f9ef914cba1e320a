#include "mailroom.h"

#include <algorithm>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "lmtp/base/runtime.h"

namespace lmtp::server {
namespace {

// Connections whose mail a drain task hands out before other handlers of its thread get their turn.
constexpr std::size_t kTurn = 16;
// With more than so many waiting, another drain task is worth its wake-up.
constexpr std::size_t kAlone = 4;
constexpr std::chrono::milliseconds kNoMemoryPause{1};

}  // namespace

void Mail::add(std::span<StreamEvent> events) {
  const std::lock_guard lock(mutex_);
  events_.ends.push_back(events_.all.size() + events.size());
  try {
    take_events(events, events_.all);
  } catch (...) {
    events_.ends.pop_back();
    throw;
  }
}

// What Asio allocates for a posted handler: one block, which is free again before the handler runs.
template <typename T>
struct Mailroom::DrainMemory {
  using value_type = T;

  explicit DrainMemory(DrainTask& task_in) noexcept : task(&task_in) {}
  template <typename U>
  DrainMemory(const DrainMemory<U>& other) noexcept : task(other.task) {}  // NOLINT: a conversion

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    if (count * sizeof(T) > task->memory.size()) return std::allocator<T>().allocate(count);
    return reinterpret_cast<T*>(task->memory.data());
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if (count * sizeof(T) > task->memory.size()) std::allocator<T>().deallocate(memory, count);
  }
  template <typename U>
  bool operator==(const DrainMemory<U>& other) const noexcept {
    return task == other.task;
  }

  DrainTask* task;
};

Mailroom::Mailroom(boost::asio::io_context& io, int num_drains)
    : io_(io), drains_(static_cast<std::size_t>(num_drains)) {}

Mailroom::~Mailroom() { clear(); }

void Mailroom::clear() {
  while (pop() != nullptr) continue;
}

void Mailroom::put(std::shared_ptr<Mail> mail) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(mail->is_waiting_, true)) return;
  Mail* const added = mail.get();
  (last_ == nullptr ? first_ : last_->next_) = std::move(mail);
  last_ = added;
  ++num_waiting_;
}

// With mutex_ held.
std::shared_ptr<Mail> Mailroom::pop() {
  std::shared_ptr<Mail> mail = std::move(first_);
  if (mail == nullptr) return nullptr;
  first_ = std::move(mail->next_);
  if (first_ == nullptr) last_ = nullptr;
  mail->is_waiting_ = false;
  --num_waiting_;
  return mail;
}

// With mutex_ held. Null: all are at work.
Mailroom::DrainTask* Mailroom::idle_task() {
  const auto idle = std::ranges::find(drains_, false, &DrainTask::is_busy);
  if (idle == drains_.end()) return nullptr;
  idle->is_busy = true;
  return &*idle;
}

// A drain task that is at work finds what has been put before it ends; one that is away may be for
// long.
void Mailroom::wake() noexcept {
  DrainTask* task = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto is_at_hand = [](const DrainTask& one) { return one.is_busy && !one.is_away; };
    if (first_ == nullptr || std::ranges::any_of(drains_, is_at_hand)) return;
    task = idle_task();
  }
  if (task == nullptr) return;
  num_wakeups_.fetch_add(1, std::memory_order_relaxed);
  post(*task);
}

void Mailroom::post(DrainTask& task) noexcept {
  boost::asio::post(io_, boost::asio::bind_allocator(DrainMemory<std::byte>(task),
                                                     [this, &task] { work(task); }));
}

void Mailroom::work(DrainTask& task) noexcept {
  DrainTask* helper = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (num_waiting_ > kAlone) helper = idle_task();
  }
  if (helper != nullptr) post(*helper);
  for (std::size_t i = 0; i < kTurn; ++i) {
    if (!hand_out(task)) break;
  }
  {
    const std::lock_guard lock(mutex_);
    task.is_away = false;
    if (first_ == nullptr) {
      task.is_busy = false;
      return;
    }
  }
  post(task);
}

// False: there was none, or it could not be handed out and waits again.
bool Mailroom::hand_out(DrainTask& task) {
  std::shared_ptr<Mail> mail;
  {
    const std::lock_guard lock(mutex_);
    mail = pop();
    task.is_away = mail != nullptr;
  }
  if (mail == nullptr) return false;
  try {
    mail->collect();
    return true;
  } catch (const std::exception&) {  // no memory, which a message would take too
    put(std::move(mail));
    runtime::sleep_for(kNoMemoryPause);
    return false;
  }
}

}  // namespace lmtp::server
