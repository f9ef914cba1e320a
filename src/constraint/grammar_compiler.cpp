#include "lmtp/constraint/grammar_compiler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "compiled_grammar.h"
#include "deep_thread.h"
#include "grammar_text.h"
#include "llguidance_library.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/turn_queue.h"
#include "matcher.h"
#include "vocabulary.h"

namespace lmtp::constraint {
namespace {

using Clock = runtime::Clock;
using Compiled = GrammarCompiler::Compiled;

// For chains of as many terminals as a grammar has room for.
constexpr std::size_t kCompileStackBytes = std::size_t{1} << 30;
constexpr std::size_t kAnswerStackBytes = std::size_t{1} << 20;
constexpr std::size_t kWaitingMax = 64;
constexpr std::size_t kWaitingOfOneMax = 48;
// After so long a grammar is no reason that those of other shares wait.
constexpr std::chrono::seconds kTurnTime{1};
// Threads that compile. One does; the others take over from those that are late, which cannot be
// ended.
constexpr std::size_t kCompilingMax = 3;
constexpr std::size_t kKnownMax = 256;
constexpr std::size_t kKnownBytesMax = std::size_t{16} << 20;  // of their texts

Error as_grammar_error(const Error& error) {
  const bool is_own = error.message.starts_with("grammar: ");
  return {error.code, (is_own ? "" : "grammar: ") + error.message};
}

Compiled compile_for(const std::shared_ptr<const Vocabulary>& vocabulary, const Grammar& grammar) {
  if (grammar.kind == Grammar::Kind::kFree) {
    return std::make_shared<const CompiledGrammar>(vocabulary);
  }
  const Result<LibraryGrammar> text = to_library_grammar(grammar);
  if (!text) return as_grammar_error(text.error());
  Result<Matcher> matcher = Matcher::make(vocabulary, text->kind, text->text);
  if (!matcher) return as_grammar_error(matcher.error());
  // Computing the first mask refuses grammars that no text matches, and warms the matcher up now.
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocabulary->size()) + 31) / 32);
  const Result<void> first = matcher->mask(words);
  if (!first) {
    return Error{ErrorCode::kInvalid, "grammar: has no beginning: " + first.error().message};
  }
  return std::make_shared<const CompiledGrammar>(vocabulary, std::move(*matcher));
}

Compiled resume(const CompiledGrammar& grammar, std::span<const TokenId> resumed) {
  Matcher matcher = grammar.new_matcher();
  for (const TokenId token : resumed) {
    if (Result<void> done = matcher.consume(token); !done) {
      return Error{ErrorCode::kInvalid, "resumed: " + done.error().message};
    }
  }
  return std::make_shared<const CompiledGrammar>(grammar, std::move(matcher));
}

}  // namespace

// One thread compiles, and may take long over one grammar; another answers, also for what waits too
// long.
struct GrammarCompiler::Impl {
  struct Job {
    Grammar grammar;
    std::vector<TokenId> resumed;
    Done done;
    Clock::time_point deadline;
    ConnectionId share = 0;
    std::optional<Compiled> compiled = {};
  };
  struct Compiling {
    DeepThread thread = {};
    std::shared_ptr<Job> job = {};  // null: waits for one
    bool is_late = false;           // the job has been answered without it
    bool is_slow = false;           // it has had its kTurnTime
    Clock::time_point since = {};   // when the job was begun
  };
  struct Known {
    Grammar grammar;
    Compiled compiled;
    std::optional<Grammar> stand_in = {};

    std::size_t num_bytes() const {
      return grammar.text.size() + (stand_in ? stand_in->text.size() : 0);
    }
  };

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  int vocab_size = 0;
  std::vector<TokenId> eos_ids;
  CompilerOptions options;
  std::mutex vocabulary_mutex;
  std::optional<Result<std::shared_ptr<const Vocabulary>>> vocabulary;  // guarded by it

  std::mutex mutex;  // guards what follows
  runtime::Condition changed;
  std::deque<std::shared_ptr<Job>> jobs;  // not answered; in the order of their deadlines
  // Those of them that are not begun.
  TurnQueue<std::shared_ptr<Job>> waiting{kWaitingMax, kWaitingMax};
  std::list<Known> known;  // the last used one first
  bool stopping = false;
  std::deque<Compiling> compiling;  // its elements stay where they are
  DeepThread answering;

