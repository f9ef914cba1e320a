#include "process/side_channel.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "process/wire.h"

namespace lmtp::aici {
namespace {

// How long an answer is waited for before new questions are looked for.
constexpr std::chrono::milliseconds kSlice{2};
constexpr std::size_t kQuestionsMax = 4096;  // streams of a model, and their uploads

}  // namespace

SideChannel::SideChannel(std::unique_ptr<MessageArea> commands,
                         std::unique_ptr<MessageArea> answers, Trace* trace, Handlers handlers)
    : commands_(std::move(commands)),
      answers_(std::move(answers)),
      trace_(trace),
      handlers_(std::move(handlers)),
      queue_(kQuestionsMax),
      thread_([this] { run(); }) {}

SideChannel::~SideChannel() {
  if (thread_.joinable()) end({ErrorCode::kStopping, "the controllers' runtime is being stopped"});
}

void SideChannel::ask(Json command, std::chrono::milliseconds time, Answered answered) {
  Question question{std::move(command), std::chrono::steady_clock::now() + time,
                    std::move(answered)};
  if (queue_.try_push(std::move(question))) return;
  // It was not moved from. NOLINTNEXTLINE(bugprone-use-after-move)
  question.answered(Error{ErrorCode::kOverloaded, "controller: too many requests wait"});
}

void SideChannel::end(const Error& why) {
  end_ = why;
  is_ending_ = true;
  queue_.close();
  thread_.join();
}

void SideChannel::unlink() {
  commands_->unlink();
  answers_->unlink();
}

void SideChannel::run() {
  while (!is_ending_) {
    std::vector<Question> asked = pending_.empty() ? queue_.wait_drain() : queue_.drain();
    for (Question& question : asked) send(std::move(question));
    if (pending_.empty()) continue;
    Result<std::optional<std::string>> answer =
        answers_->receive(std::chrono::steady_clock::now() + kSlice);
    if (!answer) {
      break_off(answer.error());
    } else if (*answer) {
      take_answer(**answer);
    }
    end_late();
  }
  answer_all(end_);
  for (Question& question : queue_.drain()) question.answered(end_);
}

void SideChannel::send(Question question) {
  if (is_broken_) return question.answered(broken_);
  const std::string id = std::to_string(++num_asked_);
  question.command["$rid"] = id;
  const std::string text = wire_text(question.command);
  if (text.size() > commands_->bytes_max()) {
    return question.answered(Error{
        ErrorCode::kInvalid, "controller: a message of " + std::to_string(text.size()) +
                                 " bytes; allowed are at most " +
                                 std::to_string(commands_->bytes_max()) + " (--aicirt-json-size)"});
  }
  while (!commands_->send(text, std::chrono::steady_clock::now() + kSlice)) {
    if (!is_ending_ && std::chrono::steady_clock::now() < question.until) continue;
    return question.answered(
        is_ending_ ? end_
                   : Error{ErrorCode::kTimeout, "controller: the runtime takes no questions"});
  }
  pending_.emplace(id, std::move(question));
}

void SideChannel::take_answer(const std::string& text) {
  Result<Json> answer = parse_json_object(text, "the runtime's answer");
  if (!answer) return break_off(answer.error());
  const std::string* const id = find_json_text(*answer, "$rid");
  const auto found = id == nullptr ? pending_.end() : pending_.find(*id);
  if (found == pending_.end()) {
    log_.warning("aicirt: an answer to nothing that was asked: " + text.substr(0, 200));
    return;
  }
  const Question question = std::move(found->second);
  pending_.erase(found);
  if (trace_ != nullptr) trace_->write("-side", question.command, *answer);
  Result<Json> data = data_of(*std::move(answer));
  if (question.answered) {
    question.answered(std::move(data));
  } else if (data) {
    handlers_.on_late(question.command);
  }
}

// What was done for nobody is undone when its answer comes, if it ever does.
void SideChannel::end_late() {
  constexpr std::chrono::minutes kLate{1};
  const Time now = std::chrono::steady_clock::now();
  for (auto& [id, question] : pending_) {
    if (!question.answered || now < question.until) continue;
    std::exchange(question.answered, {})(
        Error{ErrorCode::kTimeout, "controller: the runtime does not answer in time"});
  }
  std::erase_if(pending_, [&](const auto& entry) { return now > entry.second.until + kLate; });
}

void SideChannel::answer_all(const Error& why) {
  for (auto& [id, question] : std::exchange(pending_, {})) {
    if (question.answered) question.answered(why);
  }
}

void SideChannel::break_off(const Error& why) {
  answer_all(why);
  is_broken_ = true;
  broken_ = why;
  handlers_.on_broken(why);
}

}  // namespace lmtp::aici
