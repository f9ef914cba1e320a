// A limit on the bytes that what is of one kind may hold together: buffers of all connections, or
// controllers.
#pragma once

#include <atomic>
#include <cstddef>

namespace lmtp {

// Outlives its parts. Any thread.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  std::size_t max_bytes() const { return max_bytes_; }
  bool is_half_used() const { return used_bytes_.load(std::memory_order_relaxed) > max_bytes_ / 2; }

  // The bytes of one, such as a connection; its destructor gives them back. Any thread.
  class Part {
   public:
    explicit Part(MemoryLimit& limit) : limit_(limit) {}
    ~Part() { set(0); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // Sets the bytes of this part. False: all parts together exceed the limit.
    bool set(std::size_t bytes) {
      const std::size_t change = bytes - bytes_.exchange(bytes);  // wraps if it is less
      return limit_.used_bytes_.fetch_add(change) + change <= limit_.max_bytes_;
    }

    // Has `after` bytes in the place of `before` of its own. False where that is more and this part
    // would have more than three quarters of what the others leave, so that there is always a place
    // for another's: nothing has changed then.
    bool replace(std::size_t before, std::size_t after) {
      const std::size_t change = after - before;  // wraps if it is less
      const std::size_t own = bytes_.fetch_add(change) + change;
      const std::size_t all = limit_.used_bytes_.fetch_add(change) + change;
      const std::size_t left = limit_.max_bytes_ - all + own;  // by the others
      if (after <= before || (all <= limit_.max_bytes_ && own <= left - left / 4)) return true;
      bytes_.fetch_sub(change);
      limit_.used_bytes_.fetch_sub(change);
      return false;
    }

   private:
    MemoryLimit& limit_;
    std::atomic<std::size_t> bytes_ = 0;
  };

 private:
  const std::size_t max_bytes_;
  std::atomic<std::size_t> used_bytes_ = 0;
};

}  // namespace lmtp
