// What controllers were asked and have answered, kept as lines of JSON, and RecordedRuntime, which
// answers so again. tests/aici/calls has some of AICI's own controllers, which are not here:
//   {"vocab_size", "model"}       the first line
//   {"mask": n, "words": hex}     what the answers below name by its number
//   {"call": "instantiate", "controller", "arg", "prompt", "answer"}   begins a request, which has
//                                 one sequence; "text" is what its client was told
//   {"call": "advance", "report", "answer"}, {"call": "choose", "answer"}
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"

namespace lmtp::testing {

struct RecordedCalls {
  using Mask = std::vector<std::uint32_t>;

  Json head;
  std::map<int, Mask> masks;
  std::vector<std::vector<Json>> requests;  // of each its calls

  explicit RecordedCalls(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      Json entry = Json::parse(line);
      if (entry.contains("vocab_size")) {
        head = std::move(entry);
      } else if (entry.contains("mask")) {
        const auto words = entry.at("words").get<std::string>();
        Mask& mask = masks[entry.at("mask").get<int>()];
        for (std::size_t i = 0; i < words.size(); i += 8) {
          mask.push_back(static_cast<std::uint32_t>(std::stoul(words.substr(i, 8), nullptr, 16)));
        }
      } else {
        if (entry.at("call") == "instantiate") requests.emplace_back();
        requests.back().push_back(std::move(entry));
      }
    }
  }

  static std::vector<TokenId> tokens_of(const Json& from, const char* name) {
    return from.value(name, std::vector<TokenId>());
  }
  static aici::Report report_of(const Json& call) {
    const Json& from = call.at("report");
    aici::Report report;
    if (from.contains("sampled")) report.sampled = from.at("sampled").get<TokenId>();
    report.appended = tokens_of(from, "appended");
    return report;
  }
  static aici::Advance advance_of(const Json& call) {
    const Json& from = call.at("answer");
    aici::Advance answer;
    if (from.at("kind") == "stop") answer.kind = aici::Advance::Kind::kStop;
    answer.appended = tokens_of(from, "appended");
    return answer;
  }
  aici::Choice choice_of(const Json& call) const {
    aici::Choice answer;
    answer.branches.push_back({.mask = masks.at(call.at("answer").at("mask").get<int>())});
    return answer;
  }
};

// Several requests at once; of each controller and argument the calls are those of the recorded
// one. Any thread.
class RecordedRuntime : public aici::Runtime {
 public:
  // on_problem: what is asked is not what was recorded.
  RecordedRuntime(const std::string& path, std::function<void(const std::string&)> on_problem)
      : calls_(path), on_problem_(std::move(on_problem)) {}
  ~RecordedRuntime() override {
    if (!live_.empty()) on_problem_("a sequence was not freed");
  }

  void upload(std::string /*wasm*/, aici::Auth /*auth*/,
              Done<Result<aici::ModuleInfo>> done) override {
    done(Error{ErrorCode::kInvalid, "controller: only what was recorded is here"});
  }
  void set_tags(std::string /*module_id*/, std::vector<std::string> /*tags*/, aici::Auth /*auth*/,
                Done<Result<std::vector<aici::TagInfo>>> done) override {
    done(Error{ErrorCode::kInvalid, "controller: only what was recorded is here"});
  }
  void get_tags(aici::Auth /*auth*/, Done<Result<std::vector<aici::TagInfo>>> done) override {
    done(std::vector<aici::TagInfo>());
  }

  void instantiate(aici::InstantiateRequest request,
                   Done<Result<aici::Instantiated>> done) override {
    for (const std::vector<Json>& calls : calls_.requests) {
      const Json& first = calls.front();
      if (first.at("controller") != request.controller || first.at("arg") != request.arg) continue;
      if (first.at("prompt") != request.prompt) on_problem_("another prompt: " + first.dump());
      const std::lock_guard lock(mutex_);
      requests_[request.request_id] = {.calls = &calls};
      return done(aici::Instantiated{});
    }
    done(Error{ErrorCode::kNotFound, "controller: was not recorded with this argument"});
  }
  void bind(const std::string& request_id, aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    live_[sequence] = requests_.at(request_id);
    requests_.erase(request_id);
  }
  void discard(const std::string& request_id) override {
    const std::lock_guard lock(mutex_);
    requests_.erase(request_id);
  }

  void advance(aici::Sequence sequence, aici::Report report, Done<aici::Advance> done) override {
    const Json& call = next(sequence, "advance");
    if (call.is_null()) return done({.kind = aici::Advance::Kind::kFail, .error = "no such call"});
    const aici::Report wanted = RecordedCalls::report_of(call);
    if (report.appended != wanted.appended || report.num_dropped != 0 ||
        (report.sampled && report.sampled != wanted.sampled)) {
      on_problem_("another report: " + Json(report.appended).dump() + " for " + call.dump());
    }
    done(RecordedCalls::advance_of(call));
  }
  void choose(aici::Sequence sequence, std::vector<aici::Sequence> fork_group,
              Done<aici::Choice> done) override {
    const Json& call = next(sequence, "choose");
    if (call.is_null()) return done({.kind = aici::Choice::Kind::kFail, .error = "no such call"});
    if (fork_group.size() != 1) on_problem_("a group of " + std::to_string(fork_group.size()));
    done(calls_.choice_of(call));
  }
  void fork(aici::Sequence /*parent*/, std::vector<aici::Sequence> /*children*/) override {
    on_problem_("a fork");
  }
  void free(aici::Sequence sequence) override {
    const std::lock_guard lock(mutex_);
    const Live& live = live_.at(sequence);
    if (live.next != live.calls->size()) {
      on_problem_("freed after " + std::to_string(live.next) + " calls of " +
                  std::to_string(live.calls->size()));
    }
    live_.erase(sequence);
  }

 private:
  struct Live {
    const std::vector<Json>* calls = nullptr;
    std::size_t next = 1;  // behind the instantiate
  };

  // null: another one was recorded.
  const Json& next(aici::Sequence sequence, const char* name) {
    static const Json kNone;
    const std::lock_guard lock(mutex_);
    Live& live = live_.at(sequence);
    if (live.next < live.calls->size() && (*live.calls)[live.next].at("call") == name) {
      return (*live.calls)[live.next++];
    }
    on_problem_(std::string(name) + " as call " + std::to_string(live.next));
    return kNone;
  }

  const RecordedCalls calls_;
  const std::function<void(const std::string&)> on_problem_;
  std::mutex mutex_;
  std::map<std::string, Live> requests_;  // not bound yet; guarded by mutex_, as the next one
  std::map<aici::Sequence, Live> live_;
};

}  // namespace lmtp::testing
