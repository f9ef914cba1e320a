// Mailroom: brings what models deliver to the connections' strands, by one wake-up a step.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/request/event.h"

namespace lmtp::server {

class Mailroom;

// What has been delivered to one connection and not been taken by it, in the order in which it
// came. Owner: shared by the connection's sink and the mailroom.
class Mail {
 public:
  virtual ~Mail() = default;

  // Any thread; never blocks for long. Where it throws, none of them is added.
  void add(std::span<StreamEvent> events);

 protected:
  // Sees to it that take() is called on the connection's strand. On an io thread. Where it throws
  // it is called again.
  virtual void collect() = 0;

  // Gives the events to `use`, moved from, by one call for each add(); to be called on the strand.
  template <typename Use>
  void take(const Use& use) {
    Events taken = std::move(taken_);
    {
      const std::lock_guard lock(mutex_);
      std::swap(events_, taken);
    }
    std::size_t begin = 0;
    for (const std::size_t end : taken.ends) {
      use(std::span(taken.all).subspan(begin, end - begin));
      begin = end;
    }
    taken.all.clear();
    taken.ends.clear();
    // What a step brings has its memory in the next one; that of a burst is given back.
    if (taken.all.capacity() <= kKeptEvents) taken_ = std::move(taken);
  }

 private:
  friend class Mailroom;
  static constexpr std::size_t kKeptEvents = 256;
  struct Events {
    std::vector<StreamEvent> all;
    std::vector<std::size_t> ends;  // of what each add() brought
  };

  std::mutex mutex_;
  Events events_;
  Events taken_;  // of the strand; empty, for its memory
  // The mailroom's, with its mutex held.
  std::shared_ptr<Mail> next_;
  bool is_waiting_ = false;
};

// The mail of all connections waits in one list. wake() posts at most one handler to the io
// threads, a drain task, which hands the mail out; where there is much, it has others help it, one
// an io thread. Where a drain task is held up by a connection's mail, the next wake() posts another
// one. So an engine's thread pays for one post a step, whatever the number of connections. Owner:
// the ServerContext. Any thread, but for the constructor and clear().
class Mailroom final : public Waker {
 public:
  // num_drains: of io threads.
  Mailroom(boost::asio::io_context& io, int num_drains);
  ~Mailroom() override;
  Mailroom(const Mailroom&) = delete;
  Mailroom& operator=(const Mailroom&) = delete;

  // For mail that has been added to; it is handed out after the next wake(). Takes no memory.
  void put(std::shared_ptr<Mail> mail) noexcept;
  void wake() noexcept override;

  // Posts by wake(), so far.
  std::int64_t num_wakeups() const { return num_wakeups_.load(std::memory_order_relaxed); }

  // Forgets the mail that waits. REQUIRES: the io threads have ended.
  void clear();

 private:
  // A handler that is posted or runs; its memory is that of the posted one, so that a post takes
  // none and cannot fail.
  struct DrainTask {
    bool is_busy = false;
    bool is_away = false;  // with some connection's mail, which may take its time
    alignas(std::max_align_t) std::array<std::byte, 256> memory = {};
  };
  template <typename T>
  struct DrainMemory;

  std::shared_ptr<Mail> pop();
  DrainTask* idle_task();
  void post(DrainTask& task) noexcept;
  void work(DrainTask& task) noexcept;
  bool hand_out(DrainTask& task);

  boost::asio::io_context& io_;
  std::mutex mutex_;
  std::shared_ptr<Mail> first_;
  Mail* last_ = nullptr;
  std::size_t num_waiting_ = 0;
  std::vector<DrainTask> drains_;
  std::atomic<std::int64_t> num_wakeups_ = 0;
};

}  // namespace lmtp::server
