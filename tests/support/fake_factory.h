// A model factory over null agents. The test defines which names exist, what fails and what is
// slow, and can query how often each model was loaded and which are loaded now.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "fake_agent.h"
#include "fake_tokenizer.h"
#include "lmtp/registry/model_factory.h"

namespace lmtp::testing {

inline constexpr int kFakeVocabSize = 1000;
inline constexpr int kFakeContext = 512;

// A model NAME, also known as "/models/NAME"; a test may change any member.
inline registry::ServedModel fake_served_model(const std::string& name,
                                               FakeAgentOptions agent = {}) {
  registry::ServedModel model;
  model.key = "/models/" + name;
  model.description.name = name;
  model.description.type = "fake_type";
  model.description.architecture = "FakeForCausalLM";
  model.description.constructor = "make_fake_models(\"" + name + "\")";
  model.description.tokenizer = model.key;
  model.description.dtype = "none";
  model.description.device = "cpu";
  model.names = {name, model.key};
  model.limits.vocab_size = kFakeVocabSize;
  model.limits.context_length = kFakeContext;
  agent.vocab_size = kFakeVocabSize;
  model.load = [agent](std::int64_t, const scheduler::LoadProgress& progress) {
    progress(100);
    return Result<std::unique_ptr<scheduler::ModelAgent>>(make_fake_agent(agent));
  };
  model.load_tokenizer = [] {
    return registry::LoadedTokenizer(std::make_shared<const FakeTokenizer>(kFakeVocabSize, false));
  };
  return model;
}

// By default no name is known; a test adds models.
class FakeFactory : public registry::ModelFactory {
 public:
  using Make = std::function<Result<registry::ServedModel>(const std::string&)>;
  using Fetch =
      std::function<Result<registry::ServedModel>(const std::string&, const DownloadProgress&)>;

  FakeFactory() = default;
  explicit FakeFactory(Make find) : find_(std::move(find)) {}

  // Replaces find in fetch(). Call before other threads use the factory.
  void set_fetch(Fetch fetch) { fetch_ = std::move(fetch); }
  void set_free_memory(std::function<std::optional<std::int64_t>()> free) {
    free_ = std::move(free);
  }

  Result<registry::ServedModel> find(const std::string& name) override {
    if (!find_) return Error{ErrorCode::kInternal, "'" + name + "' is unknown"};
    return find_(name);
  }
  Result<registry::ServedModel> fetch(const std::string& name,
                                      const DownloadProgress& progress) override {
    return fetch_ ? fetch_(name, progress) : find(name);
  }
  std::optional<std::int64_t> free_memory_bytes() override {
    return free_ ? free_() : std::nullopt;
  }

 private:
  Make find_;
  Fetch fetch_;
  std::function<std::optional<std::int64_t>()> free_;
};

// Counts the agents of each key that are alive; aborts where one is loaded twice at a time.
class AgentCensus {
 public:
  void enter(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const int now = ++alive_[key];
    ++num_loads_[key];
    LMTP_CHECK(now == 1, "is loaded twice", key);
    num_alive_max_ = std::max(num_alive_max_, ++num_alive_);
  }
  void leave(const std::string& key) {
    const std::lock_guard lock(mutex_);
    --alive_[key];
    --num_alive_;
  }
  int num_loads(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return num_loads_[key];
  }
  int num_alive() {
    const std::lock_guard lock(mutex_);
    return num_alive_;
  }
  int num_alive_max() {
    const std::lock_guard lock(mutex_);
    return num_alive_max_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> alive_;
  std::map<std::string, int> num_loads_;
  int num_alive_ = 0;
  int num_alive_max_ = 0;
};

// A FakeAgent that is in the census from the beginning of its loading to its end.
class CountedAgent : public FakeAgent {
 public:
  CountedAgent(FakeAgentOptions options, std::shared_ptr<AgentCensus> census, std::string key)
      : FakeAgent(std::move(options)), census_(std::move(census)), key_(std::move(key)) {
    census_->enter(key_);
  }
  ~CountedAgent() override { census_->leave(key_); }
  CountedAgent(const CountedAgent&) = delete;
  CountedAgent& operator=(const CountedAgent&) = delete;

 private:
  const std::shared_ptr<AgentCensus> census_;
  const std::string key_;
};

}  // namespace lmtp::testing
