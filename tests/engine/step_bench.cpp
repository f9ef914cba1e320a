// step-bench: what the engine's thread takes for a step besides the model, in microseconds: plan,
// commit, and the delivery of the events to sinks that only take them. The agent is a null one, and
// the time inside it does not count.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/base/log.h"
#include "lmtp/engine/engine.h"
#include "watched_agent.h"

namespace lmtp::engine {
namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

constexpr int kVocab = 1000;
constexpr int kContext = 4096;
constexpr int kNumConnections = 8;
constexpr int kPromptTokens = 4;
constexpr const char* kHelp =
    "usage: step_bench [--streams N[,N...]] [--steps N] [--ahead]\n"
    "\n"
    "Prints the time that a step of the engine takes on a null model: of all steps in which as "
    "many\n"
    "streams run as can, the median and the quartiles, in microseconds.\n"
    "\n"
    "  --streams  64,512: so many streams at a time, over 8 connections\n"
    "  --steps    2000: tokens of each stream, 64 to 4000\n"
    "  --ahead    the next step is started before the last has ended, as on a device\n";

// Every row gets token 1. Waits for `go` before it begins.
class NullAgent : public scheduler::ModelAgent {
 public:
  NullAgent(int num_blocks, bool ahead, std::shared_future<void> go)
      : num_blocks_(num_blocks), ahead_(ahead), go_(std::move(go)) {}

  scheduler::AgentInfo info() const override {
    return {.device = "cpu", .dtype = "none", .num_blocks = num_blocks_};
  }
  Result<void> forward(const scheduler::StepPlan& plan) override {
    go_.wait();
    scheduler::StepResult& result = under_way_.emplace_back();
    result.rows.resize(plan.rows.size());
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      for (int k = 0; k < plan.rows[i].num_logits; ++k) {
        scheduler::TokenResult& token = result.rows[i].tokens.emplace_back();
        token.token = 1;
        token.top_logprobs.push_back({1, 0.0F});
      }
    }
    return {};
  }
  Result<void> choose(std::span<const scheduler::RowMask> /*masks*/) override { return {}; }
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override {
    result = std::move(under_way_.front());
    under_way_.pop_front();
    return {};
  }
  bool runs_ahead() const override { return ahead_; }

 private:
  const int num_blocks_;
  const bool ahead_;
  const std::shared_future<void> go_;
  std::deque<scheduler::StepResult> under_way_;
};

// Takes what is delivered, as a connection's mail does, and waits for the ends.
class TakingSink : public EventSink {
 public:
  explicit TakingSink(int num_streams) : num_open_(num_streams) {}

  void deliver(std::span<StreamEvent> events) override {
    const std::lock_guard lock(mutex_);
    taken_.clear();
    taken_.insert(taken_.end(), std::make_move_iterator(events.begin()),
                  std::make_move_iterator(events.end()));
    num_open_ -= static_cast<int>(std::ranges::count_if(taken_, is_last));
    if (num_open_ == 0) done_.set_value();
  }
  void wait() { done_.get_future().wait(); }

 private:
  std::mutex mutex_;
  std::vector<StreamEvent> taken_;
  int num_open_;
  std::promise<void> done_;
};

// The time between the ends of two collect() that is not spent inside the agent.
class Times : public testing::AgentWatcher {
 public:
  explicit Times(int num_steps) { steps_.reserve(static_cast<std::size_t>(num_steps) * 2); }

  struct Step {
    int num_rows = 0;
    double us = 0.0;
  };

  void enter() override { outside_ += Clock::now() - left_; }
  void leave() override { left_ = Clock::now(); }
  void collected(int num_rows) override {
    if (steps_.size() < steps_.capacity()) steps_.push_back({num_rows, Micros(outside_).count()});
    outside_ = {};
  }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  Clock::time_point left_ = Clock::now();
  Clock::duration outside_{};
  std::vector<Step> steps_;
};

