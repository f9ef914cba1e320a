// A stream that a step has held although its controller was not asked: it ends, and nothing else.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "controlled_streams.h"
#include "inbox.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "scheduler_driver.h"

namespace lmtp::engine {
namespace {

class GoesOn : public aici::Runtime {
 public:
  void upload(std::string, aici::Auth, Done<Result<aici::ModuleInfo>>) override {}
  void set_tags(std::string, std::vector<std::string>, aici::Auth,
                Done<Result<std::vector<aici::TagInfo>>>) override {}
  void get_tags(aici::Auth, Done<Result<std::vector<aici::TagInfo>>>) override {}
  void instantiate(aici::InstantiateRequest, Done<Result<aici::Instantiated>>) override {}
  void bind(const std::string&, aici::Sequence) override {}
  void discard(const std::string&) override {}
  void advance(aici::Sequence, aici::Report, Done<aici::Advance> done) override { done({}); }
  void choose(aici::Sequence, std::vector<aici::Sequence>, Done<aici::Choice>) override {}
  void fork(aici::Sequence, std::vector<aici::Sequence>) override {}
  void free(aici::Sequence) override {}
};

class EndsKept : public ControlledStreams::Host {
 public:
  Result<void> take_room(const StreamKey&, std::size_t) override { return {}; }
  void leave_room(const StreamKey&, std::size_t) override {}
  void give(const StreamKey&, StreamEvent) override {}
  void end(const StreamKey& key, const std::optional<Error>& error) override {
    ends.push_back({key.stream, error ? error->message : ""});
  }
  void begin_fork(const StreamKey&, const StreamKey&, const ForkBegun&) override {}

  std::vector<std::pair<StreamId, std::string>> ends;
};

TEST(LostChoice, EndsItsStreamAlone) {
  constexpr int kVocabSize = 1000;
  EndsKept host;
  const auto inbox = std::make_shared<EngineInstance::Inbox>(8, EngineCounters());
  ControlledStreams controlled(host, inbox, kVocabSize);
  scheduler::SchedulerOptions options;
  options.context_length = 64;
  options.vocab_size = kVocabSize;
  testing::SchedulerDriver driver({}, options);
  aici::Instance instance(std::make_shared<GoesOn>(), "1");
  auto sequence = std::make_unique<scheduler::Sequence>();
  sequence->key = {1, 1};
  sequence->tokens = {1, 2, 3};
  sequence->num_prompt = 3;
  sequence->params.max_tokens = 5;
  sequence->is_controlled = true;
  controlled.begin(*sequence, instance);
  const StreamKey key = driver.add(std::move(sequence));
  controlled.start(key, driver.scheduler());
  for (EngineCommand& command : inbox->queue.drain()) {
    controlled.apply(std::get<ControllerAnswer>(command), driver.scheduler());
  }
  driver.generate(2, {4, 5}, 3);
  EXPECT_TRUE(driver.step()) << "without masks";
  controlled.committed();
  controlled.take_choices(driver.scheduler());
  const std::vector<std::pair<StreamId, std::string>> expected = {
      {1, "internal: the controller's choice is missing"}};
  EXPECT_EQ(host.ends, expected);
}

}  // namespace
}  // namespace lmtp::engine
