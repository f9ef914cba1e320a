#include "lmtp/aici/process_runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "process/runtime_process.h"
#include "process/steps.h"
#include "process/wire.h"

namespace lmtp::aici {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMargin{1000};         // of a command, beyond the controllers' limits
constexpr milliseconds kCompileTime{15'000};  // the runtime's own limit is 10 s
constexpr milliseconds kSideTime{5000};
constexpr milliseconds kWatchInterval{200};  // of a program of which nothing is asked
constexpr milliseconds kBackOffMax{30'000};
constexpr std::chrono::seconds kStableTime{60};  // after which the back-off begins anew

constexpr std::string_view kNoRequest = "controller: no such request was instantiated";

Error down(const std::string& reason) {
  return {ErrorCode::kUnavailable,
          "controller: the runtime is being started again (" + reason + ")"};
}

// An error of the side channel as that of a request: AICI's texts go on with a stack trace.
Error of_controller(Error error) {
  error.message = error.message.substr(0, error.message.find("\n\nStack backtrace"));
  if (!error.message.starts_with("controller: ")) error.message = "controller: " + error.message;
  const bool is_missing =
      error.code == ErrorCode::kInvalid && error.message.ends_with(" not found");
  if (is_missing) error.code = ErrorCode::kNotFound;
  return error;
}

class ProcessRuntime : public Runtime {
 public:
  ProcessRuntime(ProcessOptions options, std::unique_ptr<Trace> trace)
      : options_(std::move(options)), trace_(std::move(trace)), thread_([this] { run(); }) {}

  ~ProcessRuntime() override {
    is_ending_ = true;
    post([] {});
    thread_.join();
  }

  void upload(std::string wasm, Auth auth, Done<Result<ModuleInfo>> done) override {
    post([this, wasm = std::move(wasm), auth = std::move(auth), done = std::move(done)] {
      ask_side<ModuleInfo>(mk_module(wasm), auth, kCompileTime, read_module, done);
    });
  }

  void set_tags(std::string module_id, std::vector<std::string> tags, Auth auth,
                Done<Result<std::vector<TagInfo>>> done) override {
    post([this, module_id = std::move(module_id), tags = std::move(tags), auth = std::move(auth),
          done = std::move(done)] {
      ask_side<std::vector<TagInfo>>(aici::set_tags(module_id, tags), auth, kCompileTime, read_tags,
                                     done);
    });
  }

  void get_tags(Auth /*auth*/, Done<Result<std::vector<TagInfo>>> done) override {
    post([this, done = std::move(done)] {
      ask_side<std::vector<TagInfo>>({{"op", "get_tags"}}, Auth{}, kSideTime, read_tags, done);
    });
  }

  void instantiate(InstantiateRequest request, Done<Result<Instantiated>> done) override {
    post([this, request = std::move(request), done = std::move(done)] {
      begin_instance(request, done);
    });
  }

  void bind(const std::string& request_id, Sequence sequence) override {
    post([this, request_id, sequence] {
      if (instances_.erase(request_id) == 0) {
        dead_[sequence] = reason_.empty() ? std::string(kNoRequest) : reason_;
      } else {
        steps_->bind(request_id, sequence, now());
      }
    });
  }

  void discard(const std::string& request_id) override {
    post([this, request_id] {
      if (instances_.erase(request_id) > 0) {
        steps_->discard(request_id, now());
      } else if (being_made_.contains(request_id)) {
        discarded_.insert(request_id);
      }
    });
  }

  void advance(Sequence sequence, Report report, Done<Advance> done) override {
    post([this, sequence, report = std::move(report), done = std::move(done)] {
      if (has(sequence)) return steps_->advance(sequence, report, done, now());
      done({.kind = Advance::Kind::kFail, .error = reason_of(sequence)});
    });
  }

  void choose(Sequence sequence, std::vector<Sequence> fork_group, Done<Choice> done) override {
    post([this, sequence, group = std::move(fork_group), done = std::move(done)] {
      if (has(sequence)) return steps_->choose(sequence, group, done, now());
      done({.kind = Choice::Kind::kFail, .error = reason_of(sequence)});
    });
  }

  void fork(Sequence parent, std::vector<Sequence> children) override {
    post([this, parent, children = std::move(children)] {
      if (has(parent)) return steps_->fork(parent, children, now());
      for (const Sequence child : children) dead_[child] = reason_of(parent);
    });
  }

  void free(Sequence sequence) override {
    post([this, sequence] {
      if (has(sequence)) return steps_->free(sequence, now());
      dead_.erase(sequence);
    });
  }

 private:
  static Time now() { return std::chrono::steady_clock::now(); }

  // Runs it on the thread, in the order of calls.
  void post(std::function<void()> call) { (void)calls_.push_control(std::move(call)); }

  bool has(Sequence sequence) const { return steps_ != nullptr && steps_->has(sequence); }
  std::string reason_of(Sequence sequence) const {
    const auto found = dead_.find(sequence);
    return found == dead_.end() ? std::string(kNoRequest) : found->second;
  }

  void run() {
    while (!is_ending_) {
      if (process_ == nullptr && now() >= start_at_) start();
      for (const auto& call : calls_.wait_drain_until(wake_time())) call();
      if (process_ != nullptr) take_steps();
    }
    end({ErrorCode::kStopping, "the controllers' runtime is being stopped"});
    // What is left finds no process, and is answered so; what is asked in these answers, too.
    for (auto calls = calls_.drain(); !calls.empty(); calls = calls_.drain()) {
      for (const auto& call : calls) call();
    }
  }

  Time wake_time() const {
    if (process_ == nullptr) return start_at_;
    return std::min(steps_->next_time(), now() + kWatchInterval);
  }

  void start() {
    ready_at_ = Time::max();
    SideChannel::Handlers handlers;
    const std::uint64_t number = ++num_starts_;
    handlers.on_broken = [this, number](const Error& why) {
      post([this, number, why] {
        if (number == num_starts_) broken_ = why;
      });
    };
    handlers.on_late = [this, number](const Json& command) {
      const std::string* const request_id = find_json_text(command, "req_id");
      if (request_id == nullptr) return;
      post([this, number, id = *request_id] {
        if (number == num_starts_ && steps_ != nullptr) steps_->discard(id, now());
      });
    };
    Result<std::unique_ptr<RuntimeProcess>> started =
        RuntimeProcess::start(options_, trace_.get(), is_ending_, std::move(handlers));
    if (!started) return plan_start(started.error());
    process_ = *std::move(started);
    reason_.clear();
    ready_at_ = now();
    const StepOptions step_options{
        .vocab_size = options_.vocab_size,
        .runtime_vocab_size = process_->vocab_size(),
        .bias_bytes = process_->biases().size(),
        .answer_time = options_.step_time + options_.pre_step_time + kMargin};
    const bool is_a = process_->dialect() == Dialect::kA;
    steps_ = is_a ? make_steps_a(step_options) : make_steps_c(step_options);
    log::info("aicirt: " + options_.path + " runs (dialect " + (is_a ? "A" : "C") + ", pid " +
              std::to_string(process_->pid()) + ")");
  }

  void plan_start(const Error& why) {
    if (is_ending_) return;
    const bool was_stable = now() > std::min(ready_at_, Time::max() - kStableTime) + kStableTime;
    back_off_ =
        was_stable ? milliseconds(0) : std::clamp(back_off_ * 2, options_.back_off, kBackOffMax);
    start_at_ = now() + back_off_;
    reason_ = why.message;
    log::error("aicirt: " + options_.path + ": " + why.message + "; it is started again in " +
               std::to_string(back_off_.count()) + " ms");
  }

  // One command after the other while there is something to do.
  void take_steps() {
    Result<void> done;
    if (const std::string reason = process_->end_reason(); !reason.empty()) {
      done = Error{ErrorCode::kUnavailable, reason};
    } else if (broken_) {
      done = *std::exchange(broken_, {});
    } else {
      done = steps_->step(*process_, now());
    }
    if (done) return;
    end(done.error());
    plan_start(done.error());
  }

  // Everything that the program had fails.
  void end(const Error& why) {
    if (process_ == nullptr) return;
    process_->side().end(down(why.message));
    process_.reset();
    const std::string reason = "the runtime has failed: " + why.message;
    for (const Sequence sequence : steps_->fail_all(reason)) dead_[sequence] = reason;
    steps_.reset();
    instances_.clear();
    broken_.reset();
    reason_ = why.message;
  }

  template <typename T>
  void ask_side(Json command, const Auth& auth, milliseconds time,
                const std::function<Result<T>(const Json&)>& read, const Done<Result<T>>& done) {
    if (process_ == nullptr) return done(down(reason_));
    command["$auth"] = auth_json(auth);
    process_->side().ask(std::move(command), time, [read, done](Result<Json> data) {
      if (!data) return done(of_controller(data.error()));
      done(read(*data));
    });
  }

  void begin_instance(const InstantiateRequest& request, const Done<Result<Instantiated>>& done) {
    if (process_ == nullptr) return done(down(reason_));
    being_made_.insert(request.request_id);
    Json command = aici::instantiate(request);
    command["$auth"] = auth_json(request.auth);
    process_->side().ask(
        std::move(command), kSideTime + options_.init_time,
        [this, done, id = request.request_id, number = num_starts_](Result<Json> data) {
          post([this, done, id, number, data = std::move(data)] {
            end_instance(id, number, data, done);
          });
        });
  }

  void end_instance(const std::string& id, std::uint64_t number, const Result<Json>& data,
                    const Done<Result<Instantiated>>& done) {
    being_made_.erase(id);
    const bool is_discarded = discarded_.erase(id) > 0;
    if (!data) return done(of_controller(data.error()));
    if (process_ == nullptr || number != num_starts_) return done(down(reason_));
    Result<InstantiateAnswer> answer = read_instantiate(*data, process_->vocab_size());
    if (!answer) {
      broken_ = answer.error();
      return done(of_controller(answer.error()));
    }
    steps_->set_repeats_ff(!answer->is_plain);
    if (!answer->error.empty()) {
      steps_->discard(id, now());
      const std::string& logs = answer->value.log.logs;
      return done(of_controller(
          {ErrorCode::kInvalid, answer->error + (logs.empty() ? "" : "; its log: " + logs)}));
    }
    if (is_discarded) {
      steps_->discard(id, now());
    } else {
      instances_.insert(id);
    }
    done(std::move(answer->value));
  }

  const ProcessOptions options_;
  const std::unique_ptr<Trace> trace_;
  std::atomic<bool> is_ending_ = false;
  BoundedQueue<std::function<void()>> calls_{1};  // as control: callers have few under way

  // Of the thread.
  std::unique_ptr<RuntimeProcess> process_;  // null: ended, and started again at start_at_
  std::unique_ptr<Steps> steps_;             // of process_
  std::string reason_ = "it has not answered yet";
  std::uint64_t num_starts_ = 0;
  Time start_at_ = {};
  Time ready_at_ = Time::max();
  milliseconds back_off_{0};
  std::optional<Error> broken_;      // the side channel
  std::set<std::string> instances_;  // instantiated and not bound
  std::set<std::string> being_made_;
  std::set<std::string> discarded_;       // of being_made_
  std::map<Sequence, std::string> dead_;  // why, until they are freed
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Runtime>> make_process_runtime(ProcessOptions options) {
  const auto wrong = [](const std::string& what) { return Error{ErrorCode::kInvalid, what}; };
  if (access(options.path.c_str(), X_OK) != 0) {
    return wrong("--aicirt: " + options.path + " is no program that can be run");
  }
  constexpr int kMiBMax = 4095;  // lengths and offsets have 32 bits
  if (options.json_mib < 1 || options.json_mib > kMiBMax) {
    return wrong("--aicirt-json-size: allowed are 1 to 4095 MiB");
  }
  if (options.bias_mib < 1 || options.bias_mib > kMiBMax) {
    return wrong("--aicirt-bin-size: allowed are 1 to 4095 MiB");
  }
  if (options.back_off < milliseconds(1) || options.back_off > kBackOffMax) {
    return wrong("ProcessOptions::back_off: allowed are 1 to " +
                 std::to_string(kBackOffMax.count()) + " ms");
  }
  const std::size_t row_bytes = static_cast<std::size_t>(options.vocab_size) * sizeof(float);
  if ((static_cast<std::size_t>(options.bias_mib) << 20) <= row_bytes) {
    return wrong("--aicirt-bin-size: one row of the model's vocabulary takes " +
                 std::to_string(row_bytes) + " bytes; give more MiB");
  }
  std::unique_ptr<Trace> trace;
  if (!options.trace_path.empty()) {
    Result<std::unique_ptr<Trace>> opened = Trace::open(options.trace_path);
    if (!opened) return opened.error();
    trace = *std::move(opened);
  }
  return std::unique_ptr<Runtime>(
      std::make_unique<ProcessRuntime>(std::move(options), std::move(trace)));
}

}  // namespace lmtp::aici
