#include "controlled_streams.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "lmtp/aici/storage_json.h"
#include "lmtp/base/guarded.h"
#include "lmtp/engine/engine.h"
#include "lmtp/request/mask_source.h"

namespace lmtp::engine {

using aici::Advance;
using aici::Branch;
using aici::Choice;

// Asks for the controller's choice. But for the answer, which comes before its mask is said to be
// there, the engine's thread alone.
class ControlledStreams::Source : public MaskSource {
 public:
  // The stream keeps the runtime. An answer, which comes on a thread of the runtime and may come
  // when nothing but it is left of the stream, must not.
  Source(aici::Runtime& runtime_in, aici::Sequence id_in) : runtime(runtime_in), id(id_in) {}

  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> /*generated*/,
                       NextTokens& /*next*/) const override {
    return Error{ErrorCode::kInternal, "internal: a controller was asked twice"};
  }

  bool begin(std::span<const TokenId> /*before*/, std::span<const TokenId> /*generated*/,
             NextTokens& next, const Done& done) const override {
    if (preset) {
      take(*choice, *preset, temperature, next);
      done({});
      return true;
    }
    runtime.choose(id, std::exchange(group, {id}),
                   [to = choice, now = temperature, &next, done](Choice given) {
                     take(*to, std::move(given), now, next);
                     done({});
                   });
    return true;
  }

  bool is_of_tokens_alone() const override { return false; }

  std::shared_ptr<const MaskSource> forked() const override {
    auto fork = std::make_shared<Source>(runtime, runtime.new_sequence());
    fork->temperature = temperature;
    return fork;
  }

  aici::Runtime& runtime;
  const aici::Sequence id;
  // What a MaskSource keeps of its stream, which sees it as it was made.
  mutable std::vector<aici::Sequence> group{id};  // of the next choose()
  mutable std::unique_ptr<const Choice> preset;   // not null: is taken without asking
  mutable float temperature = 0.0F;               // of the sequence
  // For the row that waits, or was computed.
  const std::shared_ptr<std::optional<Choice>> choice = std::make_shared<std::optional<Choice>>();

 private:
  static void take(std::optional<Choice>& choice, Choice given, float temperature,
                   NextTokens& next) {
    choice = std::move(given);
    const bool goes_on = choice->kind == Choice::Kind::kBranches && choice->branches.size() == 1;
    next.draws = goes_on && choice->branches.front().samples &&
                 choice->branches.front().temperature.value_or(temperature) == temperature;
    if (!next.draws) return;
    const std::vector<std::uint32_t>& mask = choice->branches.front().mask;
    if (mask.empty()) {
      std::ranges::fill(next.words, ~std::uint32_t{0});
    } else {
      std::copy_n(mask.begin(), std::min(mask.size(), next.words.size()), next.words.begin());
    }
  }
};

namespace {

// max_tokens counts what stands: one that drops as much as it puts would go on for ever.
constexpr std::int64_t kChoicesMin = 1000;
constexpr std::int64_t kChoicesAToken = 8;

std::unique_ptr<const Choice> of_branch(Branch branch) {
  auto choice = std::make_unique<Choice>();
  choice->branches.push_back(std::move(branch));
  return choice;
}

}  // namespace

ControlledStreams::~ControlledStreams() {
  for (const auto& [key, stream] : streams_) stream.runtime->free(stream.id);
}

void ControlledStreams::begin(scheduler::Sequence& sequence, aici::Instance& instance) {
  Controlled stream;
  stream.runtime = instance.runtime();
  stream.id = stream.runtime->new_sequence();
  const aici::Sequence id = stream.id;
  auto source = std::make_shared<Source>(*stream.runtime, id);
  source->temperature = sequence.params.temperature;
  stream.source = source;
  stream.num_samples = std::make_shared<int>(1);
  sequence.mask_source = std::move(source);
  // What is bound is freed by forget(), so that nothing may fail between.
  const auto begun = streams_.emplace(sequence.key, std::move(stream)).first;
  try {
    instance.bind(id);
  } catch (...) {
    streams_.erase(begun);
    throw;
  }
}

