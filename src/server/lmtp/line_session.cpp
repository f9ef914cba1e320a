#include "line_session.h"

#include <algorithm>
#include <cerrno>
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
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/utf8.h"
#include "net/write_queue.h"

namespace lmtp::server {
namespace {

using Clock = runtime::Clock;

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
// How often it is looked whether answers are still being prepared once all else has ended.
constexpr std::chrono::milliseconds kEndPoll{20};

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

  explicit Mailbox(std::shared_ptr<LineTransport> transport) : transport_(std::move(transport)) {}

  void deliver(std::span<StreamEvent> events) override {
    put([&](Contents& contents) { take_events(events, contents.events); });
  }

  // `work` adds to the contents.
  template <typename Work>
  void put(Work work) {
    {
      const std::lock_guard lock(mutex_);
      work(contents_);
    }
    transport_->wake();
  }

  Contents take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(contents_, {});
  }

 private:
  const std::shared_ptr<LineTransport> transport_;  // which it wakes
  std::mutex mutex_;
  Contents contents_;
};

}  // namespace

// What the session's thread does; all but mailbox() and the constructor on that thread.
class LineSession::Loop {
 public:
  Loop(ServerContext& context, LineOptions options, std::shared_ptr<LineTransport> transport)
      : context_(context),
        options_(std::move(options)),
        transport_(std::move(transport)),
        place_(context.registry),
        mailbox_(std::make_shared<Mailbox>(transport_)),
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
    const auto ready = transport_->wait({.input = !input_ended_ && !is_full(),
                                         .output = !failed_ && !queue_.empty(),
                                         .has_output = !failed_},
                                        wait_until());
    if (!ready) fail(ready.error().message);
    take_mail();
    if (ready && ready->input) read_some();
    if (ready && ready->output_closed && !failed_) fail("standard output is closed");
    if (ready && ready->output && !failed_) write_some();
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

  Clock::time_point wait_until() const {
    if (input_ended_ && !told_) return Clock::now() + kEndPoll;
    const Clock::time_point due = deadline_.value_or(Clock::time_point::max());
    const auto next = peer_.streams.next_deadline();
    return next ? std::min(due, next->time) : due;
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
    const ssize_t num_read = transport_->read(std::span(lines_).subspan(size));
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

  void write_some() {
    if (!queue_.writing()) front_ = &queue_.begin_write();
    const ssize_t written = transport_->write(std::string_view(*front_).substr(num_written_));
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
  const std::shared_ptr<LineTransport> transport_;
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

LineSession::LineSession(ServerContext& context, LineOptions options,
                         std::shared_ptr<LineTransport> transport)
    : loop_(std::make_unique<Loop>(context, std::move(options), std::move(transport))) {}

LineSession::~LineSession() { stop(Clock::now()); }

void LineSession::start() {
  thread_ = runtime::Thread([this] { loop_->run(); });
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
