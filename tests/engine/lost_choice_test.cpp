// Streams with controllers where something is lost (a choice, an event, memory): each ends once.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "controlled_streams.h"
#include "fake_agent.h"
#include "inbox.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"
#include "scheduler_driver.h"

namespace lmtp::engine {
namespace {

constexpr int kLostVocab = 1000;

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
  void finish(const StreamKey& key, TokenEvent) override { ends.push_back({key.stream, ""}); }
  void end(const StreamKey& key, const Error& error) override {
    ends.push_back({key.stream, error.message});
  }
  void begin_fork(const StreamKey&, const StreamKey&, const ForkBegun&) override {}

  std::vector<std::pair<StreamId, std::string>> ends;
};

TEST(LostChoice, EndsItsStreamAlone) {
  EndsKept host;
  const auto inbox = std::make_shared<EngineInstance::Inbox>(8, EngineCounters());
  ControlledStreams controlled(host, inbox, kLostVocab);
  scheduler::SchedulerOptions options;
  options.context_length = 64;
  options.vocab_size = kLostVocab;
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

// Draws a token and stops. Its first free() has no memory.
class Stops : public GoesOn {
 public:
  void choose(aici::Sequence, std::vector<aici::Sequence>, Done<aici::Choice> done) override {
    aici::Choice choice;
    if (num_choices_++ == 0) {
      choice.branches.emplace_back();
    } else {
      choice.kind = aici::Choice::Kind::kStop;
    }
    done(std::move(choice));
  }
  void free(aici::Sequence) override {
    if (++num_frees == 1) throw std::bad_alloc();
  }

  int num_frees = 0;

 private:
  int num_choices_ = 0;
};

// Whose first delivery, of a token, may fail.
class LosesAToken : public testing::RecordingSink {
 public:
  explicit LosesAToken(bool fails) : fails_(fails) {}
  void deliver(std::span<StreamEvent> events) override {
    if (std::exchange(fails_, false)) throw std::bad_alloc();
    RecordingSink::deliver(events);
  }

 private:
  bool fails_;
};

TEST(LostChoice, AStreamThatStopsEndsOnceWhateverIsLost) {
  for (const bool loses_token : {false, true}) {
    const auto runtime = std::make_shared<Stops>();
    const auto sink = std::make_shared<LosesAToken>(loses_token);
    {
      testing::FakeAgentOptions agent;
      agent.vocab_size = kLostVocab;
      Engine engine(testing::make_fake_agent(agent),
                    {.vocab_size = kLostVocab, .context_length = 64, .eos_ids = {}}, {});
      Request request;
      request.key = {1, 1};
      request.sink = sink;
      request.prompt = {1, 2, 3};
      request.params.max_tokens = 5;
      request.controller = std::make_shared<aici::Instance>(runtime, "1");
      ASSERT_TRUE(engine.instance().submit(std::move(request)));
      sink->wait_done(1);
    }
    const testing::RecordingSink::Stream stream = sink->wait_done(1);
    EXPECT_EQ(stream.num_ends, 1);
    EXPECT_EQ(stream.error, loses_token ? "internal: tokens of this stream were lost" : "");
    EXPECT_EQ(runtime->num_frees, 2);
  }
}

}  // namespace
}  // namespace lmtp::engine
