#include "controller.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lmtp::aici {

namespace {

constexpr int kForcedRoundsMax = 10;  // of one pre_process

// A controller is of dialect A where it has one of these.
ModuleDialect dialect_of(const wasm::Module& module) {
  const bool is_a = module.exports("aici_pre_process") || module.exports("aici_post_process");
  return is_a ? ModuleDialect::kA : ModuleDialect::kC;
}

Error failed(const char* where, const Error& error) {
  return {error.code, std::string("Error (") + where + "): " + error.message};
}

template <typename T>
T failure_of(const Error& error) {
  T answer;
  answer.kind = T::Kind::kFail;
  answer.error = error.message;
  return answer;
}

bool is_empty(const Report& report) {
  return !report.sampled && report.num_dropped == 0 && report.appended.empty();
}

bool allows_any(const std::vector<std::uint32_t>& mask) {
  return std::ranges::any_of(mask, [](std::uint32_t word) { return word != 0; });
}

Choice one_branch(Branch branch) {
  Choice choice;
  choice.branches.push_back(std::move(branch));
  return choice;
}

}  // namespace

Result<std::unique_ptr<Controller>> Controller::make(std::shared_ptr<const World> world,
                                                     std::shared_ptr<const wasm::Module> module,
                                                     std::string arg, Variables& variables) {
  const ModuleDialect dialect = dialect_of(*module);
  Result<std::unique_ptr<Guest>> guest =
      Guest::make(world, std::move(module), dialect, std::move(arg), variables);
  if (!guest) return guest.error();
  return std::unique_ptr<Controller>(new Controller(std::move(world), dialect, std::move(*guest)));
}

Result<Instantiated> Controller::init(const std::vector<TokenId>& prompt) {
  Result<std::string> returned = guest_->init(prompt_arg(prompt));
  Instantiated made;
  made.log = guest_->take_log();
  const auto fail = [&](const Error& error) {
    const std::string logs = made.log.logs.empty() ? "" : made.log.logs + "\n";
    return Error{error.code, logs + failed("init", error).message};
  };
  if (!returned) return fail(returned.error());
  Result<std::optional<std::vector<TokenId>>> replaced = reader_.prompt(*returned);
  if (!replaced) return fail(replaced.error());
  if (!*replaced || **replaced == prompt) return made;
  if (Result<void> done = check_tokens(**replaced); !done) return fail(done.error());
  made.prompt = std::move(*replaced);
  return made;
}

Result<void> Controller::check_tokens(const std::vector<TokenId>& tokens) const {
  const auto wrong = std::ranges::find_if(
      tokens, [&](TokenId token) { return token < 0 || token >= world_->vocab_size; });
  if (wrong == tokens.end()) return {};
  return Error{ErrorCode::kInvalid, "token " + std::to_string(*wrong) +
                                        " is out of range; the vocabulary has " +
                                        std::to_string(world_->vocab_size)};
}

Result<bool> Controller::post(int num_dropped, const std::vector<TokenId>& tokens) {
  const Result<std::string> returned =
      guest_->run(Guest::Entry::kPost, post_arg(num_dropped, tokens));
  if (!returned) return failed("post", returned.error());
  Result<bool> stops = reader_.post(*returned);
  if (!stops) return failed("post", stops.error());
  return stops;
}

// Asked again as long as it forces tokens, which it is told of at once.
Result<void> Controller::pre(Advance& advance) {
  for (int round = 0; round <= kForcedRoundsMax; ++round) {
    const Result<std::string> returned = guest_->run(Guest::Entry::kPre, "{}");
    if (!returned) return failed("pre", returned.error());
    const Result<PreResult> result = reader_.pre(*returned);
    if (!result) return failed("pre", result.error());
    if (result->ff_tokens.empty()) {
      advance.num_forks = result->num_forks;
      if (result->num_forks == 0) advance.kind = Advance::Kind::kStop;
      if (result->suspends) advance.kind = Advance::Kind::kSuspend;
      return {};
    }
    const Result<void> fits = check_tokens(result->ff_tokens);
    if (!fits) return failed("pre", fits.error());
    if (result->num_forks != 1 || result->suspends) {
      return Error{ErrorCode::kInvalid,
                   "Error (pre): ff_tokens come with num_forks 1 and without suspend"};
    }
    const Result<bool> stops = post(0, result->ff_tokens);
    if (!stops) return stops.error();
    if (*stops) {
      // As AICI's own runtime: what it forces last is not part of the stream.
      advance.kind = Advance::Kind::kStop;
      advance.appended.clear();
      return {};
    }
    advance.appended.insert(advance.appended.end(), result->ff_tokens.begin(),
                            result->ff_tokens.end());
  }
  return Error{ErrorCode::kInvalid, "Error (pre): too many rounds of ff_tokens; allowed are " +
                                        std::to_string(kForcedRoundsMax)};
}

Advance Controller::advance(const Report& report) {
  Advance advance;
  if (dialect_ == ModuleDialect::kC) {
    if (suspended_group_.empty()) {
      report_ = report;
      return advance;
    }
    // There is nothing new to tell; it is asked whether it goes on.
    Choice choice = mid(std::exchange(suspended_group_, {}));
    if (choice.kind == Choice::Kind::kSuspend) {
      advance.kind = Advance::Kind::kSuspend;
      advance.log = std::move(choice.log);
      return advance;
    }
    advance.log = std::exchange(choice.log, {});
    early_choice_ = std::move(choice);
    return advance;
  }
  Result<void> done;
  if (!is_empty(report)) {
    const Result<bool> stops = post(report.num_dropped, report.appended);
    if (!stops) done = stops.error();
    if (stops && *stops) advance.kind = Advance::Kind::kStop;
  }
  if (done && advance.kind == Advance::Kind::kGoOn) done = pre(advance);
  if (!done) advance = failure_of<Advance>(done.error());
  advance.log = guest_->take_log();
  return advance;
}

