#include "lmtp/constraint/grammar_compiler.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "compiled_grammar.h"
#include "deep_thread.h"
#include "grammar_text.h"
#include "llguidance_library.h"
#include "lmtp/base/guarded.h"
#include "matcher.h"
#include "vocabulary.h"

namespace lmtp::constraint {
namespace {

using Clock = std::chrono::steady_clock;
using Compiled = GrammarCompiler::Compiled;

// For chains of as many terminals as a grammar has room for.
constexpr std::size_t kCompileStackBytes = std::size_t{1} << 30;
constexpr std::size_t kAnswerStackBytes = std::size_t{1} << 20;
constexpr std::size_t kWaitingMax = 64;
constexpr std::size_t kKnownMax = 256;
constexpr std::size_t kKnownBytesMax = std::size_t{16} << 20;  // of their texts

Error as_grammar_error(const Error& error) {
  const bool is_own = error.message.starts_with("grammar: ");
  return {error.code, (is_own ? "" : "grammar: ") + error.message};
}

Compiled compile_for(const std::shared_ptr<const Vocabulary>& vocabulary, const Grammar& grammar) {
  const Result<LibraryGrammar> text = to_library_grammar(grammar);
  if (!text) return as_grammar_error(text.error());
  Result<Matcher> matcher = Matcher::make(vocabulary, text->kind, text->text);
  if (!matcher) return as_grammar_error(matcher.error());
  // The first mask: a grammar of no text at all is refused here, and what it takes is taken here.
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocabulary->size()) + 31) / 32);
  const Result<void> first = matcher->mask(words);
  if (!first) {
    return Error{ErrorCode::kInvalid, "grammar: has no beginning: " + first.error().message};
  }
  return std::make_shared<const CompiledGrammar>(vocabulary, std::move(*matcher));
}

}  // namespace

// Two threads: one compiles, and may take long over one grammar; the other answers, also for what
// waits too long.
struct GrammarCompiler::Impl {
  struct Job {
    Grammar grammar;
    Done done;
    Clock::time_point deadline;
    std::optional<Compiled> compiled;
  };
  struct Known {
    Grammar grammar;
    Compiled compiled;
  };

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  int vocab_size = 0;
  std::vector<TokenId> eos_ids;
  CompilerOptions options;
  std::optional<Result<std::shared_ptr<const Vocabulary>>> vocabulary;  // the compiling thread's

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;     // not answered; in the order of their deadlines
  std::deque<std::shared_ptr<Job>> waiting;  // of these, those that are not begun
  std::list<Known> known;                    // the last used one first
  std::size_t known_bytes = 0;
  bool stopping = false;
  DeepThread compiling;
  DeepThread answering;

  std::optional<Compiled> find_known(const Grammar& grammar);
  // Takes `done` where there is no answer yet.
  std::optional<Compiled> answer_or_queue(const Grammar& grammar, Done& done);
  void remember(const Grammar& grammar, const Compiled& compiled);
  Error unfinished() const;
  void compile_all();
  void answer_all();
};

std::optional<Compiled> GrammarCompiler::Impl::find_known(const Grammar& grammar) {
  for (auto at = known.begin(); at != known.end(); ++at) {
    if (at->grammar != grammar) continue;
    known.splice(known.begin(), known, at);
    return at->compiled;
  }
  return std::nullopt;
}

void GrammarCompiler::Impl::remember(const Grammar& grammar, const Compiled& compiled) {
  known.push_front({grammar, compiled});
  known_bytes += grammar.text.size();
  while (known.size() > kKnownMax || known_bytes > kKnownBytesMax) {
    known_bytes -= known.back().grammar.text.size();
    known.pop_back();
  }
}

void GrammarCompiler::Impl::compile_all() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !waiting.empty(); });
    if (stopping) return;
    const std::shared_ptr<Job> job = std::move(waiting.front());
    waiting.pop_front();
    std::optional<Compiled> compiled = find_known(job->grammar);
    if (!compiled) {
      lock.unlock();
      compiled = guarded(
          [&]() -> Compiled {
            if (!vocabulary) vocabulary = Vocabulary::make(tokenizer, vocab_size, eos_ids);
            if (!*vocabulary) return vocabulary->error();
            return compile_for(**vocabulary, job->grammar);
          },
          "grammar: ");
      lock.lock();
      const bool is_lasting = compiled->ok() || compiled->error().code == ErrorCode::kInvalid;
      if (is_lasting) remember(job->grammar, *compiled);
    }
    job->compiled = std::move(compiled);
    changed.notify_all();
  }
}

Error GrammarCompiler::Impl::unfinished() const {
  if (stopping) return {ErrorCode::kStopping, "grammar: its model is being unloaded"};
  return {ErrorCode::kInvalid, "grammar: took longer than " +
                                   std::to_string(options.timeout.count()) +
                                   " ms to compile; allowed are simpler ones"};
}

void GrammarCompiler::Impl::answer_all() {
  std::unique_lock lock(mutex);
  while (true) {
    const auto is_due = [&](const std::shared_ptr<Job>& job) {
      return stopping || job->compiled || job->deadline <= Clock::now();
    };
    const auto due = std::ranges::find_if(jobs, is_due);
    if (due == jobs.end()) {
      if (stopping) return;
      if (jobs.empty()) {
        changed.wait(lock);
      } else {
        changed.wait_until(lock, jobs.front()->deadline);
      }
      continue;
    }
    const std::shared_ptr<Job> job = std::move(*due);
    jobs.erase(due);
    std::erase(waiting, job);
    Compiled answer = job->compiled ? *job->compiled : unfinished();
    // What it holds may end with it: the model, and this compiler.
    Done done = std::move(job->done);
    lock.unlock();
    done(std::move(answer));
    done = nullptr;
    lock.lock();
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

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  for (DeepThread* thread : {&impl_->compiling, &impl_->answering}) {
    if (!thread->joinable()) continue;
    // What was answered may have held the model.
    if (thread->is_current()) {
      thread->detach();
    } else {
      thread->join();
    }
  }
}

std::optional<Compiled> GrammarCompiler::Impl::answer_or_queue(const Grammar& grammar, Done& done) {
  if (std::optional<Compiled> found = find_known(grammar)) return found;
  if (grammar.text.size() > kMaxGrammarBytes) {
    return as_grammar_error(to_library_grammar(grammar).error());
  }
  if (jobs.size() >= kWaitingMax) {
    return Error{ErrorCode::kOverloaded,
                 "grammar: " + std::to_string(kWaitingMax) + " wait already; try again later"};
  }
  auto job =
      std::make_shared<Job>(Job{grammar, std::move(done), Clock::now() + options.timeout, {}});
  jobs.push_back(job);
  waiting.push_back(std::move(job));
  return std::nullopt;
}

void GrammarCompiler::compile(const Grammar& grammar, Done done) {
  std::optional<Compiled> answer;
  {
    const std::lock_guard lock(impl_->mutex);
    answer = impl_->answer_or_queue(grammar, done);
    if (!answer && !impl_->compiling.joinable()) {
      impl_->compiling = DeepThread(kCompileStackBytes, [impl = impl_] { impl->compile_all(); });
      impl_->answering = DeepThread(kAnswerStackBytes, [impl = impl_] { impl->answer_all(); });
    }
  }
  if (answer) {
    done(*std::move(answer));
  } else {
    impl_->changed.notify_all();
  }
}

Result<void> grammar_support() {
  const Result<const llg::Api*> api = llguidance();
  if (!api) return api.error();
  return {};
}

}  // namespace lmtp::constraint