  // Then it is the first one.
  bool is_known(const Grammar& grammar);
  std::optional<Compiled> find_known(const Grammar& grammar);
  // Takes `done` and `resumed` where there is no answer yet.
  std::optional<Compiled> answer_or_queue(const Grammar& grammar, Done& done,
                                          std::vector<TokenId>& resumed, ConnectionId share);
  void remember(Known found);
  bool may_begin(ConnectionId share) const;
  bool all_are_late() const;
  bool all_are_slow() const;
  std::size_t num_of(ConnectionId share) const;
  Clock::time_point next_slow() const;
  bool find_slow();
  static void start_spare(const std::shared_ptr<Impl>& impl);
  // Whether the job has no answer yet since it takes long itself, and not those before it.
  bool is_taking_long(const Job& job) const;
  Error unfinished(bool takes_long) const;
  Compiled compile_anew(const Grammar& grammar);
  void compile_all(Compiling& self);
  static Result<void> start_compiling(const std::shared_ptr<Impl>& impl);
  static Result<void> start_threads(const std::shared_ptr<Impl>& impl);
  static void answer_all(const std::shared_ptr<Impl>& impl);
  void end();
};

// Without looking at triggers.
bool GrammarCompiler::Impl::is_known(const Grammar& grammar) {
  const auto found = std::ranges::find_if(known, [&](const Known& each) {
    return each.grammar.kind == grammar.kind && each.grammar.text == grammar.text;
  });
  if (found == known.end()) return false;
  known.splice(known.begin(), known, found);
  return true;
}

std::optional<Compiled> GrammarCompiler::Impl::find_known(const Grammar& grammar) {
  return is_known(grammar) ? std::optional(known.front().compiled) : std::nullopt;
}

void GrammarCompiler::Impl::remember(Known found) {
  if (is_known(found.grammar)) known.pop_front();
  known.push_front(std::move(found));
  std::size_t num_bytes = 0;
  const auto is_beyond = [&](const Known& each) {
    return (num_bytes += each.num_bytes()) > kKnownBytesMax;
  };
  known.erase(std::ranges::find_if(known, is_beyond), known.end());
  if (known.size() > kKnownMax) known.pop_back();
}

// One at a time is compiled, but for those that are late or, for others, slow; and one share leaves
// a thread to the others.
bool GrammarCompiler::Impl::may_begin(ConnectionId share) const {
  std::size_t num_own = 0;
  for (const Compiling& each : compiling) {
    if (each.job == nullptr) continue;
    const bool is_own = each.job->share == share;
    num_own += is_own ? 1 : 0;
    if (!each.is_late && (is_own || !each.is_slow)) return false;
  }
  return num_own + 1 < kCompilingMax;
}

bool GrammarCompiler::Impl::all_are_slow() const {
  return !compiling.empty() && std::ranges::all_of(compiling, [](const Compiling& each) {
    return each.job != nullptr && (each.is_late || each.is_slow);
  });
}

std::size_t GrammarCompiler::Impl::num_of(ConnectionId share) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(jobs, [&](const auto& job) { return job->share == share; }));
}

bool GrammarCompiler::Impl::all_are_late() const {
  return !compiling.empty() && std::ranges::all_of(compiling, &Compiling::is_late);
}

bool GrammarCompiler::Impl::is_taking_long(const Job& job) const {
  return std::ranges::any_of(compiling,
                             [&](const Compiling& each) { return each.job.get() == &job; });
}

Compiled GrammarCompiler::Impl::compile_anew(const Grammar& grammar) {
  std::shared_ptr<const Vocabulary> tokens;
  {
    const std::lock_guard lock(vocabulary_mutex);
    if (!vocabulary) vocabulary = Vocabulary::make(tokenizer, vocab_size, eos_ids);
    if (!*vocabulary) return vocabulary->error();
    tokens = **vocabulary;
  }
  return compile_for(tokens, grammar);
}

void GrammarCompiler::Impl::compile_all(Compiling& self) {
  std::unique_lock lock(mutex);
  while (true) {
    std::optional<std::shared_ptr<Job>> next;
    changed.wait(lock, [&] {
      if (!stopping) next = waiting.pop_if([&](ConnectionId share) { return may_begin(share); });
      return stopping || next;
    });
    if (stopping) return;
    self.job = *std::move(next);
    self.since = Clock::now();
    changed.notify_all();  // its turn ends after a while
    const std::shared_ptr<Job> job = self.job;
    std::optional<Compiled> compiled = find_known(job->grammar);
    const bool was_known = compiled.has_value();
    lock.unlock();
    if (!was_known) {
      compiled = guarded([&] { return compile_anew(job->grammar); }, "grammar: ");
    }
    std::optional<Compiled> answer = compiled;
    if (compiled->ok() && !job->resumed.empty() && !(**compiled)->allows_anything()) {
      answer = guarded([&] { return resume(***compiled, job->resumed); }, "resumed: ");
    }
    lock.lock();
    const bool is_lasting = compiled->ok() || compiled->error().code == ErrorCode::kInvalid;
    if (!was_known && is_lasting) remember({job->grammar, *compiled});
    job->compiled = std::move(answer);
    self.job = nullptr;
    self.is_late = self.is_slow = false;
    changed.notify_all();
  }
}