Choice Controller::choose(const std::vector<Sequence>& fork_group) {
  if (early_choice_) {
    Choice choice = std::move(*early_choice_);
    early_choice_.reset();
    return choice;
  }
  return mid(fork_group);
}

Choice Controller::mid(const std::vector<Sequence>& fork_group) {
  Result<Choice> result = dialect_ == ModuleDialect::kA ? mid_a(fork_group) : mid_c(fork_group);
  Choice choice = result ? std::move(*result) : failure_of<Choice>(failed("mid", result.error()));
  choice.log = guest_->take_log();
  return choice;
}

Result<Choice> Controller::mid_a(const std::vector<Sequence>& fork_group) {
  const Result<std::string> returned = guest_->run(Guest::Entry::kMid, mid_arg_a(fork_group));
  if (!returned) return returned.error();
  Result<MidResultA> result = reader_.mid_a(*returned);
  if (!result) return result.error();
  Branch branch;
  if (result->kind == MidResultA::Kind::kStop) {
    if (world_->eos_id < 0) {
      Choice stop;
      stop.kind = Choice::Kind::kStop;
      return stop;
    }
    // It ends the stream when it is told of that token.
    branch.mask.resize(world_->num_words());
    const auto eos = static_cast<std::size_t>(world_->eos_id);
    branch.mask[eos / 32] = std::uint32_t{1} << (eos % 32);
    return one_branch(std::move(branch));
  }
  if (result->kind == MidResultA::Kind::kSample) {
    // Several masks add up; one that allows nothing lets anything follow, as none does.
    std::vector<std::vector<std::uint32_t>>& masks = guest_->masks();
    for (std::size_t i = 1; i < masks.size(); ++i) {
      std::ranges::transform(masks[0], masks[i], masks[0].begin(), std::bit_or());
    }
    if (!masks.empty() && allows_any(masks[0])) branch.mask = std::move(masks[0]);
    return one_branch(std::move(branch));
  }
  GuestSplice& splice = result->splice;
  if (splice.backtrack == 0 && splice.ff_tokens.empty()) {
    return Error{ErrorCode::kInvalid, "empty Splice (both backtrack == 0 and ff_tokens == [])"};
  }
  if (Result<void> done = check_tokens(splice.ff_tokens); !done) return done.error();
  branch.samples = false;
  branch.splices.push_back(
      {.num_dropped = splice.backtrack, .appended = std::move(splice.ff_tokens)});
  return one_branch(std::move(branch));
}

namespace {

// Of a branch that draws, the token that is drawn is the first that a splice drops.
Splice splice_of(GuestSplice from, bool samples) {
  Splice splice;
  splice.when_sampled = std::move(from.when_sampled);
  splice.keeps_sampled = samples && from.backtrack == 0;
  splice.num_dropped = samples ? std::max(0, from.backtrack - 1) : from.backtrack;
  splice.appended = std::move(from.ff_tokens);
  return splice;
}

Result<Branch> branch_of(GuestBranch from, std::vector<std::vector<std::uint32_t>>& masks) {
  Branch branch;
  branch.samples = from.mask.has_value();
  branch.temperature = from.temperature;
  if (branch.samples) {
    if (*from.mask < 0 || static_cast<std::size_t>(*from.mask) >= masks.size()) {
      return Error{ErrorCode::kInvalid, "sample_mask is not what aici_host_return_logit_bias gave"};
    }
    branch.mask = masks[static_cast<std::size_t>(*from.mask)];
    if (!allows_any(branch.mask)) {
      return Error{ErrorCode::kInvalid, "sample_mask allows no token"};
    }
  } else if (from.splices.size() != 1 || !from.splices[0].when_sampled.empty()) {
    return Error{ErrorCode::kInvalid,
                 "a branch without sample_mask has one splice, with an empty when_sampled"};
  }
  for (GuestSplice& splice : from.splices) {
    branch.splices.push_back(splice_of(std::move(splice), branch.samples));
  }
  return branch;
}

bool does_nothing(const Branch& branch) {
  return !branch.samples && branch.splices[0].num_dropped == 0 &&
         branch.splices[0].appended.empty();
}

}  // namespace

Result<Choice> Controller::mid_c(const std::vector<Sequence>& fork_group) {
  const Result<std::string> returned =
      guest_->run(Guest::Entry::kMid, mid_arg_c(std::exchange(report_, {}), fork_group));
  if (!returned) return returned.error();
  Result<std::vector<GuestBranch>> result = reader_.mid_c(*returned);
  if (!result) return result.error();
  Choice choice;
  if (result->empty()) {
    choice.kind = Choice::Kind::kStop;
    return choice;
  }
  for (GuestBranch& from : *result) {
    Result<Branch> branch = branch_of(std::move(from), guest_->masks());
    if (!branch) return branch.error();
    for (const Splice& splice : branch->splices) {
      if (Result<void> done = check_tokens(splice.appended); !done) return done.error();
    }
    choice.branches.push_back(std::move(*branch));
  }
  if (choice.branches.size() == 1 && does_nothing(choice.branches[0])) {
    choice.kind = Choice::Kind::kSuspend;
    choice.branches.clear();
    suspended_group_ = fork_group;
  }
  return choice;
}

Result<std::unique_ptr<Controller>> Controller::fork(Sequence sequence) const {
  Result<std::unique_ptr<Guest>> guest = guest_->copy();
  if (!guest) return guest.error();
  std::unique_ptr<Controller> made(new Controller(world_, dialect_, std::move(*guest)));
  made->set_sequence(sequence);
  return made;
}

}  // namespace lmtp::aici