void ControlledStreams::start(const StreamKey& key, scheduler::Scheduler& scheduler) {
  scheduler.hold(key);
  advance(key, streams_.at(key), {});
}

std::vector<StreamKey> ControlledStreams::family(const StreamKey& key) const {
  std::vector<StreamKey> keys;
  for (const auto& [other, stream] : streams_) {
    if (other.connection == key.connection && other.stream == key.stream) keys.push_back(other);
  }
  return keys;
}

// The stream's end has been told, so nothing fails any more: without memory it is tried once more.
void ControlledStreams::forget(const StreamKey& key) noexcept {
  const auto at = streams_.find(key);
  if (at == streams_.end()) return;
  guarded_twice([&stream = at->second] { stream.runtime->free(stream.id); });
  streams_.erase(at);
}

bool ControlledStreams::keep(const StreamKey& key, TokenEvent& event) {
  const auto at = streams_.find(key);
  if (at == streams_.end()) return false;
  Controlled& stream = at->second;
  give_held(key, stream);
  if (event.finish_reason != FinishReason::kNone) return false;
  stream.drawn.reset();
  if (!event.is_appended) stream.drawn = event.token;
  stream.held = std::move(event);
  return true;
}

void ControlledStreams::take_choices(scheduler::Scheduler& scheduler) {
  if (!std::exchange(has_choices_, false)) return;
  std::vector<StreamKey> held;
  for (const auto& [key, stream] : streams_) {
    const scheduler::Sequence* const sequence = scheduler.sequence(key);
    if (sequence != nullptr && sequence->is_held && !stream.is_answering) held.push_back(key);
  }
  for (const StreamKey& key : held) take_choice(key, streams_.at(key), scheduler);
}

void ControlledStreams::take_choice(const StreamKey& key, Controlled& stream,
                                    scheduler::Scheduler& scheduler) {
  if (!stream.source->choice->has_value()) {
    return fail(key, stream, "internal: the controller's choice is missing");
  }
  Choice choice = *std::exchange(*stream.source->choice, std::nullopt);
  stream.source->preset.reset();
  give_log(key, choice.log);
  if (choice.kind == Choice::Kind::kFail) return fail(key, stream, choice.error);
  if (choice.kind == Choice::Kind::kStop) return stop(key, stream, scheduler);
  if (choice.kind == Choice::Kind::kSuspend) return advance(key, stream, {});
  if (choice.branches.empty()) return fail(key, stream, "controller: chose no way to go on");
  const std::int64_t choices_max =
      kChoicesMin + kChoicesAToken * scheduler.sequence(key)->params.max_tokens;
  if (++stream.num_choices > choices_max) {
    return fail(key, stream,
                "controller: chose more than " + std::to_string(choices_max) +
                    " times how to go on; allowed are " + std::to_string(kChoicesMin) + " and " +
                    std::to_string(kChoicesAToken) + " for each of max_tokens");
  }
  if (choice.branches.size() == 1) {
    return take_branch(key, stream, choice.branches.front(), scheduler);
  }
  give_held(key, stream);  // the forks begin with it
  std::vector<StreamKey> ways;
  if (const auto error = fork(key, choice.branches.size() - 1, scheduler, ways)) {
    return fail(key, stream, error->message);
  }
  ways.insert(ways.begin(), key);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    take_branch(ways[i], streams_.at(ways[i]), choice.branches[i], scheduler);
  }
}

