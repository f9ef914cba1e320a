// Dialect C: mid_process alone. Its op says what became of the last branch and asks for the next.
// What a Runtime says before a choice is said here as branches, too: tokens are a splice, forks are
// branches that do nothing, and a sequence that waits is a splice of nothing.
#include <algorithm>
#include <limits>
#include <map>
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

constexpr float kForbiddenInC = -std::numeric_limits<float>::infinity();
constexpr std::size_t kSpareTokens = 1000;  // rows are longer than the vocabulary
constexpr std::size_t kSlotWord = 4;
constexpr std::size_t kHeaderBytes = 64;

struct LiveInC {
  enum class Next {
    kAdvance,  // a report is told to the controller
    kChoose,   // what it said before is done: it is only asked
    kWait,     // advance() is under way
    kLate,     // choose() is
  };

  Next next = Next::kAdvance;
  std::optional<Choice> choice;  // of this command
  aici::CallLog log;
  int num_late = 0;
  bool has_stopped = false;
  std::string error;
};

struct Op {
  Sequence id = 0;
  aici::Report report = {};
  std::optional<std::string> request_id = {};
  std::optional<Sequence> clone_id = {};
  std::uint32_t clone_idx = 0;
};

Op read_op(const Json& json) {
  Op op{.id = number_field(json, "id")};
  op.report.appended = tokens_field(json, "tokens");
  op.report.num_dropped = static_cast<int>(number_field(json, "backtrack"));
  if (const auto sampled = find_number(json, "sampled")) {
    op.report.sampled = static_cast<TokenId>(*sampled);
  }
  if (find_json(json, "req_id") != nullptr) op.request_id = text_field(json, "req_id");
  op.clone_id = find_number(json, "clone_id");
  if (op.clone_id) op.clone_idx = number_field(json, "clone_idx");
  return op;
}

Choice splices(std::size_t num_branches, const std::vector<TokenId>& appended) {
  Choice choice;
  for (std::size_t i = 0; i < num_branches; ++i) {
    choice.branches.push_back({.samples = false});
    choice.branches.back().splices.push_back({.appended = appended});
  }
  return choice;
}

class ServerC : public MainServer {
 public:
  ServerC(aici::Runtime& runtime, MainOptions options) : driver_(runtime), options_(options) {
    const auto num = static_cast<std::size_t>(options_.vocab_size) + kSpareTokens;
    row_elements_ = num / 64 * 64;
    const std::size_t row_bytes = row_elements_ * sizeof(float);
    rows_max_ = (options_.rows.size() - 2 * kHeaderBytes) / (row_bytes + 8);
    first_row_ = kHeaderBytes + (rows_max_ + 3) / 4 * 4 * kSlotWord;
  }

  Json take(const std::string& message) override {
    return answer_to(message, [this](const Json& command) -> Json {
      const std::string op = text_field(command, "op");
      if (op == "ping") return {{"pong", 1}};
      if (op == "tokens") {
        return {{"vocab_size", options_.vocab_size}, {"eos_token_id", options_.eos}};
      }
      if (op == "mid_process") return mid_process(command);
      throw CommandError("bad op", false);
    });
  }

  // The answer of instantiate() has said it.
  void add_appended(const std::string& /*request_id*/, aici::Instantiated /*made*/) override {}

 private:
  Json mid_process(const Json& command) {
    std::vector<Op> ops;
    for (const Json& json : field(command, "ops")) ops.push_back(read_op(json));
    const std::vector<Sequence> freed = numbers_field(command, "freed");
    const std::size_t row_bytes = static_cast<std::size_t>(options_.vocab_size) * sizeof(float);
    if (options_.rows.size() <= ops.size() * row_bytes) {
      throw CommandError("shm size too small", false);
    }
    std::map<Sequence, std::string> wrong;
    for (const Op& op : ops) {
      if (op.request_id) bind(op, wrong);
    }
    make_forks(ops, wrong);
    for (const Op& op : ops) {
      if (!live_.contains(op.id) && !wrong.contains(op.id)) {
        wrong[op.id] = "Worker: invalid id " + std::to_string(op.id);
      }
    }
    std::erase_if(ops, [&](const Op& op) { return wrong.contains(op.id); });
    tell(ops);
    ask(ops);
    Json seqs = Json::object();
    for (const auto& [id, text] : wrong) {
      seqs[std::to_string(id)] = sequence_result(text, nullptr, {});
    }
    num_rows_ = options_.rows_offset;
    if (options_.fill != 0) fill_rows(options_.rows, 0, options_.fill);
    for (const Op& op : ops) seqs[std::to_string(op.id)] = result_of(live_.at(op.id));
    for (const Sequence id : freed) {
      if (live_.erase(id) > 0) driver_.free(id);
    }
    return {{"seqs", std::move(seqs)},
            {"dtype", "f32"},
            {"first_mask_byte_offset", first_row_},
            {"mask_num_bytes", row_elements_ * sizeof(float)},
            {"mask_num_elts", row_elements_},
            {"num_masks", num_rows_}};
  }

