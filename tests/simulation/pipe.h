// Pipe: a connection in memory between a client of the simulation and a LineSession. Bytes travel
// in fragments and take their time; either side may be late, stall or vanish.
#pragma once

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/line_transport.h"
#include "simulator.h"

namespace lmtp::simulation {

struct PipeFaults {
  bool fragments = false;  // both ways
  bool delays = false;
  int capacity = 65536;  // bytes on their way to the client, of which no more are taken
};

// Owner: the client and the session. Threads of the simulation.
class Pipe final : public server::LineTransport {
 public:
  Pipe(Simulator& simulator, std::uint64_t seed, PipeFaults faults)
      : simulator_(simulator), random_(seed), faults_(faults) {}

  // The client's side.
  void send(const std::string& line) {
    if (is_reset_) return;
    std::string_view rest = line;
    while (!rest.empty()) {
      const auto most = static_cast<int>(rest.size());
      const int size = faults_.fragments ? random_.between(1, most) : most;
      to_server_.add(rest.substr(0, static_cast<std::size_t>(size)), arrival(to_server_));
      rest.remove_prefix(static_cast<std::size_t>(size));
    }
    wake_session();
  }
  // Sends nothing more, and reads on.
  void half_close() {
    input_ends_ = true;
    wake_session();
  }
  // As a connection that is cut: what is on its way is lost.
  void reset() {
    is_reset_ = true;
    to_server_ = {};
    to_client_ = {};
    wake_session();
    simulator_.wake(&to_client_, true);
  }
  // What has arrived; waits until something has, or until then. Empty where nothing came.
  std::string receive(Clock::time_point until) {
    for (;;) {
      std::string bytes = to_client_.take(simulator_.now(), static_cast<std::size_t>(-1));
      if (!bytes.empty()) {
        wake_session();  // there is room
        return bytes;
      }
      if (simulator_.now() >= until || is_reset_) return {};
      simulator_.wait(&to_client_, std::min(until, to_client_.next()));
    }
  }

  // The session's.
  Result<Ready> wait(const Wants& wants, Clock::time_point until) override {
    for (;;) {
      const bool has_input =
          is_reset_ || to_server_.next() <= simulator_.now() || (input_ends_ && to_server_.empty());
      const Ready ready{.input = wants.input && has_input,
                        .output = wants.output && !is_reset_ && room() > 0,
                        .output_closed = wants.has_output && is_reset_};
      const bool is_woken = std::exchange(is_woken_, false);
      if (is_woken || ready.input || ready.output || ready.output_closed) return ready;
      if (simulator_.now() >= until) return ready;
      simulator_.wait(&to_server_, wants.input ? std::min(until, to_server_.next()) : until);
    }
  }
  void wake() noexcept override {
    is_woken_ = true;
    wake_session();
  }
  ssize_t read(std::span<char> bytes) override {
    const std::string taken = to_server_.take(simulator_.now(), bytes.size());
    std::ranges::copy(taken, bytes.begin());
    const bool has_ended = is_reset_ || (input_ends_ && to_server_.empty());
    if (taken.empty() && !has_ended) return again();
    return static_cast<ssize_t>(taken.size());
  }
  ssize_t write(std::string_view bytes) override {
    if (is_reset_) {
      errno = EPIPE;
      return -1;
    }
    const int most =
        std::min<int>(room(), static_cast<int>(std::min<std::size_t>(bytes.size(), 4096)));
    if (most <= 0) return again();
    const int size = faults_.fragments ? random_.between(1, most) : most;
    to_client_.add(bytes.substr(0, static_cast<std::size_t>(size)), arrival(to_client_));
    simulator_.wake(&to_client_, true);
    return size;
  }

 private:
  // Bytes on their way, in their order.
  struct Way {
    std::deque<std::pair<Clock::time_point, std::string>> fragments;
    std::size_t num_bytes = 0;

    bool empty() const { return fragments.empty(); }
    Clock::time_point next() const {
      return fragments.empty() ? Clock::time_point::max() : fragments.front().first;
    }
    void add(std::string_view bytes, Clock::time_point arrival) {
      fragments.emplace_back(arrival, bytes);
      num_bytes += bytes.size();
    }
    std::string take(Clock::time_point now, std::size_t most) {
      std::string taken;
      while (!fragments.empty() && fragments.front().first <= now && taken.size() < most) {
        std::string& front = fragments.front().second;
        const std::size_t size = std::min(front.size(), most - taken.size());
        taken.append(front, 0, size);
        front.erase(0, size);
        if (front.empty()) fragments.pop_front();
      }
      num_bytes -= taken.size();
      return taken;
    }
  };

  static ssize_t again() {
    errno = EAGAIN;
    return -1;
  }
  int room() const { return faults_.capacity - static_cast<int>(to_client_.num_bytes); }
  void wake_session() noexcept { simulator_.wake(&to_server_, true); }
  Clock::time_point arrival(const Way& way) {
    const int most = faults_.delays ? (random_.one_in(20) ? 200'000 : 2'000) : 50;
    const Clock::time_point time =
        simulator_.now() + std::chrono::microseconds(random_.below(most));
    return way.empty() ? time : std::max(time, way.fragments.back().first);
  }

  Simulator& simulator_;
  Random random_;
  const PipeFaults faults_;
  Way to_server_;
  Way to_client_;
  bool is_woken_ = false;
  bool input_ends_ = false;
  bool is_reset_ = false;
};

}  // namespace lmtp::simulation
