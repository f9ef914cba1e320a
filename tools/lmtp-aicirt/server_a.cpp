// Dialect A: post_pre_process and mid_process.
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "driver.h"
#include "json_io.h"
#include "main_server.h"
#include "rows.h"

namespace lmtp::aicirt {
namespace {

using std::chrono::milliseconds;

constexpr float kForbiddenInA = -100.0F;
constexpr milliseconds kGrace{200};

// What the engine knows of a sequence, and what it does not yet.
struct LiveInA {
  enum class Next { kAdvance, kChoose, kReport };

  Next next = Next::kAdvance;
  bool sampled = false;           // kReport: its row was handed out
  bool waits = false;             // it is suspended: an advance() is under way
  int num_forks = 1;              // kChoose
  std::vector<TokenId> appended;  // by instantiate(), not said yet
  aici::CallLog log;              // not said yet
  bool has_stopped = false;
  std::string error;
};

Json pre_json(bool suspend, int num_forks, const std::vector<TokenId>& ff_tokens) {
  return {{"suspend", suspend}, {"num_forks", num_forks}, {"ff_tokens", ff_tokens}};
}

class ServerA : public MainServer {
 public:
  ServerA(aici::Runtime& runtime, MainOptions options) : driver_(runtime), options_(options) {}

  Json take(const std::string& message) override {
    return answer_to(message, [this](const Json& command) -> Json {
      const std::string op = text_field(command, "op");
      if (op == "ping") return {{"pong", 1}};
      if (op == "tokens") return {{"vocab_size", options_.vocab_size}};
      if (op == "post_pre_process") return post_pre_process(command);
      if (op == "mid_process") return mid_process(command);
      throw CommandError("bad op", false);
    });
  }

  void add_appended(const std::string& request_id, aici::Instantiated made) override {
    const std::lock_guard lock(mutex_);
    made_[request_id] = std::move(made);
  }

 private:
  LiveInA& at(Sequence id) {
    const auto found = live_.find(id);
    if (found == live_.end()) throw CommandError("invalid id " + std::to_string(id), false);
    return found->second;
  }

  Json post_pre_process(const Json& command) {
    // All is read and checked before anything is done.
    std::map<Sequence, aici::Report> reports;
    for (const Json& op : field(command, "post_ops")) {
      const Sequence id = number_field(op, "id");
      const LiveInA& live = at(id);
      aici::Report report;
      report.appended = tokens_field(op, "tokens");
      const auto backtrack = static_cast<int>(find_number(op, "backtrack").value_or(0));
      report.num_dropped = std::max(0, backtrack - 1);
      if (live.sampled && !report.appended.empty()) report.sampled = report.appended.front();
      reports[id] = std::move(report);
    }
    std::vector<std::pair<Sequence, std::string>> bound;
    for (const Json& op : field(command, "pre_ops")) {
      bound.emplace_back(number_field(op, "id"), text_field(op, "req_id"));
    }
    const std::vector<Sequence> freed = numbers_field(command, "freed");
    for (const auto& [id, request_id] : bound) bind(id, request_id);
    begin_advances(reports);
    Json post_seqs = Json::object();
    Json pre_seqs = Json::object();
    for (auto& [id, live] : live_) {
      const std::string key = std::to_string(id);
      take_advance(id, live);
      const aici::CallLog log = std::exchange(live.log, {});
      if (reports.contains(id)) {
        const bool stops = live.has_stopped || !live.error.empty();
        post_seqs[key] = sequence_result(live.error, {{"stop", stops}}, log);
        pre_seqs[key] = pre_of(live, {});
      } else {
        pre_seqs[key] = pre_of(live, log);
      }
    }
    for (const Sequence id : freed) free(id);
    return {{"post_seqs", std::move(post_seqs)}, {"pre_seqs", std::move(pre_seqs)}};
  }

  void bind(Sequence id, const std::string& request_id) {
    if (live_.contains(id)) throw CommandError("duplicate id " + std::to_string(id), false);
    driver_.runtime().bind(request_id, id);
    LiveInA& live = live_[id];
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(request_id);
    if (found == made_.end()) return;
    live.appended = std::move(found->second.appended);
    live.log = std::move(found->second.log);
    made_.erase(found);
  }

