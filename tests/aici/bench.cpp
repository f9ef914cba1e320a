// What an empty controller costs: processor time of all threads for a token (advance and choose),
// and for a fork with the first step of the copy.
#include <array>
#include <ctime>

#include <benchmark/benchmark.h>

#include "lmtp/aici/embedded_runtime.h"
#include "runtime_suite.h"

namespace lmtp::aici::testing {
namespace {

constexpr int kVocabulary = 128'256;

double processor_us() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

class Bench {
 public:
  explicit Bench(int num_threads = 2) {
    EmbeddedOptions options;
    options.num_threads = num_threads;
    options.tokenizer = std::make_shared<lmtp::testing::FakeTokenizer>(kVocabulary);
    options.vocab_size = kVocabulary;
    options.cache_folder = folder_.path();
    options.limits.forks_max = 1 << 20;
    runtime_ = std::move(*make_embedded_runtime(options));
    Answer<Result<ModuleInfo>> answer;
    runtime_->upload(read_module("empty"), {}, answer.done());
    id_ = answer.get()->module_id;
  }
  Sequence start() {
    const Sequence sequence = ++num_sequences_;
    const std::string request = std::to_string(sequence);
    Answer<Result<Instantiated>> answer;
    runtime_->instantiate({request, {1}, id_, ""}, answer.done());
    LMTP_CHECK(answer.get().ok());
    runtime_->bind(request, sequence);
    return sequence;
  }
  // A step of all.
  void step(const std::vector<Sequence>& sequences, const Report& report) {
    std::atomic<std::size_t> num_answers = 0;
    const auto wait = [&] {
      for (std::size_t now = 0; (now = num_answers.load()) < sequences.size();) {
        num_answers.wait(now);
      }
      num_answers = 0;
    };
    const auto count = [&](auto&& answer) {
      benchmark::DoNotOptimize(answer);
      if (num_answers.fetch_add(1) + 1 == sequences.size()) num_answers.notify_all();
    };
    for (const Sequence each : sequences) runtime_->advance(each, report, count);
    wait();
    for (const Sequence each : sequences) runtime_->choose(each, {each}, count);
    wait();
  }
  Runtime& runtime() { return *runtime_; }
  Sequence next() { return ++num_sequences_; }

 private:
  lmtp::testing::TempFolder folder_;
  std::unique_ptr<Runtime> runtime_;
  std::string id_;
  Sequence num_sequences_ = 0;
};

void token(benchmark::State& state) {
  Bench bench(static_cast<int>(state.range(1)));
  std::vector<Sequence> sequences;
  for (std::int64_t i = 0; i < state.range(0); ++i) sequences.push_back(bench.start());
  const Report report{.sampled = 7, .appended = {7}};
  bench.step(sequences, {});
  const double begin = processor_us();
  std::int64_t num_tokens = 0;
  for (auto _ : state) {
    bench.step(sequences, report);
    num_tokens += state.range(0);
  }
  state.counters["cpu_us_per_token"] = (processor_us() - begin) / static_cast<double>(num_tokens);
}
BENCHMARK(token)
    ->ArgNames({"streams", "threads"})
    ->Args({1, 1})
    ->Args({64, 1})
    ->Args({64, 2})
    ->UseRealTime();

void fork(benchmark::State& state) {
  Bench bench;
  const Sequence parent = bench.start();
  bench.step({parent}, {});
  const double begin = processor_us();
  std::int64_t num_forks = 0;
  for (auto _ : state) {
    const Sequence child = bench.next();
    bench.runtime().fork(parent, {child});
    bench.step({child}, {});
    bench.runtime().free(child);
    ++num_forks;
  }
  state.counters["cpu_us_per_fork"] = (processor_us() - begin) / static_cast<double>(num_forks);
}
BENCHMARK(fork)->UseRealTime();

}  // namespace
}  // namespace lmtp::aici::testing

BENCHMARK_MAIN();