// Of a stream whose row has drawn what the branch allows, or that goes on by it only now.
void ControlledStreams::take_branch(const StreamKey& key, Controlled& stream, const Branch& branch,
                                    scheduler::Scheduler& scheduler) {
  const std::optional<TokenId> drawn = std::exchange(stream.drawn, std::nullopt);
  if (branch.samples && !drawn) {
    stream.source->preset = of_branch(branch);
    if (branch.temperature) {
      stream.source->temperature = *branch.temperature;
      scheduler.set_temperature(key, *branch.temperature);
    }
    return scheduler.release(key);
  }
  const auto fits = [&](const aici::Splice& splice) {
    return !branch.samples || splice.when_sampled.empty() ||
           std::ranges::find(splice.when_sampled, *drawn) != splice.when_sampled.end();
  };
  const auto splice = std::ranges::find_if(branch.splices, fits);
  scheduler.hold(key);
  if (splice == branch.splices.end()) {
    if (!drawn) return fail(key, stream, "controller: neither draws a token nor puts one");
    return advance(key, stream, {.sampled = drawn, .num_dropped = 0, .appended = {*drawn}});
  }
  const bool drops_drawn = branch.samples && !splice->keeps_sampled;
  const auto error =
      put(key, stream, splice->num_dropped + (drops_drawn ? 1 : 0), splice->appended, scheduler);
  if (error) return fail(key, stream, error->message);
  aici::Report report{.sampled = branch.samples ? drawn : std::nullopt,
                      .num_dropped = splice->num_dropped,
                      .appended = splice->appended};
  if (branch.samples && splice->keeps_sampled) {
    report.appended.insert(report.appended.begin(), *drawn);
  }
  advance(key, stream, std::move(report));
}

// Drops the last tokens of a stream and puts others behind the rest, as many as there is room for:
// the last one is then drawn as the only one that may be, so that the stream ends by its length.
std::optional<Error> ControlledStreams::put(const StreamKey& key, Controlled& stream,
                                            int num_dropped, std::vector<TokenId> tokens,
                                            scheduler::Scheduler& scheduler) {
  if (num_dropped == 0 && tokens.empty()) return std::nullopt;
  if (num_dropped < 0) return Error{ErrorCode::kConstraint, "controller: drops less than no token"};
  if (Result<void> ids = check_ids("controller", tokens, vocab_size_); !ids) return ids.error();
  const scheduler::Sequence& sequence = *scheduler.sequence(key);
  const int num_kept = std::max(0, sequence.num_generated() - num_dropped);
  const auto room =
      static_cast<std::size_t>(std::max(0, sequence.num_generated_max - num_kept - 1));
  if (tokens.size() > room) {
    Branch last;
    last.mask.resize((static_cast<std::size_t>(vocab_size_) + 31) / 32);
    last.mask[static_cast<std::size_t>(tokens[room]) / 32] = 1U << (tokens[room] % 32);
    stream.source->preset = of_branch(std::move(last));
    tokens.resize(room);
  }
  Result<void> done = scheduler.backtrack(key, num_dropped, tokens);
  if (!done) return done.error();
  return std::nullopt;
}

std::optional<Error> ControlledStreams::fork(const StreamKey& key, std::size_t count,
                                             scheduler::Scheduler& scheduler,
                                             std::vector<StreamKey>& children) {
  const Controlled parent = streams_.at(key);
  if (const Result<void> taken = host_.take_room(key, count); !taken) {
    return Error{taken.error().code, "controller: cannot fork: " + taken.error().message};
  }
  std::vector<aici::Sequence> ids;
  std::optional<Error> failed;
  StreamKey child = key;
  try {
    while (children.size() < count) {
      child.sample = *parent.num_samples;
      const auto forked = scheduler.fork(key, child);
      if (!forked) {
        failed = forked.error();
        break;
      }
      ++*parent.num_samples;  // clients know samples by their number, without gaps
      const auto source =
          std::static_pointer_cast<const Source>(scheduler.sequence(child)->mask_source);
      streams_[child] = {.runtime = parent.runtime,
                         .id = source->id,
                         .source = source,
                         .num_samples = parent.num_samples,
                         .num_choices = parent.num_choices};
      ids.push_back(source->id);
      children.reserve(count);
      host_.begin_fork(key, child, *forked);
      children.push_back(child);
    }
  } catch (...) {  // this one has not begun, and the runtime knows none of them
    streams_.erase(child);
    for (const StreamKey& begun : children) streams_.erase(begun);
    host_.leave_room(key, count - children.size());
    throw;
  }
  if (failed) host_.leave_room(key, count - children.size());
  if (!ids.empty()) parent.runtime->fork(parent.id, std::move(ids));
  return failed;
}