  void bind(const Op& op, std::map<Sequence, std::string>& wrong) {
    if (live_.contains(op.id)) {
      wrong[op.id] = "Worker: duplicate id " + std::to_string(op.id);
      return;
    }
    driver_.runtime().bind(*op.request_id, op.id);
    live_[op.id] = {};
  }

  // All children of a parent are in one command, with it.
  void make_forks(const std::vector<Op>& ops, std::map<Sequence, std::string>& wrong) {
    std::map<Sequence, std::vector<Op>> children;
    for (const Op& op : ops) {
      if (!op.clone_id) continue;
      const bool has_parent =
          live_.contains(*op.clone_id) &&
          std::ranges::any_of(ops, [&](const Op& other) { return other.id == *op.clone_id; });
      if (live_.contains(op.id) || !has_parent) {
        wrong[op.id] = "Worker: no clone of " + std::to_string(*op.clone_id) + " can be " +
                       std::to_string(op.id);
      } else {
        children[*op.clone_id].push_back(op);
      }
    }
    for (auto& [parent, forks] : children) {
      std::ranges::sort(forks, {}, &Op::clone_idx);
      std::vector<Sequence> ids;
      for (const Op& op : forks) {
        ids.push_back(op.id);
        if (op.clone_idx != ids.size()) throw CommandError("clone_idx: one is missing", false);
      }
      driver_.runtime().fork(parent, ids);
      for (const Sequence id : ids) live_[id].next = live_.at(parent).next;
      group_of_[parent] = std::move(ids);
    }
  }

  // advance(), where the controller does not know what the reports say.
  void tell(const std::vector<Op>& ops) {
    std::vector<Sequence> told;
    std::vector<Sequence> waiting;
    for (const Op& op : ops) {
      LiveInC& live = live_.at(op.id);
      live.choice.reset();
      if (live.has_stopped || !live.error.empty()) continue;
      if (live.next == LiveInC::Next::kWait) waiting.push_back(op.id);
      if (live.next != LiveInC::Next::kAdvance) continue;
      driver_.advance(op.id, op.report);
      told.push_back(op.id);
    }
    driver_.wait(told, options_.step_time);
    if (told.empty()) driver_.wait(waiting, options_.pre_step_time);
    for (const Op& op : ops) {
      LiveInC& live = live_.at(op.id);
      if (std::optional<Advance> answer = driver_.take_advance(op.id)) {
        take_advance(op.id, live, *std::move(answer));
      } else if (live.next == LiveInC::Next::kAdvance && driver_.is_under_way(op.id)) {
        live.next = LiveInC::Next::kWait;
      }
    }
  }

  void take_advance(Sequence id, LiveInC& live, Advance answer) {
    add_log(live.log, std::move(answer.log));
    live.next = LiveInC::Next::kChoose;
    switch (answer.kind) {
      case Advance::Kind::kStop:
        live.has_stopped = true;
        return;
      case Advance::Kind::kFail:
        live.error = answer.error;
        return;
      case Advance::Kind::kSuspend:
        live.choice = splices(1, answer.appended);
        live.next = LiveInC::Next::kWait;
        driver_.advance(id, {});
        return;
      case Advance::Kind::kGoOn:
        if (answer.num_forks == 1 && answer.appended.empty()) return;
        live.choice = splices(static_cast<std::size_t>(answer.num_forks), answer.appended);
        return;
    }
  }