  // Those that have something to say, or wait to be asked; one that was answered and has not been
  // asked for a row since keeps its answer.
  void begin_advances(std::map<Sequence, aici::Report>& reports) {
    std::vector<Sequence> begun;
    std::vector<Sequence> waiting;
    for (auto& [id, live] : live_) {
      if (live.has_stopped || !live.error.empty()) continue;
      const auto report = reports.find(id);
      if (live.waits) {
        waiting.push_back(id);
      } else if (live.next == LiveInA::Next::kAdvance || report != reports.end()) {
        driver_.advance(id, report == reports.end() ? aici::Report{} : std::move(report->second));
        begun.push_back(id);
      }
    }
    driver_.wait(begun, options_.step_time + kGrace);
    if (begun.empty()) driver_.wait(waiting, options_.pre_step_time);
  }

  void take_advance(Sequence id, LiveInA& live) {
    std::optional<Advance> answer = driver_.take_advance(id);
    if (!answer) {
      const bool is_late = driver_.is_under_way(id) && !live.waits;
      if (is_late) live.error = "Worker: timeout";
      return;
    }
    live.waits = false;
    add_log(live.log, std::move(answer->log));
    live.appended.insert(live.appended.end(), answer->appended.begin(), answer->appended.end());
    live.num_forks = answer->num_forks;
    live.next = LiveInA::Next::kChoose;
    if (answer->kind == Advance::Kind::kStop) live.has_stopped = true;
    if (answer->kind == Advance::Kind::kFail) live.error = answer->error;
    if (answer->kind != Advance::Kind::kSuspend) return;
    live.next = LiveInA::Next::kAdvance;
    live.waits = true;
    driver_.advance(id, {});
  }

  static Json pre_of(LiveInA& live, const aici::CallLog& log) {
    if (!live.error.empty()) return sequence_result(live.error, nullptr, log);
    const int num_forks = live.has_stopped ? 0 : live.waits ? 1 : live.num_forks;
    return sequence_result("", pre_json(live.waits, num_forks, std::exchange(live.appended, {})),
                           log);
  }

  void free(Sequence id) {
    if (live_.erase(id) > 0) driver_.free(id);
  }

  Json mid_process(const Json& command) {
    std::vector<Sequence> ids;
    std::map<Sequence, std::vector<Sequence>> children;  // by parent
    std::map<Sequence, Sequence> parent_of;
    std::map<Sequence, std::string> wrong;
    for (const Json& op : field(command, "ops")) {
      const Sequence id = number_field(op, "id");
      const std::optional<Sequence> parent = find_number(op, "clone_id");
      ids.push_back(id);
      const bool is_known = live_.contains(id);
      if (parent && !is_known && live_.contains(*parent)) {
        children[*parent].push_back(id);
        parent_of[id] = *parent;
      } else if (parent || !is_known) {
        wrong[id] = "Worker: " + std::string(parent ? "duplicate or parentless" : "invalid") +
                    " id " + std::to_string(id);
      }
    }
    const std::size_t row_bytes = static_cast<std::size_t>(options_.vocab_size) * sizeof(float);
    if (options_.rows.size() <= ids.size() * row_bytes) {
      throw CommandError("shm size too small", false);
    }
    for (const auto& [parent, forks] : children) fork(parent, forks);
    std::vector<Sequence> asked;
    for (const Sequence id : ids) {
      if (wrong.contains(id) || !begin_choice(id, ids, children, parent_of)) continue;
      asked.push_back(id);
    }
    driver_.wait(asked, options_.step_time + kGrace);
    fill_rows(options_.rows, 0, options_.fill);
    fill_rows(options_.rows.first(ids.size() * row_bytes), 0, 0);
    Json seqs = Json::object();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto found = wrong.find(ids[i]);
      seqs[std::to_string(ids[i])] =
          found != wrong.end() ? sequence_result(found->second, nullptr, {}) : mid_of(ids[i], i);
    }
    return {{"seqs", std::move(seqs)}, {"num_seqs", ids.size()}};
  }