// With the mutex held, as start_threads().
Result<void> GrammarCompiler::Impl::start_compiling(const std::shared_ptr<Impl>& impl) {
  Compiling& self = impl->compiling.emplace_back();
  Result<void> started = guarded([&] {
    return self.thread.start(kCompileStackBytes, [impl, &self] { impl->compile_all(self); });
  });
  if (!started) impl->compiling.pop_back();
  return started;
}

// Where others wait for a thread; without it what waits is answered when its time is over.
void GrammarCompiler::Impl::start_spare(const std::shared_ptr<Impl>& impl) {
  const bool is_needed = !impl->stopping && !impl->waiting.empty() && impl->all_are_slow();
  if (is_needed && impl->compiling.size() < kCompilingMax) (void)start_compiling(impl);
}

// Those that are not there yet.
Result<void> GrammarCompiler::Impl::start_threads(const std::shared_ptr<Impl>& impl) {
  if (impl->compiling.empty()) {
    if (Result<void> started = start_compiling(impl); !started) return started;
  }
  if (impl->answering.joinable()) return {};
  return impl->answering.start(kAnswerStackBytes, [impl] { answer_all(impl); });
}

Error GrammarCompiler::Impl::unfinished(bool takes_long) const {
  if (stopping) return {ErrorCode::kStopping, "grammar: its model is being unloaded"};
  const std::string time = std::to_string(options.timeout.count()) + " ms";
  if (takes_long) {
    return {ErrorCode::kInvalid,
            "grammar: took longer than " + time + " to compile; allowed are simpler ones"};
  }
  return {ErrorCode::kOverloaded,
          "grammar: waited " + time + " for others to be compiled; try again later"};
}

// When a job that is compiled becomes slow.
Clock::time_point GrammarCompiler::Impl::next_slow() const {
  auto until = Clock::time_point::max();
  for (const Compiling& each : compiling) {
    if (each.job != nullptr && !each.is_slow) until = std::min(until, each.since + kTurnTime);
  }
  return until;
}

// Whether one has become it.
bool GrammarCompiler::Impl::find_slow() {
  bool is_found = false;
  for (Compiling& each : compiling) {
    if (each.job == nullptr || each.is_slow || Clock::now() < each.since + kTurnTime) continue;
    each.is_slow = is_found = true;
  }
  if (is_found) changed.notify_all();
  return is_found;
}

void GrammarCompiler::Impl::answer_all(const std::shared_ptr<Impl>& impl) {
  std::unique_lock lock(impl->mutex);
  auto& jobs = impl->jobs;
  while (true) {
    const auto is_due = [&](const std::shared_ptr<Job>& job) {
      return impl->stopping || job->compiled || job->deadline <= Clock::now();
    };
    const auto due = std::ranges::find_if(jobs, is_due);
    if (due == jobs.end()) {
      if (impl->stopping) return;
      const auto until = impl->next_slow();
      if (jobs.empty() && until == Clock::time_point::max()) {
        impl->changed.wait(lock);
      } else {
        impl->changed.wait_until(lock,
                                 jobs.empty() ? until : std::min(until, jobs.front()->deadline));
      }
      if (impl->find_slow()) start_spare(impl);
      continue;
    }
    const std::shared_ptr<Job> job = std::move(*due);
    jobs.erase(due);
    impl->waiting.erase(job->share, job);
    const bool takes_long = impl->is_taking_long(*job);
    Compiled answer = job->compiled ? *job->compiled : impl->unfinished(takes_long);
    if (takes_long && !impl->stopping) {
      for (Compiling& each : impl->compiling) each.is_late |= each.job == job;
      if (impl->all_are_late() && impl->compiling.size() < kCompilingMax) {
        (void)start_compiling(impl);  // without it what waits is answered when its time is over
      }
      impl->changed.notify_all();
    }
    // What it holds may end with it: the model, and this compiler.
    Done done = std::move(job->done);
    lock.unlock();
    done(std::move(answer));
    done = nullptr;
    lock.lock();
  }
}

