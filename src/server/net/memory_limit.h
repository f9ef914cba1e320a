// What one kind of buffers of all connections together may hold.
#pragma once

#include <atomic>
#include <cstddef>

namespace lmtp::server {

// Owner: the server's context. Any thread.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  std::size_t max_bytes() const { return max_bytes_; }
  bool is_half_used() const { return used_bytes_.load(std::memory_order_relaxed) > max_bytes_ / 2; }

  // What one connection holds; given back with its life. Owner: the connection. Any thread.
  class Part {
   public:
    explicit Part(MemoryLimit& limit) : limit_(limit) {}
    ~Part() { set(0); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // It is so much from now on. False: all together hold more than the limit.
    bool set(std::size_t bytes) {
      const std::size_t change = bytes - bytes_.exchange(bytes);  // wraps where it is less
      return limit_.used_bytes_.fetch_add(change) + change <= limit_.max_bytes_;
    }

   private:
    MemoryLimit& limit_;
    std::atomic<std::size_t> bytes_ = 0;
  };

 private:
  const std::size_t max_bytes_;
  std::atomic<std::size_t> used_bytes_ = 0;
};

}  // namespace lmtp::server
