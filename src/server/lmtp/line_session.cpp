#include "line_session.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context.h"
#include "events.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "lmtp/base/utf8.h"
#include "net/write_queue.h"

namespace lmtp::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// How often it is looked whether answers are still being prepared once all else has ended.
constexpr int kEndPollMs = 20;

// What other threads leave for the session's. Engines may hold it for longer than the session
// lives.
class Mailbox : public EventSink {
 public:
  struct Contents {
    std::vector<StreamEvent> events;
    std::vector<std::string> messages;
    bool stop_reading = false;
    std::optional<Clock::time_point> deadline;  // of the end
  };

  Mailbox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    LMTP_CHECK(fd_ >= 0, "eventfd: no descriptor left");
  }
  ~Mailbox() override { ::close(fd_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void deliver(std::span<StreamEvent> events) override {
    put([&](Contents& contents) {
      std::move(events.begin(), events.end(), std::back_inserter(contents.events));
    });
  }

  // `work` adds to the contents.
  template <typename Work>
  void put(Work work) {
    {
      const std::lock_guard lock(mutex_);
      work(contents_);
    }
    const std::uint64_t one = 1;
    // Can only fail when 2^64 are unread.
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof(one));
  }

  // Readable while there is something to take.
  int fd() const { return fd_; }

  Contents take() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto num_read = ::read(fd_, &count, sizeof(count));
    const std::lock_guard lock(mutex_);
    return std::exchange(contents_, {});
  }

 private:
  const int fd_;
  std::mutex mutex_;
  Contents contents_;
};

}  // namespace

// What the session's thread does; all but mailbox() and the constructor on that thread.
class LineSession::Loop {
 public:
  Loop(ServerContext& context, LineOptions options)
      : context_(context),
        options_(std::move(options)),
        place_(context.registry),
        mailbox_(std::make_shared<Mailbox>()),
        peer_(place_.id(), context.operation_limits),
        queue_(context.registry, context.write_queues, context.options.max_write_queue_bytes,
               place_.id(), context.options.trace.get()) {
    const auto caller = std::make_shared<Caller>();
    caller->address = "stdin";
    caller->log_prompts = context.options.log_prompts;
    peer_.caller = caller;
    peer_.sink = mailbox_;
    peer_.send_later = [mailbox = mailbox_, later = later_](std::string message) {
      mailbox->put([&](auto& contents) { contents.messages.push_back(std::move(message)); });
    };
    num_idle_later_ = later_.use_count();
  }

  Mailbox& mailbox() { return *mailbox_; }

  void run() {
    context_.registry.add_client(place_.id());
    try {
      while (turn()) continue;
    } catch (const std::exception& e) {
      fail(std::string("the session over standard input and output failed: ") + e.what());
    }
    peer_.streams.cancel_all();
    context_.registry.remove_client(place_.id());
  }

 private:
  // Waits and does what is due; false at the end.
  bool turn() {
    const bool reads = !input_ended_ && !is_full();
    pollfd fds[] = {
        {mailbox_->fd(), POLLIN, 0},
        {reads ? options_.in_fd : -1, POLLIN, 0},
        {failed_ ? -1 : options_.out_fd, static_cast<short>(queue_.empty() ? 0 : POLLOUT), 0}};
    if (::poll(fds, 3, wait_ms()) < 0 && errno != EINTR) {
      fail(std::string("poll: ") + std::strerror(errno));
    }
    take_mail();
    if (fds[1].revents != 0) read_some();
    if (!failed_ && fds[2].revents != 0) write_some(fds[2].revents);
    handle_lines();
    const bool over = deadline_ && (is_idle() || failed_ || Clock::now() >= *deadline_);
    if (!over) tell_end();
    return !over;
  }

  bool is_full() const { return queue_.num_bytes() > context_.options.max_write_queue_bytes / 2; }

  // What was asked has been answered, and the answers are written.
  bool is_idle() const {
    return lines_.empty() && peer_.streams.size() == 0 && later_.use_count() <= num_idle_later_ &&
           queue_.empty();
  }

