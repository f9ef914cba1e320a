#include "live_request.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/guarded.h"

namespace lmtp::aici {

namespace {

constexpr std::chrono::milliseconds kAskAgain{5};
constexpr int kDeadlockRoundsMax = 3;

template <typename T>
T failure(std::string error) {
  T answer;
  answer.kind = T::Kind::kFail;
  answer.error = std::move(error);
  return answer;
}

// call(), whose exceptions (for lack of memory, as a rule) fail the sequence.
template <typename T, typename Call>
T answer_of(const Call& call) {
  Result<T> answer = guarded([&]() -> Result<T> { return call(); });
  return answer ? std::move(*answer) : failure<T>(answer.error().message);
}

bool says_nothing(const Advance& advance) {
  return advance.kind == Advance::Kind::kSuspend && advance.appended.empty() &&
         advance.log.logs.empty() && advance.log.storage.empty();
}

}  // namespace

Result<Instantiated> LiveRequest::start(const std::shared_ptr<const wasm::Module>& module,
                                        InstantiateRequest request) {
  return guarded([&]() -> Result<Instantiated> {
    Result<std::unique_ptr<Controller>> made =
        Controller::make(world_, module, std::move(request.arg), variables_);
    if (!made) return Error{made.error().code, "controller: " + made.error().message};
    Result<Instantiated> done = (*made)->init(request.prompt);
    if (!done) return Error{done.error().code, "controller: " + done.error().message};
    root_ = std::move(*made);
    return done;
  });
}

void LiveRequest::bind(Sequence sequence) {
  Live& live = live_[sequence];
  live.controller = std::move(root_);
  if (live.controller != nullptr) {
    live.controller->set_sequence(sequence);
  } else {
    live.error = "controller: the request has none";
  }
}

LiveRequest::Live* LiveRequest::find(Sequence sequence) {
  const auto found = live_.find(sequence);
  return found == live_.end() ? nullptr : &found->second;
}

template <typename T>
void LiveRequest::check_forks(T& answer, int num_forks) const {
  const int forks_max = world_->limits.forks_max;
  const auto num_live = static_cast<int>(live_.size());
  if (num_forks <= 1 || num_forks - 1 <= forks_max - num_live) return;
  CallLog log = std::move(answer.log);
  answer = failure<T>("too many forks: " + std::to_string(num_forks) + " beside " +
                      std::to_string(num_live - 1) + " other sequences; allowed are " +
                      std::to_string(forks_max) + " of a request");
  answer.log = std::move(log);
}

void LiveRequest::advance(Sequence sequence, const Report& report,
                          const Runtime::Done<Advance>& done) {
  Live* const live = find(sequence);
  if (live == nullptr || live->controller == nullptr) {
    done(failure<Advance>(live == nullptr ? "controller: no such sequence" : live->error));
    return;
  }
  if (live->is_suspended) {
    wait(*live, done);
    return;
  }
  num_rounds_ = 0;
  Advance answer = answer_of<Advance>([&] { return live->controller->advance(report); });
  check_forks(answer, answer.num_forks);
  live->is_suspended = answer.kind == Advance::Kind::kSuspend;
  done(std::move(answer));
  on_variables();
}

void LiveRequest::choose(Sequence sequence, const std::vector<Sequence>& fork_group,
                         const Runtime::Done<Choice>& done) {
  Live* const live = find(sequence);
  if (live == nullptr || live->controller == nullptr) {
    done(failure<Choice>(live == nullptr ? "controller: no such sequence" : live->error));
    return;
  }
  num_rounds_ = 0;
  Choice answer = answer_of<Choice>([&] { return live->controller->choose(fork_group); });
  check_forks(answer, static_cast<int>(answer.branches.size()));
  live->is_suspended = answer.kind == Choice::Kind::kSuspend;
  done(std::move(answer));
  on_variables();
}

void LiveRequest::fork(Sequence parent, const std::vector<Sequence>& children) {
  for (const Sequence child : children) {
    Live* const from = find(parent);
    Result<std::unique_ptr<Controller>> made =
        guarded([&]() -> Result<std::unique_ptr<Controller>> {
          if (from == nullptr || from->controller == nullptr) {
            return Error{ErrorCode::kInvalid, "its parent has failed"};
          }
          return from->controller->fork(child);
        });
    Live& live = live_[child];
    if (made) {
      live.controller = std::move(*made);
    } else {
      live.error = "controller: it cannot be forked: " + made.error().message;
    }
  }
}

void LiveRequest::free(Sequence sequence) {
  const auto found = live_.find(sequence);
  if (found == live_.end()) return;
  const Runtime::Done<Advance> waiting = std::move(found->second.waiting);
  live_.erase(found);
  if (waiting) waiting(failure<Advance>("controller: the sequence was freed"));
}

void LiveRequest::stop() { fail_waiting("controller: the server shuts down"); }

void LiveRequest::wait(Live& live, const Runtime::Done<Advance>& done) {
  live.waiting = done;
  if (is_timed_) return;
  is_timed_ = true;
  strands_.post_after(strand_, kAskAgain, [self = shared_from_this()] { self->on_time(); });
}

// Whether it goes on, or ends.
bool LiveRequest::ask_again(Live& live) {
  Advance answer = answer_of<Advance>([&] { return live.controller->advance({}); });
  check_forks(answer, answer.num_forks);
  if (says_nothing(answer)) return false;
  live.is_suspended = answer.kind == Advance::Kind::kSuspend;
  const bool goes_on = !live.is_suspended || !answer.appended.empty();
  std::exchange(live.waiting, nullptr)(std::move(answer));
  return goes_on;
}

void LiveRequest::ask_all_again() {
  num_writes_seen_ = variables_.num_writes();
  for (auto& [sequence, live] : live_) {
    if (live.waiting && ask_again(live)) num_rounds_ = 0;
  }
}

// Others than those that wait may have written.
void LiveRequest::on_variables() {
  if (variables_.num_writes() != num_writes_seen_) ask_all_again();
}

void LiveRequest::on_time() {
  is_timed_ = false;
  const bool all_wait = std::ranges::all_of(
      live_, [](const auto& each) { return static_cast<bool>(each.second.waiting); });
  if (all_wait && ++num_rounds_ > kDeadlockRoundsMax) {
    fail_waiting(kDeadlock);
    return;
  }
  ask_all_again();
  if (variables_.num_writes() != num_writes_seen_) num_rounds_ = 0;
  const bool any_waits = std::ranges::any_of(
      live_, [](const auto& each) { return static_cast<bool>(each.second.waiting); });
  if (!any_waits) return;
  is_timed_ = true;
  strands_.post_after(strand_, kAskAgain, [self = shared_from_this()] { self->on_time(); });
}

void LiveRequest::fail_waiting(const char* error) {
  for (auto& [sequence, live] : live_) {
    if (live.waiting) std::exchange(live.waiting, nullptr)(failure<Advance>(error));
  }
}

}  // namespace lmtp::aici
