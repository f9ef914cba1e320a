// ScriptedRuntime: a Runtime whose controllers are scripts, and which checks what it is told.
//
// A request's argument is a JSON list. Each entry is what a sequence does next:
//   {"ff": [ids]}                 before a choice: tokens come behind the sequence
//   {"fork": [[..], [..]]}        before a choice: one way on for each script
//   {"wait": "name"}              until another sequence of the request sets it
//   {"stop": true}, {"error": ".."}
//   {"allow": [ids]}, {"any": true}, with {"temp": t} and {"when": {"tokens", "drop", "ff",
//   "keeps"}}
//   {"splice": [ids], "drop": n}  nothing is drawn
//   {"branches": [[..], [..]]}    each script's first entry is a branch
//   {"pause": true}               a choice of waiting, once
// and any of them with {"log": ".."} and {"set": ["name", "value"]}. Behind the last one it stops.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"

namespace lmtp::testing {

class ScriptedRuntime : public aici::Runtime {
 public:
  using Advance = aici::Advance;
  using Choice = aici::Choice;
  using Sequence = aici::Sequence;

  // on_problem: what was told does not fit what was said.
  ScriptedRuntime(int vocab_size, std::function<void(const std::string&)> on_problem)
      : vocab_size_(vocab_size), on_problem_(std::move(on_problem)) {}
  // Whatever was not freed is a problem.
  ~ScriptedRuntime() override {
    for (auto& [id, sequence] : sequences_) problem(id, "was not freed");
    for (const auto& [id, script] : requests_) on_problem_("request " + id + " was not claimed");
  }

  void upload(std::string wasm, aici::Auth auth, Done<Result<aici::ModuleInfo>> done) override {
    if (wasm.empty()) return done(Error{ErrorCode::kInvalid, "controller: it is empty"});
    const auto size = static_cast<std::int64_t>(wasm.size());
    tags_.push_back({auth.user + ".last", "aa" + std::to_string(size), 1, auth.user, size, size});
    done(aici::ModuleInfo{"aa" + std::to_string(size), size, 2 * size, 3});
  }
  void set_tags(std::string module_id, std::vector<std::string> tags, aici::Auth auth,
                Done<Result<std::vector<aici::TagInfo>>> done) override {
    std::vector<aici::TagInfo> set;
    for (const std::string& tag : tags) {
      if (!auth.is_admin && !tag.starts_with(auth.user + ".")) {
        return done(Error{ErrorCode::kInvalid, "controller: permission denied for tag name"});
      }
      set.push_back({tag, module_id, 7, auth.user, 8, 9});
    }
    done(set);
  }
  // Whatever they are, none is left.
  void remove_tags(std::vector<std::string> /*tags*/, aici::Auth /*auth*/,
                   Done<Result<std::vector<aici::TagInfo>>> done) override {
    done(std::vector<aici::TagInfo>());
  }
  void get_tags(aici::Auth /*auth*/, Done<Result<std::vector<aici::TagInfo>>> done) override {
    done(tags_);
  }

  void instantiate(aici::InstantiateRequest request,
                   Done<Result<aici::Instantiated>> done) override {
    if (request.controller != "script") {
      return done(Error{ErrorCode::kNotFound, "tag " + request.controller + " not found"});
    }
    Json script = Json::parse(request.arg, nullptr, false);
    if (!script.is_array()) return done(Error{ErrorCode::kInvalid, "controller: no script"});
    aici::Instantiated made;
    made.log.logs = "made\n";
    if (!script.empty() && script[0].contains("init_ff")) {
      made.appended = script[0]["init_ff"].get<std::vector<TokenId>>();
      script.erase(0);
    }
    {
      const std::lock_guard lock(mutex_);
      requests_[request.request_id] = std::move(script);
    }
    done(std::move(made));
  }
  void bind(const std::string& request_id, Sequence id) override {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(request_id);
    if (found == requests_.end()) return problem(id, "is of an unknown request");
    if (id == 0 || !seen_.insert(id).second) problem(id, "has an id that is 0 or was used before");
    sequences_[id] = {.request_id = request_id, .script = std::move(found->second)};
    requests_.erase(found);
  }
  void discard(const std::string& request_id) override {
    const std::lock_guard lock(mutex_);
    requests_.erase(request_id);
  }

  void advance(Sequence id, aici::Report report, Done<Advance> done) override {
    Calls calls;
    {
      const std::lock_guard lock(mutex_);
      if (!sequences_.contains(id)) {
        problem(id, "is advanced and not there");
        return;
      }
      Live& live = sequences_[id];
      check_report(id, live, report);
      live.is_asked = false;
      live.on_advance = std::move(done);
      go_on(id, live, calls);
      end_deadlock(live.request_id, calls);
    }
    for (const auto& call : calls) call();
  }