void ControlledStreams::advance(const StreamKey& key, Controlled& stream, aici::Report report) {
  stream.is_answering = true;
  stream.runtime->advance(stream.id, std::move(report),
                          [inbox = inbox_, key, id = stream.id](Advance answer) {
                            inbox->queue.push_control(ControllerAnswer{key, id, std::move(answer)});
                          });
}

void ControlledStreams::apply(ControllerAnswer& answer, scheduler::Scheduler& scheduler) {
  const auto at = streams_.find(answer.key);
  if (at == streams_.end() || at->second.id != answer.sequence) return;
  Controlled& stream = at->second;
  stream.is_answering = false;
  const StreamKey key = answer.key;
  Advance& wanted = answer.advance;
  give_log(key, wanted.log);
  if (wanted.kind == Advance::Kind::kFail) return fail(key, stream, wanted.error);
  if (wanted.kind == Advance::Kind::kStop) return stop(key, stream, scheduler);
  give_held(key, stream);
  if (const auto error = put(key, stream, 0, std::move(wanted.appended), scheduler)) {
    return fail(key, stream, error->message);
  }
  if (wanted.kind == Advance::Kind::kGoOn) return go_on(key, stream, wanted.num_forks, scheduler);
  (void)scheduler.suspend(key);
  advance(key, stream, {});
}

void ControlledStreams::go_on(const StreamKey& key, Controlled& stream, int num_forks,
                              scheduler::Scheduler& scheduler) {
  if (num_forks > 1) {
    std::vector<StreamKey> group;
    const auto error = fork(key, static_cast<std::size_t>(num_forks) - 1, scheduler, group);
    if (error) return fail(key, stream, error->message);
    group.insert(group.begin(), key);
    std::vector<aici::Sequence> ids;
    for (const StreamKey& one : group) ids.push_back(streams_.at(one).id);
    for (const StreamKey& one : group) streams_.at(one).source->group = ids;
  }
  scheduler.release(key);
  (void)scheduler.resume(key);
}

void ControlledStreams::give_held(const StreamKey& key, Controlled& stream) {
  if (stream.held) host_.give(key, *std::exchange(stream.held, std::nullopt));
}

// Tokens that were put behind the stream pass the model first, and nothing is drawn behind them.
void ControlledStreams::stop(const StreamKey& key, Controlled& stream,
                             scheduler::Scheduler& scheduler) {
  const scheduler::Sequence& sequence = *scheduler.sequence(key);
  if (sequence.num_emitted < sequence.num_generated()) {
    give_held(key, stream);
    stream.source->preset = std::make_unique<Choice>(Choice{.kind = Choice::Kind::kStop});
    scheduler.release(key);
    (void)scheduler.resume(key);
    return;
  }
  if (sequence.num_backtracked > 0) give_held(key, stream);
  if (!stream.held) {
    stream.held = TokenEvent{.stream_id = key.stream,
                             .token = kNoToken,
                             .sample = key.sample,
                             .num_backtracked = sequence.num_backtracked};
  }
  stream.held->finish_reason = FinishReason::kStop;
  host_.finish(key, *std::exchange(stream.held, std::nullopt));
}

void ControlledStreams::fail(const StreamKey& key, Controlled& stream, const std::string& why) {
  give_held(key, stream);
  host_.end(key, Error{ErrorCode::kConstraint, why});
}

void ControlledStreams::give_log(const StreamKey& key, aici::CallLog& log) {
  if (log.logs.empty() && log.storage.empty()) return;
  host_.give(key, ControllerOutput{.stream_id = key.stream,
                                   .sample = key.sample,
                                   .logs = std::move(log.logs),
                                   .storage = aici::storage_json(log.storage),
                                   .micros = log.micros});
}

}  // namespace lmtp::engine