void measure(int num_streams, int num_steps, bool ahead) {
  const int blocks_a_stream = (kContext + kBlockSize - 1) / kBlockSize + 1;
  Times times(num_steps);
  std::promise<void> go;  // all streams are there
  EngineOptions options;
  options.max_concurrent_requests = num_streams;
  options.score_cache_bytes = kDefaultScoreCacheBytes;
  {
    Engine engine(
        std::make_unique<testing::WatchedAgent>(
            std::make_unique<NullAgent>(num_streams * blocks_a_stream + 2, ahead, go.get_future()),
            times),
        {.vocab_size = kVocab, .context_length = kContext, .eos_ids = {}}, options);
    std::vector<std::shared_ptr<TakingSink>> sinks;
    for (int c = 0; c < kNumConnections; ++c) {
      const int num_more = c < num_streams % kNumConnections ? 1 : 0;
      sinks.push_back(std::make_shared<TakingSink>(num_streams / kNumConnections + num_more));
    }
    for (int i = 0; i < num_streams; ++i) {
      const auto connection = static_cast<std::size_t>(i % kNumConnections);
      Request request;
      request.key = {connection + 1, i};
      request.sink = sinks[connection];
      // Nothing is shared: each stream's blocks are its own.
      for (int k = 0; k < kPromptTokens; ++k) request.prompt.push_back((i * (k + 3)) % kVocab);
      request.params.max_tokens = num_steps;
      if (!engine.instance().submit(std::move(request))) std::abort();
    }
    go.set_value();
    for (int c = 0; c < std::min(kNumConnections, num_streams); ++c) {
      sinks[static_cast<std::size_t>(c)]->wait();
    }
  }
  int most = 0;
  for (const Times::Step& step : times.steps()) most = std::max(most, step.num_rows);
  std::vector<double> us;
  for (const Times::Step& step : times.steps()) {
    if (step.num_rows == most) us.push_back(step.us);
  }
  std::ranges::sort(us);
  const auto at = [&us](double share) {
    return us[static_cast<std::size_t>(share * static_cast<double>(us.size() - 1))];
  };
  std::printf("%7d %5d %6zu %8.1f %8.1f %8.1f %11.1f\n", num_streams, most, us.size(), at(0.25),
              at(0.5), at(0.75), at(0.5) * 1000 / most);
  std::fflush(stdout);
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// 0: it is none.
int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "step_bench: %s\n\n%s", why.c_str(), kHelp);
  return 2;
}

int run(std::span<char*> arguments) {
  log::set_level(log::Level::kWarning);  // no line for each stream
  std::string_view streams = "64,512";
  int num_steps = 2000;
  bool ahead = false;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (name == "--ahead") {
      ahead = true;
    } else if (name == "--streams" && i + 1 < arguments.size()) {
      streams = arguments[++i];
    } else if (name == "--steps" && i + 1 < arguments.size()) {
      num_steps = number(arguments[++i]);
      if (num_steps < 64 || num_steps > 4000) return refuse("--steps: allowed are 64 to 4000");
    } else {
      return refuse("'" + std::string(name) + "' is unknown, or has no value");
    }
  }
  std::printf("%s, %u processors\n", processor().c_str(), std::thread::hardware_concurrency());
  std::printf("%7s %5s %6s %8s %8s %8s %11s\n", "streams", "rows", "steps", "25 % us", "median",
              "75 %", "ns a row");
  while (!streams.empty()) {
    const std::size_t end = std::min(streams.find(','), streams.size());
    const int num_streams = number(streams.substr(0, end));
    if (num_streams < 1 || num_streams > 4096) return refuse("--streams: allowed are 1 to 4096");
    measure(num_streams, num_steps, ahead);
    streams.remove_prefix(std::min(end + 1, streams.size()));
  }
  return 0;
}

}  // namespace
}  // namespace lmtp::engine

int main(int argc, char** argv) {
  return lmtp::engine::run({argv, static_cast<std::size_t>(argc)});
}