  int wait_ms() const {
    if (input_ended_ && !told_) return kEndPollMs;
    std::optional<Clock::time_point> due = deadline_;
    if (const auto next = peer_.streams.next_deadline()) {
      due = due ? std::min(*due, next->time) : next->time;
    }
    if (!due) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now());
    return std::max(0, static_cast<int>(left.count()));
  }

  void take_mail() {
    Mailbox::Contents contents = mailbox_->take();
    input_ended_ = input_ended_ || contents.stop_reading;
    if (contents.deadline) deadline_ = contents.deadline;
    if (contents.stop_reading) lines_.clear();
    std::vector<std::string> messages;
    context_.dispatcher.on_events(contents.events, peer_, messages);
    context_.dispatcher.end_overdue(Clock::now(), peer_, messages);
    std::move(contents.messages.begin(), contents.messages.end(), std::back_inserter(messages));
    send(std::move(messages));
  }

  void read_some() {
    const std::size_t size = lines_.size();
    lines_.resize(size + kReadBytes);
    const ssize_t num_read = ::read(options_.in_fd, lines_.data() + size, kReadBytes);
    lines_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(num_read, 0)));
    if (num_read > 0 || (num_read < 0 && (errno == EINTR || errno == EAGAIN))) return;
    input_ended_ = true;
    progress_ = Clock::now();
    if (!lines_.empty()) lines_ += '\n';  // the last line may have no end
  }

  // Those that are whole, while what they are answered has room.
  void handle_lines() {
    std::size_t begin = 0;
    while (!is_full() && !failed_) {
      const std::size_t end = lines_.find('\n', std::max(begin, num_searched_));
      if (end == std::string::npos) break;
      num_searched_ = 0;
      handle_line(std::string_view(lines_).substr(begin, end - begin));
      begin = end + 1;
    }
    lines_.erase(0, begin);
    if (is_full() || failed_) return;
    num_searched_ = lines_.size();
    if (lines_.size() <= context_.options.max_message_bytes) return;
    lines_.clear();
    num_searched_ = 0;
    if (std::exchange(skips_, true)) return;
    std::vector<std::string> answers;
    answer_msg_error({std::nullopt, too_long()}, answers);
    send(std::move(answers));
  }

  void handle_line(std::string_view line) {
    if (std::exchange(skips_, false)) return;  // the end of one that was too long
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) return;
    std::vector<std::string> answers;
    if (line.size() > context_.options.max_message_bytes) {
      answer_msg_error({std::nullopt, too_long()}, answers);
    } else if (!is_utf8(line)) {
      answer_msg_error({std::nullopt, "line: is not UTF-8; allowed is VERB SPACE JSON"}, answers);
    } else {
      context_.dispatcher.handle(line, peer_, answers);
    }
    send(std::move(answers));
  }

  std::string too_long() const {
    return "line: is longer than " + std::to_string(context_.options.max_message_bytes) +
           " bytes (--max-message-size)";
  }

  void send(std::vector<std::string> messages) {
    if (failed_) return;
    for (std::string& message : messages) {
      message += '\n';
      if (queue_.add(std::move(message))) continue;
      return fail("standard output is not read: more than " +
                  std::to_string(context_.options.max_write_queue_bytes) +
                  " bytes wait to be written (--max-write-queue)");
    }
  }

  // A pipe that can be written to takes so much without waiting.
  void write_some(int revents) {
    if ((revents & POLLOUT) == 0) return fail("standard output is closed");
    if (!queue_.writing()) front_ = &queue_.begin_write();
    const std::size_t num_bytes = std::min<std::size_t>(front_->size() - num_written_, PIPE_BUF);
    const ssize_t written = ::write(options_.out_fd, front_->data() + num_written_, num_bytes);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (written < 0) {
      return fail(std::string("standard output cannot be written: ") + std::strerror(errno));
    }
    progress_ = Clock::now();
    num_written_ += static_cast<std::size_t>(written);
    if (num_written_ < front_->size()) return;
    queue_.written();
    num_written_ = 0;
  }

  // Once: there is nothing more to do, or nothing has been written for long since the input ended.
  void tell_end() {
    if (told_ || !input_ended_ || deadline_) return;
    if (!is_idle() && Clock::now() < progress_ + options_.end_timeout) return;
    told_ = true;
    options_.on_end({});
  }

  void fail(const std::string& why) {
    if (std::exchange(failed_, true)) return;
    input_ended_ = true;
    peer_.streams.cancel_all();
    queue_.clear();
    if (!std::exchange(told_, true)) options_.on_end(Error{ErrorCode::kUnavailable, why});
  }

  ServerContext& context_;
  const LineOptions options_;
  ConnectionRegistry::Place place_;
  const std::shared_ptr<Mailbox> mailbox_;
  // Each answer that is being prepared on another thread holds one more reference.
  const std::shared_ptr<int> later_ = std::make_shared<int>();
  long num_idle_later_ = 0;
  Peer peer_;
  WriteQueue queue_;
  const std::string* front_ = nullptr;  // of the queue, while it is being written
  std::size_t num_written_ = 0;         // of it

  std::string lines_;             // what was read and not handled yet
  std::size_t num_searched_ = 0;  // of it, without a line's end
  bool skips_ = false;            // the line that is being read is too long
  bool input_ended_ = false;
  Clock::time_point progress_;  // the latest, once the input has ended
  std::optional<Clock::time_point> deadline_;
  bool told_ = false;
  bool failed_ = false;
};

LineSession::LineSession(ServerContext& context, LineOptions options)
    : loop_(std::make_unique<Loop>(context, std::move(options))) {}

LineSession::~LineSession() { stop(Clock::now()); }

void LineSession::start() {
  thread_ = std::thread([this] { loop_->run(); });
}

void LineSession::stop_reading() {
  loop_->mailbox().put([](auto& contents) { contents.stop_reading = true; });
}

void LineSession::stop(Clock::time_point deadline) {
  if (!thread_.joinable()) return;
  loop_->mailbox().put([&](auto& contents) {
    contents.stop_reading = true;
    contents.deadline = deadline;
  });
  thread_.join();
}

}  // namespace lmtp::server