  // choose(), of those that have not said anything yet.
  void ask(const std::vector<Op>& ops) {
    std::vector<Sequence> asked;
    for (const Op& op : ops) {
      LiveInC& live = live_.at(op.id);
      const bool is_over = live.has_stopped || !live.error.empty() || live.choice;
      if (live.next == LiveInC::Next::kLate) asked.push_back(op.id);
      if (is_over || live.next != LiveInC::Next::kChoose) continue;
      driver_.choose(op.id, group_with(op, ops));
      asked.push_back(op.id);
    }
    driver_.wait(asked, options_.step_time);
    group_of_.clear();
    for (const Sequence id : asked) take_choice(id, live_.at(id));
  }

  std::vector<Sequence> group_with(const Op& op, const std::vector<Op>& ops) const {
    const Sequence first = op.clone_id.value_or(op.id);
    std::vector<Sequence> group = {first};
    if (const auto found = group_of_.find(first); found != group_of_.end()) {
      group.insert(group.end(), found->second.begin(), found->second.end());
    }
    std::erase_if(group, [&](Sequence id) {
      const LiveInC& live = live_.at(id);
      const bool asks = std::ranges::any_of(ops, [id](const Op& o) { return o.id == id; });
      return !asks || live.has_stopped || !live.error.empty() || live.choice.has_value();
    });
    return group;
  }

  void take_choice(Sequence id, LiveInC& live) {
    std::optional<Choice> choice = driver_.take_choice(id);
    if (!choice) {
      live.next = LiveInC::Next::kLate;
      live.log.logs += "step timeout\n";
      if (++live.num_late >= options_.timeout_steps) live.error = "too many step timeouts";
      return;
    }
    live.num_late = 0;
    live.next = LiveInC::Next::kAdvance;
    add_log(live.log, std::move(choice->log));
    switch (choice->kind) {
      case Choice::Kind::kStop:
        live.has_stopped = true;
        return;
      case Choice::Kind::kFail:
        live.error = choice->error;
        return;
      case Choice::Kind::kSuspend:
        live.next = LiveInC::Next::kWait;
        driver_.advance(id, {});
        return;
      case Choice::Kind::kBranches:
        live.choice = std::move(choice);
        return;
    }
  }

  // Without a choice it waits: a splice of nothing.
  Json result_of(LiveInC& live) {
    const aici::CallLog log = std::exchange(live.log, {});
    if (!live.error.empty()) return sequence_result(live.error, nullptr, log);
    if (live.has_stopped) return sequence_result("", {{"branches", Json::array()}}, log);
    const Choice choice = live.choice ? *std::exchange(live.choice, {}) : splices(1, {});
    Json branches = Json::array();
    for (const aici::Branch& branch : choice.branches) branches.push_back(branch_json(branch));
    return sequence_result("", {{"branches", std::move(branches)}}, log);
  }

  Json branch_json(const aici::Branch& branch) {
    Json mask;
    if (branch.samples) {
      if (num_rows_ >= rows_max_) throw CommandError("no row is left", false);
      mask = num_rows_;
      const auto num = static_cast<std::size_t>(options_.vocab_size);
      write_row(options_.rows, first_row_ + num_rows_ * row_elements_ * sizeof(float),
                row_elements_, branch.mask, num, kForbiddenInC);
      ++num_rows_;
    }
    Json list = Json::array();
    for (const aici::Splice& splice : branch.splices) {
      const bool counts_drawn = branch.samples && !splice.keeps_sampled;
      list.push_back({{"when_sampled", splice.when_sampled},
                      {"backtrack", splice.num_dropped + (counts_drawn ? 1 : 0)},
                      {"ff_tokens", splice.appended}});
    }
    Json temperature;
    if (branch.temperature) temperature = *branch.temperature;
    return {{"sample_mask", mask}, {"temperature", temperature}, {"splices", std::move(list)}};
  }

  Driver driver_;
  const MainOptions options_;
  std::map<Sequence, LiveInC> live_;
  std::map<Sequence, std::vector<Sequence>> group_of_;  // of this command, by parent
  std::size_t row_elements_ = 0;
  std::size_t rows_max_ = 0;
  std::size_t first_row_ = 0;
  std::size_t num_rows_ = 0;
};

}  // namespace

std::unique_ptr<MainServer> make_server_c(aici::Runtime& runtime, MainOptions options) {
  return std::make_unique<ServerC>(runtime, options);
}

}  // namespace lmtp::aicirt