  void choose(Sequence id, std::vector<Sequence> group, Done<Choice> done) override {
    Choice choice;
    {
      const std::lock_guard lock(mutex_);
      if (!sequences_.contains(id)) {
        problem(id, "is asked and not there");
        return;
      }
      Live& live = sequences_[id];
      if (!live.is_ready) problem(id, "is asked before it goes on");
      if (live.group_size > 0 && group.size() > live.group_size) problem(id, "has a wrong group");
      live.is_ready = false;
      live.group_size = 0;
      choice = choose_next(live);
      live.is_asked = choice.kind == Choice::Kind::kBranches;
      live.branches = choice.branches;
    }
    done(std::move(choice));
  }

  void fork(Sequence parent, std::vector<Sequence> children) override {
    const std::lock_guard lock(mutex_);
    if (!sequences_.contains(parent)) return problem(parent, "is forked and not there");
    Live& from = sequences_[parent];
    if (children.size() + 1 != from.forks.size()) problem(parent, "has a wrong number of forks");
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!seen_.insert(children[i]).second) problem(children[i], "was used before");
      Live child = from;
      child.script = i + 1 < from.forks.size() ? from.forks[i + 1] : Json::array();
      const std::size_t branch = std::min(i + 1, from.branches.size() - 1);
      if (child.is_asked) child.branches = {from.branches[branch]};
      child.forks.clear();
      sequences_[children[i]] = std::move(child);
    }
    if (from.is_asked && !from.branches.empty()) from.branches.resize(1);
    from.forks.clear();
  }

  void free(Sequence id) override {
    const std::lock_guard lock(mutex_);
    if (sequences_.erase(id) == 0) problem(id, "is freed and not there");
  }

 private:
  using Calls = std::vector<std::function<void()>>;

  struct Live {
    std::string request_id;
    Json script = {};
    std::vector<Json> forks = {};             // scripts, of a fork that is to come
    std::vector<aici::Branch> branches = {};  // of its last choice
    bool is_asked = false;                    // one of them is to be reported
    bool is_ready = false;                    // choose() is next
    bool waits = false;
    std::size_t group_size = 0;
    Done<Advance> on_advance = {};
    aici::CallLog log = {};
  };

  void problem(Sequence id, const std::string& what) const {
    on_problem_("sequence " + std::to_string(id) + " " + what);
  }

  static bool is_at(const Live& live, const char* key) {
    return !live.script.empty() && live.script[0].contains(key);
  }
  Json take(Live& live) {
    Json entry = live.script[0];
    live.script.erase(0);
    if (entry.contains("log")) live.log.logs += entry["log"].get<std::string>() + "\n";
    if (entry.contains("set")) {
      const auto name = entry["set"][0].get<std::string>();
      variables_.insert(live.request_id + "/" + name);
      live.log.storage.push_back({name, entry["set"][1].get<std::string>()});
    }
    live.log.micros += 10;
    return entry;
  }

  void check_report(Sequence id, const Live& live, const aici::Report& report) const {
    const bool is_empty = !report.sampled && report.num_dropped == 0 && report.appended.empty();
    if (!live.is_asked) {
      if (!is_empty) problem(id, "reports what it was not asked for");
      return;
    }
    const aici::Branch& branch = live.branches.front();
    const aici::Splice* splice = nullptr;
    std::vector<TokenId> appended;
    for (const aici::Splice& each : branch.splices) {
      const bool fits = each.when_sampled.empty() ||
                        (report.sampled && std::ranges::count(each.when_sampled, *report.sampled));
      if (fits && splice == nullptr) splice = &each;
    }
    if (branch.samples) {
      if (!report.sampled) return problem(id, "reports no draw");
      const auto token = static_cast<std::size_t>(*report.sampled);
      const bool allowed = branch.mask.empty() || (branch.mask[token / 32] >> (token % 32) & 1U);
      if (!allowed) problem(id, "drew what it must not: " + std::to_string(token));
      if (splice == nullptr || splice->keeps_sampled) appended.push_back(*report.sampled);
    } else if (report.sampled) {
      problem(id, "reports a draw");
    }
    if (splice != nullptr) {
      appended.insert(appended.end(), splice->appended.begin(), splice->appended.end());
    }
    const int num_dropped = splice == nullptr ? 0 : splice->num_dropped;
    if (report.appended != appended || report.num_dropped != num_dropped) {
      problem(id, "reports another splice");
    }
  }

  void answer(Live& live, Advance advance, Calls& calls) {
    advance.log = std::exchange(live.log, {});
    calls.emplace_back([done = std::exchange(live.on_advance, {}), advance] { done(advance); });
  }

  // Up to a choice, a wait or the end.
  void go_on(Sequence id, Live& live, Calls& calls) {
    if (is_at(live, "wait")) {
      const auto name = live.request_id + "/" + live.script[0]["wait"].get<std::string>();
      if (!variables_.contains(name)) {
        const bool is_new = !std::exchange(live.waits, true);
        if (is_new) answer(live, {.kind = Advance::Kind::kSuspend}, calls);
        return;
      }
      live.waits = false;
      take(live);
      return go_on(id, live, calls);
    }
    Advance advance;
    while (is_at(live, "ff")) {
      const auto tokens = take(live)["ff"].get<std::vector<TokenId>>();
      advance.appended.insert(advance.appended.end(), tokens.begin(), tokens.end());
    }
    if (live.script.empty() || is_at(live, "stop")) {
      if (!live.script.empty()) take(live);
      advance.kind = Advance::Kind::kStop;
    } else if (is_at(live, "error")) {
      advance.kind = Advance::Kind::kFail;
      advance.error = take(live)["error"].get<std::string>();
    } else if (is_at(live, "fork")) {
      const Json scripts = take(live)["fork"];
      live.forks.assign(scripts.begin(), scripts.end());
      live.script = live.forks.front();
      live.group_size = scripts.size();
      advance.num_forks = static_cast<int>(scripts.size());
    }
    live.is_ready = advance.kind == Advance::Kind::kGoOn;
    answer(live, std::move(advance), calls);
    wake(live.request_id, calls);
  }

  void wake(const std::string& request_id, Calls& calls) {
    for (auto& [id, live] : sequences_) {
      const bool waits = live.waits && live.on_advance && live.request_id == request_id;
      if (!waits) continue;
      const auto name = request_id + "/" + live.script[0]["wait"].get<std::string>();
      if (variables_.contains(name)) go_on(id, live, calls);
    }
  }

  void end_deadlock(const std::string& request_id, Calls& calls) {
    for (auto& [id, live] : sequences_) {
      if (live.request_id == request_id && !(live.waits && live.on_advance)) return;
    }
    for (auto& [id, live] : sequences_) {
      if (live.request_id != request_id) continue;
      live.script = Json::array();
      answer(live, {.kind = Advance::Kind::kFail, .error = aici::kDeadlock}, calls);
    }
  }

  Choice choose_next(Live& live) {
    Choice choice;
    if (live.script.empty()) {
      choice.kind = Choice::Kind::kStop;
    } else if (is_at(live, "branches")) {
      const Json scripts = take(live)["branches"];
      live.forks.clear();
      for (const Json& script : scripts) {
        choice.branches.push_back(branch_of(script[0]));
        live.forks.push_back(script);
        live.forks.back().erase(0);
      }
      live.script = live.forks.front();
    } else {
      const Json entry = take(live);
      choice.branches.push_back(branch_of(entry));
      if (entry.contains("pause")) choice = {.kind = Choice::Kind::kSuspend};
      if (entry.contains("error")) {
        choice = {.kind = Choice::Kind::kFail, .error = entry["error"].get<std::string>()};
      }
    }
    choice.log = std::exchange(live.log, {});
    return choice;
  }

  aici::Branch branch_of(const Json& entry) const {
    aici::Branch branch{.samples = !entry.contains("splice")};
    if (entry.contains("temp")) branch.temperature = entry["temp"].get<float>();
    if (!branch.samples) {
      branch.splices.push_back({.num_dropped = entry.value("drop", 0),
                                .appended = entry["splice"].get<std::vector<TokenId>>()});
    }
    if (entry.contains("when")) {
      const Json& when = entry["when"];
      branch.splices.push_back({when["tokens"].get<std::vector<TokenId>>(),
                                when.value("keeps", false), when.value("drop", 0),
                                when["ff"].get<std::vector<TokenId>>()});
    }
    if (!entry.contains("allow")) return branch;
    branch.mask.resize((static_cast<std::size_t>(vocab_size_) + 31) / 32);
    for (const TokenId id : entry["allow"].get<std::vector<TokenId>>()) {
      branch.mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
    }
    return branch;
  }

  const int vocab_size_;
  const std::function<void(const std::string&)> on_problem_;
  std::mutex mutex_;
  std::map<std::string, Json> requests_;
  std::map<Sequence, Live> sequences_;
  std::set<Sequence> seen_;
  std::set<std::string> variables_;
  std::vector<aici::TagInfo> tags_ = {{"script", "aa0", 1, "admin", 2, 3}};
};

}  // namespace lmtp::testing
