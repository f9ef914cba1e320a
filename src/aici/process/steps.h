// Steps: what is asked of a Runtime, gathered into commands of the main channel.
//
// Many calls that are there together make one command. A sequence is known to the runtime from the
// command that names its request, or its parent, to the one that frees it.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"
#include "process/runtime_process.h"
#include "process/wire.h"

namespace lmtp::aici {

// A sequence, from bind() or fork() to its end at the runtime.
struct LiveSequence {
  enum class Stage {
    kIdle,       // nothing was asked of it yet
    kAdvancing,  // advance() is under way
    kAdvanced,   // it was answered: choose() or fork() is next
    kChoosing,
    kChosen,  // choose() was answered: what became of it is to come
    kEnded,   // it has stopped or failed
  };

  std::string request_id;
  Stage stage = Stage::kIdle;
  Time since = {};        // of the stage
  bool is_known = false;  // to the runtime
  bool is_freed = false;  // by the caller: goes with the next command
  std::optional<Sequence> parent = {};
  int branch = 0;                          // of the parent's Choice
  Runtime::Done<Advance> on_advance = {};  // kAdvancing
  Runtime::Done<Choice> on_choose = {};    // kChoosing
  std::vector<Sequence> group = {};        // kChoosing
  std::optional<Report> report = {};       // not told yet
  bool is_suspended = false;
  std::optional<Choice> next_choice = {};  // what choose() answers without asking
  std::string failure = {};                // kEnded: empty where it has stopped
  CallLog log = {};                        // goes with the next answer
  // Dialect A.
  int backtrack = 0;                  // of its last splice
  bool is_told = false;               // the runtime knows what the next report says
  std::vector<TokenId> last_ff = {};  // what pre gave since it was last told something
};

struct StepOptions {
  int vocab_size = 0;          // of the model
  int runtime_vocab_size = 0;  // not more
  std::size_t bias_bytes = 0;
  std::chrono::milliseconds answer_time{1200};  // of a command
  bool repeats_ff = false;                      // dialect A2
};

// Owner: a ProcessRuntime; its thread alone. The functions of Runtime have its contract; answers
// are given within the call or within step().
class Steps {
 public:
  // clones_all: the runtime must be told of a fork that is freed before its first step.
  Steps(StepOptions options, bool clones_all) : options_(options), clones_all_(clones_all) {}
  virtual ~Steps() = default;
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  bool has(Sequence id) const { return live_.contains(id); }
  void bind(const std::string& request_id, Sequence id, Time now);
  // Of a request that is not bound: its instance is to go.
  void discard(const std::string& request_id, Time now);
  virtual void advance(Sequence id, Report report, Runtime::Done<Advance> done, Time now) = 0;
  void choose(Sequence id, std::vector<Sequence> group, Runtime::Done<Choice> done, Time now);
  void fork(Sequence parent, const std::vector<Sequence>& children, Time now);
  void free(Sequence id, Time now);

  // When step() has something to do, without another call.
  virtual Time next_time() const = 0;
  // Sends one command at most, if it is time, and answers what it can. After an error the runtime
  // is to be ended.
  virtual Result<void> step(MainChannel& channel, Time now) = 0;
  // Everything fails; the ids of what the caller has not freed yet.
  std::vector<Sequence> fail_all(const std::string& reason);
  // Shapes of answers that only instantiate() shows.
  void set_repeats_ff(bool repeats) { options_.repeats_ff = repeats; }

 protected:
  using Stage = LiveSequence::Stage;

  LiveSequence* find(Sequence id);
  void enter(LiveSequence& sequence, Stage stage, Time now);
  void answer(LiveSequence& sequence, Advance advance, Time now);
  void answer(LiveSequence& sequence, Choice choice, Time now);
  // Ends it; whatever is under way is answered so.
  void fail(LiveSequence& sequence, const std::string& reason, Time now);
  void stop(LiveSequence& sequence, Time now);

  // The groups that can be asked now, each with all its members that ask. No member is of a family
  // that is incomplete.
  std::vector<std::vector<Sequence>> ready_groups() const;
  // A fork of which the runtime does not know is told of together with its parent and what each of
  // them did. Families, each by its parent, in which one has not reported that yet; one that is
  // freed never will.
  std::set<Sequence> incomplete_families() const;
  // Itself, where it is no such fork.
  static Sequence family_of(Sequence id, const LiveSequence& sequence);
  // Children of whom the runtime does not know yet, in the order of their branches.
  std::vector<Sequence> unknown_children(Sequence parent) const;
  // When choices that are ready have waited long enough for others.
  Time choices_time() const;
  std::size_t rows_max() const;
  // Fails requests all of whose sequences have been suspended for so many commands.
  void end_deadlocks(int rounds_max, Time now);
  // The earliest `since` of a stage; none: Time::max().
  Time earliest(Stage stage) const;
  bool any(Stage stage) const { return earliest(stage) != Time::max(); }

  StepOptions options_;
  const bool clones_all_;
  std::map<Sequence, LiveSequence> live_;
  std::map<std::string, int> rounds_;   // in which a request was suspended as a whole
  Sequence next_discard_ = 0xF0000000;  // ids that no caller counts up to
};

void append(CallLog& log, CallLog more);

std::unique_ptr<Steps> make_steps_a(StepOptions options);
std::unique_ptr<Steps> make_steps_c(StepOptions options);

// How long after a command suspended sequences are asked again.
inline constexpr std::chrono::milliseconds kPollInterval{4};

}  // namespace lmtp::aici