// A thread that is late, or becomes it, keeps what it needs, and ends when it can.
void GrammarCompiler::Impl::end() {
  std::unique_lock lock(mutex);
  stopping = true;
  changed.notify_all();
  for (Compiling& each : compiling) {
    const auto until = each.job == nullptr ? Clock::now() : each.job->deadline;
    changed.wait_until(lock, until, [&] { return each.job == nullptr; });
    const bool ends = each.job == nullptr && !each.thread.is_current();
    lock.unlock();
    if (ends) {
      each.thread.join();
    } else {
      each.thread.detach();
    }
    lock.lock();
  }
  lock.unlock();
  if (!answering.joinable()) return;
  // What was answered may have held the model.
  if (answering.is_current()) {
    answering.detach();
  } else {
    answering.join();
  }
}

GrammarCompiler::GrammarCompiler(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                 int vocab_size, std::vector<TokenId> eos_ids,
                                 CompilerOptions options)
    : impl_(std::make_shared<Impl>()) {
  impl_->tokenizer = std::move(tokenizer);
  impl_->vocab_size = vocab_size;
  impl_->eos_ids = std::move(eos_ids);
  impl_->options = options;
}

GrammarCompiler::~GrammarCompiler() { impl_->end(); }

std::optional<Compiled> GrammarCompiler::Impl::answer_or_queue(const Grammar& grammar, Done& done,
                                                               std::vector<TokenId>& resumed,
                                                               ConnectionId share) {
  if (std::optional<Compiled> found = find_known(grammar)) {
    if (!found->ok() || resumed.empty()) return found;
  }
  if (grammar.text.size() > options.bytes_max) {
    return Error{ErrorCode::kInvalid, "grammar: has " + std::to_string(grammar.text.size()) +
                                          " bytes; allowed are at most " +
                                          std::to_string(options.bytes_max)};
  }
  const auto is_it = [&](const Compiling& each) {
    return each.is_late && each.job->grammar == grammar;
  };
  if (std::ranges::any_of(compiling, is_it)) return unfinished(true);
  if (compiling.size() == kCompilingMax && all_are_late()) {
    return Error{ErrorCode::kOverloaded, "grammar: " + std::to_string(kCompilingMax) +
                                             " others take long to compile; try again later"};
  }
  const std::size_t num_own = num_of(share);
  if (jobs.size() >= kWaitingMax || num_own >= kWaitingOfOneMax) {
    const std::size_t num = jobs.size() >= kWaitingMax ? jobs.size() : num_own;
    return Error{ErrorCode::kOverloaded,
                 "grammar: " + std::to_string(num) + " wait already; try again later"};
  }
  const auto num_late = static_cast<std::size_t>(std::ranges::count_if(
      compiling, [&](const Compiling& each) { return each.is_late && each.job->share == share; }));
  if (num_late + 1 >= kCompilingMax) {
    return Error{ErrorCode::kOverloaded, "grammar: " + std::to_string(num_late) +
                                             " others take long to compile; try again later"};
  }
  auto job = std::make_shared<Job>(
      Job{grammar, std::move(resumed), std::move(done), Clock::now() + options.timeout, share});
  jobs.push_back(job);
  (void)waiting.push(share, std::move(job));
  return std::nullopt;
}

void GrammarCompiler::compile(const Grammar& grammar, Done done, std::vector<TokenId> resumed,
                              ConnectionId share) {
  std::optional<Compiled> answer;
  {
    const std::lock_guard lock(impl_->mutex);
    answer = impl_->answer_or_queue(grammar, done, resumed, share);
    const Result<void> started = answer ? Result<void>() : Impl::start_threads(impl_);
    if (!started) {
      answer = as_grammar_error(started.error());
      done = std::move(impl_->jobs.back()->done);
      impl_->waiting.erase(share, impl_->jobs.back());
      impl_->jobs.pop_back();
    }
    if (!answer) Impl::start_spare(impl_);
  }
  if (answer) {
    done(*std::move(answer));
  } else {
    impl_->changed.notify_all();
  }
}

void GrammarCompiler::set_stand_in(const Grammar& of, const Grammar& other) {
  const std::lock_guard lock(impl_->mutex);
  if (of.text.size() + other.text.size() > kKnownBytesMax / 2) return;
  const auto compiled = impl_->find_known(of);
  impl_->remember({{of.kind, of.text},
                   compiled.value_or(impl_->unfinished(true)),
                   Grammar{other.kind, other.text}});
}

std::optional<Grammar> GrammarCompiler::stand_in(const Grammar& of) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_known(of) ? impl_->known.front().stand_in : std::nullopt;
}

Result<void> grammar_support() {
  const Result<const llg::Api*> api = llguidance();
  if (!api) return api.error();
  return {};
}

}  // namespace lmtp::constraint