  void fork(Sequence parent, const std::vector<Sequence>& forks) {
    driver_.runtime().fork(parent, forks);
    for (const Sequence id : forks) live_[id].next = LiveInA::Next::kChoose;
  }

  // The group is the parent, where it is asked too, and its children.
  bool begin_choice(Sequence id, const std::vector<Sequence>& ids,
                    const std::map<Sequence, std::vector<Sequence>>& children,
                    const std::map<Sequence, Sequence>& parent_of) {
    LiveInA& live = at(id);
    if (live.has_stopped || !live.error.empty()) return false;
    if (live.next != LiveInA::Next::kChoose) {
      live.error = "Worker: it is not to be asked for a row now";
      return false;
    }
    const auto parent = parent_of.find(id);
    const Sequence first = parent == parent_of.end() ? id : parent->second;
    std::vector<Sequence> group;
    if (std::ranges::find(ids, first) != ids.end()) group.push_back(first);
    if (const auto forks = children.find(first); forks != children.end()) {
      group.insert(group.end(), forks->second.begin(), forks->second.end());
    }
    driver_.choose(id, std::move(group));
    return true;
  }

  Json mid_of(Sequence id, std::size_t row) {
    LiveInA& live = at(id);
    if (live.has_stopped) return sequence_result("", end_row(row), {});
    if (!live.error.empty()) return sequence_result(live.error, nullptr, {});
    const std::optional<Choice> choice = driver_.take_choice(id);
    if (!choice) {
      live.error = "Worker: timeout";
      return sequence_result(live.error, nullptr, {});
    }
    live.next = LiveInA::Next::kReport;
    live.sampled = false;
    switch (choice->kind) {
      case Choice::Kind::kFail:
        live.error = choice->error;
        return sequence_result(live.error, nullptr, choice->log);
      case Choice::Kind::kStop:
        live.has_stopped = true;
        return sequence_result("", end_row(row), choice->log);
      case Choice::Kind::kSuspend:
        return sequence_result("", splice_json({}, 0), choice->log);
      case Choice::Kind::kBranches:
        return sequence_result(live.error, branch_of(live, *choice, row), choice->log);
    }
    return {};
  }

  Json branch_of(LiveInA& live, const Choice& choice, std::size_t row) {
    const aici::Branch& branch = choice.branches.front();
    const bool fits = choice.branches.size() == 1 && !branch.temperature &&
                      branch.splices.empty() == branch.samples;
    if (!fits) {
      live.error = "this controller needs dialect C";
      return nullptr;
    }
    if (!branch.samples) {
      const aici::Splice& splice = branch.splices.front();
      return splice_json(splice.appended, splice.num_dropped);
    }
    live.sampled = true;
    if (!branch.mask.empty()) put_row(row, branch.mask);
    return nullptr;
  }

  // Of tokens that are dropped the one that was not drawn is counted, too.
  static Json splice_json(const std::vector<TokenId>& appended, int num_dropped) {
    return {{"ff_tokens", appended}, {"backtrack", num_dropped == 0 ? 0 : num_dropped + 1}};
  }

  // Only the end may be drawn; then it is said that it has stopped.
  Json end_row(std::size_t row) {
    std::vector<std::uint32_t> mask((static_cast<std::size_t>(options_.vocab_size) + 31) / 32);
    const auto eos = static_cast<std::size_t>(options_.eos);
    if (options_.eos >= 0 && options_.eos < options_.vocab_size) mask[eos / 32] |= 1U << (eos % 32);
    put_row(row, mask);
    return nullptr;
  }

  void put_row(std::size_t row, const std::vector<std::uint32_t>& mask) {
    const auto num = static_cast<std::size_t>(options_.vocab_size);
    write_row(options_.rows, row * num * sizeof(float), num, mask, num, kForbiddenInA);
  }

  Driver driver_;
  const MainOptions options_;
  std::map<Sequence, LiveInA> live_;
  std::mutex mutex_;
  std::map<std::string, aici::Instantiated> made_;  // by request; guarded by mutex_
};

}  // namespace

std::unique_ptr<MainServer> make_server_a(aici::Runtime& runtime, MainOptions options) {
  return std::make_unique<ServerA>(runtime, options);
}

}  // namespace lmtp::aicirt
