#include "lmtp/trace/trace.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "event_text.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "trace_file.h"

namespace lmtp::trace {
namespace {

// For how long records are gathered before they are written, and what a process that is killed
// loses of them.
constexpr std::chrono::milliseconds kGatherTime{100};
constexpr std::size_t kWriteBytes = std::size_t{64} << 10;
constexpr std::int64_t kEndBytes = 1024;  // kept for the last events and the array's end
// A write that SIGKILL cuts short ends where a page of the file ends.
constexpr std::size_t kPageBytes = 4096;
// Processes whose names wait to be written; more have none.
constexpr std::size_t kNamesMax = 256;

// No signal is for it: SIGTERM is for the thread that waits for it, and SIGXFSZ would end the
// process where the file reaches the system's limit (RLIMIT_FSIZE), of which write() tells as well.
template <typename Work>
std::thread start_without_signals(Work work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

// Its thread, and what it writes.
class Trace::Writer {
 public:
  Writer(TraceOptions options, std::atomic<bool>& is_on, TraceFile file)
      : options_(std::move(options)), is_on_(is_on), file_(std::move(file)) {
    queued_.reserve(options_.num_queued_max);
    taken_.reserve(options_.num_queued_max);
  }
  ~Writer() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    has_work_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  Result<void> start();
  void add(std::span<const Record> records);
  void add_dropped(std::size_t count);
  void add_process(int process, std::string_view name, std::string_view thread);

 private:
  struct Process {
    int number = 0;
    std::string name;
    std::string thread;
  };

  void run();
  bool take();
  void write_taken();
  void keep_in_page(std::size_t begin);
  void keep_events_within(std::size_t room);
  void write_out(std::size_t least);
  void write_dropped();
  void end(const std::string& why);

  const TraceOptions options_;
  std::atomic<bool>& is_on_;  // the Trace's

  std::mutex mutex_;
  std::condition_variable has_work_;
  // Guarded by the mutex.
  std::vector<Record> queued_;
  std::vector<Process> processes_;
  std::size_t num_dropped_ = 0;
  bool stopping_ = false;

  // The thread's.
  TraceFile file_;
  EventText text_{Clock::now()};
  std::string out_;  // events that are not in the file yet
  std::vector<Record> taken_;
  std::vector<Process> taken_processes_;
  std::size_t num_taken_dropped_ = 0;
  std::size_t num_all_dropped_ = 0;
  log::RateLimited dropped_log_;
  std::thread thread_;
};

Result<void> Trace::Writer::start() {
  text_.add_process(kServerProcess, "lmtp-serve", "server", out_);
  text_.add_moment("trace begins", "unix_time_us",
                   std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count(),
                   out_);
  const Result<void> written = file_.add(out_);
  out_.clear();
  if (!written) {
    return Error{ErrorCode::kUnavailable, "'" + options_.path +
                                              "' cannot be written: " + written.error().message +
                                              "; make room, or give another file"};
  }
  thread_ = start_without_signals([this] { run(); });
  return {};
}

void Trace::Writer::add(std::span<const Record> records) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t before = queued_.size();
    const std::size_t count = std::min(records.size(), options_.num_queued_max - before);
    const auto taken = records.first(count);
    queued_.insert(queued_.end(), taken.begin(), taken.end());
    num_dropped_ += records.size() - count;
    const std::size_t half = options_.num_queued_max / 2;
    wakes = before == 0 || (before < half && queued_.size() >= half);
  }
  if (wakes) has_work_.notify_one();
}

void Trace::Writer::add_dropped(std::size_t count) {
  const std::lock_guard lock(mutex_);
  num_dropped_ += count;
}

void Trace::Writer::add_process(int process, std::string_view name, std::string_view thread) {
  {
    const std::lock_guard lock(mutex_);
    if (processes_.size() >= kNamesMax) return;
    processes_.push_back({process, std::string(name), std::string(thread)});
  }
  has_work_.notify_one();
}

void Trace::Writer::run() {
  const Result<void> done = guarded([this]() -> Result<void> {
    for (bool stops = false; !stops && is_on_;) {
      stops = take();
      write_taken();
      if (stops) end("the server has stopped");
    }
    return {};
  });
  if (!done) log::error("--trace: " + done.error().message + "; tracing has ended");
  is_on_ = false;
}

void Trace::Writer::write_taken() {
  for (const Process& process : taken_processes_) {
    const std::size_t begin = out_.size();
    text_.add_process(process.number, process.name, process.thread, out_);
    keep_in_page(begin);
    write_out(kWriteBytes);
  }
  for (const Record& record : taken_) {
    const std::size_t begin = out_.size();
    text_.add(record, out_);
    keep_in_page(begin);
    write_out(kWriteBytes);
  }
  if (num_taken_dropped_ > 0) write_dropped();
  write_out(0);
}

// Blanks in front of an event that would lie in two pages of the file.
void Trace::Writer::keep_in_page(std::size_t begin) {
  const std::size_t room =
      kPageBytes - (static_cast<std::size_t>(file_.num_bytes()) + begin) % kPageBytes;
  const std::size_t size = out_.size() - begin;
  if (size > room && size <= kPageBytes) out_.insert(begin, room, ' ');
}

// True: nothing comes any more.
bool Trace::Writer::take() {
  taken_.clear();
  taken_processes_.clear();
  std::unique_lock lock(mutex_);
  has_work_.wait(lock, [this] { return stopping_ || !queued_.empty() || !processes_.empty(); });
  has_work_.wait_for(lock, kGatherTime,
                     [this] { return stopping_ || queued_.size() >= options_.num_queued_max / 2; });
  std::swap(queued_, taken_);
  std::swap(processes_, taken_processes_);
  num_taken_dropped_ = std::exchange(num_dropped_, 0);
  return stopping_;
}

void Trace::Writer::write_dropped() {
  num_all_dropped_ += num_taken_dropped_;
  const std::size_t begin = out_.size();
  text_.add_moment("events dropped", "count", static_cast<std::int64_t>(num_taken_dropped_), out_);
  keep_in_page(begin);
  dropped_log_.warning("--trace: " + std::to_string(num_taken_dropped_) +
                       " events are missing in '" + options_.path +
                       "', which could not be written as fast as they came");
}

void Trace::Writer::keep_events_within(std::size_t room) {
  const std::size_t end = std::string_view(out_).substr(0, room).rfind(",\n");
  out_.resize(end == std::string::npos ? 0 : end);
}

// Where there is so much.
void Trace::Writer::write_out(std::size_t least) {
  if (!is_on_) out_.clear();
  if (out_.empty() || out_.size() < least) return;
  const auto room = static_cast<std::size_t>(
      std::max<std::int64_t>(options_.max_bytes - kEndBytes - file_.num_bytes(), 0));
  const bool fits = out_.size() <= room;
  if (!fits) keep_events_within(room);
  const Result<void> written = file_.add(out_);
  out_.clear();
  if (!written) {
    file_.end();
    log::error("--trace: '" + options_.path + "' cannot be written: " + written.error().message +
               "; tracing has ended, serving goes on");
    is_on_ = false;
  } else if (!fits) {
    log::warning("--trace: '" + options_.path +
                 "' has reached --trace-limit; tracing has ended, "
                 "serving goes on");
    end("--trace-limit is reached");
  }
}

void Trace::Writer::end(const std::string& why) {
  if (!is_on_) return;
  text_.add_moment("trace ends", "why", why, out_);
  text_.add_moment("events dropped in all", "count", static_cast<std::int64_t>(num_all_dropped_),
                   out_);
  if (file_.add(out_)) file_.end();
  out_.clear();
  is_on_ = false;
}

Result<std::shared_ptr<Trace>> Trace::open(TraceOptions options) {
  Result<TraceFile> file = TraceFile::create(options.path);
  if (!file) return file.error();
  std::shared_ptr<Trace> trace(new Trace());
  trace->writer_ = std::make_unique<Writer>(std::move(options), trace->is_on_, *std::move(file));
  if (const Result<void> started = trace->writer_->start(); !started) return started.error();
  return trace;
}

Trace::Trace() = default;
Trace::~Trace() = default;

int Trace::add_process(std::string_view name, std::string_view thread) {
  const int process = next_process_.fetch_add(1, std::memory_order_relaxed);
  if (is_on()) writer_->add_process(process, name, thread);
  return process;
}

void Trace::add(std::span<const Record> records) {
  if (is_on() && !records.empty()) writer_->add(records);
}

void Trace::add_dropped(std::size_t count) {
  if (is_on()) writer_->add_dropped(count);
}

}  // namespace lmtp::trace
