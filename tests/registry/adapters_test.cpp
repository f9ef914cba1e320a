// Adapters that come and go by request, of a server of one model and of one of any.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "registry_fixture.h"

namespace lmtp::registry {
namespace {

// What reads adapters: a test may make it wait, or fail.
class Reader {
 public:
  Result<std::shared_ptr<const Adapter>> read(const AdapterSource& source,
                                              const AdapterReading& reading) {
    std::unique_lock lock(mutex_);
    read_.push_back(source.name);
    changed_.notify_all();
    while (is_closed_) {
      if (reading.goes_on && !reading.goes_on()) {
        return Error{ErrorCode::kStopping, "was given up"};
      }
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (source.folder == "gone") return Error{ErrorCode::kNotFound, "gone: no such folder"};
    return testing::fake_adapter(source.folder.empty() ? source.name : source.folder, 2);
  }
  void close() { set(true); }
  void open() { set(false); }
  void wait_until_read(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return read_.size() >= count; });
  }
  std::vector<std::string> read() {
    const std::lock_guard lock(mutex_);
    return read_;
  }

 private:
  void set(bool is_closed) {
    const std::lock_guard lock(mutex_);
    is_closed_ = is_closed;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::vector<std::string> read_;  // names, in order
};

constexpr std::size_t kHeld = 3;

struct AdaptersTest : ::testing::Test {
  ~AdaptersTest() override { reader.open(); }

  ServedModel served(const std::string& name) {
    testing::FakeAgentOptions agent;
    agent.before_step = [this](const scheduler::StepPlan&) -> Result<void> {
      if (step_gate.valid()) step_gate.wait();
      return {};
    };
    ServedModel model = testing::fake_served_model(name, agent);
    model.adapters_max = kHeld;
    model.load_adapter = [this](const AdapterSource& source, const AdapterReading& reading) {
      return reader.read(source, reading);
    };
    return model;
  }
  // Of one model, "fake".
  void start(std::vector<AdapterSource> adapters = {}) {
    OnlyModel only;
    only.name = "fake";
    only.found = served("fake");
    only.found->adapters = std::move(adapters);
    std::promise<Result<void>> loaded;
    only.on_loaded = [&](const Result<void>& outcome) { loaded.set_value(outcome); };
    models = std::make_unique<Registry>(std::make_unique<FakeFactory>(), std::move(only));
    const Result<void> outcome = loaded.get_future().get();
    start_error = outcome ? "" : outcome.error().message;
  }

  std::future<Result<void>> begin_load(const std::string& name, const std::string& folder = "",
                                       bool may_replace = false, const std::string& base = "") {
    const auto done = std::make_shared<std::promise<Result<void>>>();
    models->load_adapter({name, folder}, base, may_replace,
                         [done](const Result<void>& outcome) { done->set_value(outcome); });
    return done->get_future();
  }
  static std::string text_of(const Result<void>& outcome) {
    return outcome ? "" : outcome.error().message;
  }
  std::string load(const std::string& name, const std::string& folder = "",
                   bool may_replace = false, const std::string& base = "") {
    return text_of(begin_load(name, folder, may_replace, base).get());
  }
  std::string unload(const std::string& name) {
    std::promise<Result<void>> done;
    models->unload_adapter(name, [&](const Result<void>& outcome) { done.set_value(outcome); });
    return text_of(done.get_future().get());
  }

  std::string submit(StreamId id, const std::string& model, int max_tokens = 4) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = model;
    request.prompt = {1, 2};
    request.params.max_tokens = max_tokens;
    const Submission answer = models->submit(std::move(request));
    const auto* refused = std::get_if<Refusal>(&answer);
    return refused == nullptr ? "" : refused->error.message;
  }
  // What one gives to whom asks for it by this name.
  void expect_served(StreamId id, const std::string& model, const std::string& adapter) {
    EXPECT_EQ(submit(id, model), "") << model;
    expect_ended(id, adapter);
  }
  void expect_ended(StreamId id, const std::string& adapter) {
    const auto stream = sink->wait_done(id);
    EXPECT_EQ(stream.error, "") << id;
    const auto fake = testing::fake_adapter(adapter, 2);
    EXPECT_EQ(stream.tokens,
              testing::FakeAgent::expected_tokens({1, 2}, static_cast<int>(stream.tokens.size()),
                                                  kFakeVocabSize, -1, fake.get()))
        << id;
  }

  Reader reader;
  std::shared_future<void> step_gate;  // before start(): steps wait for it
  std::string start_error;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::unique_ptr<Registry> models;
};

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  has no: " << part;
}

TEST_F(AdaptersTest, NamesAreOfOneThingEach) {
  start({{"first", ""}});
  EXPECT_EQ(start_error, "");
  expect_part(load("fake"), "lora_name: 'fake' is the name of a model");
  expect_part(load("/models/fake"), "is the name of a model");
  expect_part(load("first"), "'first' is an adapter already; unload it first, or replace it by");
  expect_part(load(""), "names of 1 to 256 bytes");
  expect_part(load("x", "", false, "other"), "'other' is not served here");
  EXPECT_EQ(load("second"), "");
  expect_served(1, "second", "second");
  EXPECT_EQ(load("second", "newer", true), "");
  expect_served(2, "second", "newer");
  EXPECT_EQ(load("third", "", true), "");
  expect_part(unload("nobody"), "is no adapter that is served");
  expect_part(unload("fake"), "is no adapter that is served");
}

// "tgi" and "dummy", which TGI's clients send where no model is named, are the model's until one
// has that name.
TEST_F(AdaptersTest, TheNamesOfTgisClientsMayBeAnAdapters) {
  start();
  for (const char* name : {"tgi", "dummy"}) {
    ASSERT_EQ(submit(1, name), "");
    EXPECT_EQ(sink->wait_done(1).tokens,
              testing::FakeAgent::expected_tokens({1, 2}, 4, kFakeVocabSize));
  }
  EXPECT_EQ(load("dummy"), "");
  expect_served(2, "dummy", "dummy");
  EXPECT_EQ(models->ready_model("dummy")->name, "dummy");
  EXPECT_EQ(models->ready_model("tgi")->name, "fake");
}

TEST_F(AdaptersTest, AnAdapterOfTheModelsOwnNameDoesNotStart) {
  start({{"good", ""}, {"/models/fake", ""}});
  expect_part(start_error, "adapter '/models/fake': the model itself has this name");
}

TEST_F(AdaptersTest, OfTwoLoadsOfANameAtATimeOneIsTaken) {
  start();
  reader.close();
  auto one = begin_load("a", "one");
  auto two = begin_load("a", "two");
  reader.wait_until_read(2);
  reader.open();
  const std::string first = text_of(one.get());
  const std::string second = text_of(two.get());
  EXPECT_NE(first.empty(), second.empty());
  expect_part(first + second, "is an adapter already");
  expect_served(1, "a", first.empty() ? "one" : "two");
}

TEST_F(AdaptersTest, StoppingDoesNotWaitForWhatIsBeingRead) {
  start();
  reader.close();
  auto loading = begin_load("a");
  reader.wait_until_read(1);
  models->stop(60'000);  // reading would take for ever
  const Result<void> outcome = loading.get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kStopping);
  const Result<void> late = begin_load("b").get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kStopping);
  expect_part(unload("a"), "shutting down");
}

// The reader does not look whether it should go on: what it has read comes too late.
TEST_F(AdaptersTest, WhatIsReadBehindTheStopIsDropped) {
  std::promise<void> may_end;
  std::promise<void> begun;
  OnlyModel only;
  only.name = "fake";
  only.found = served("fake");
  only.found->load_adapter = [&](const AdapterSource& source,
                                 const AdapterReading&) -> Result<std::shared_ptr<const Adapter>> {
    begun.set_value();
    may_end.get_future().wait();
    return testing::fake_adapter(source.name, 2);
  };
  std::promise<void> loaded;
  only.on_loaded = [&](const Result<void>&) { loaded.set_value(); };
  models = std::make_unique<Registry>(std::make_unique<FakeFactory>(), std::move(only));
  loaded.get_future().wait();
  auto loading = begin_load("a");
  begun.get_future().wait();
  std::thread stopping([&] { models->stop(0); });
  while (models->healthy()) std::this_thread::yield();
  may_end.set_value();
  stopping.join();
  EXPECT_EQ(loading.get().error().code, ErrorCode::kStopping);
}

TEST_F(AdaptersTest, TheLeastRecentlyUsedIdleOneIsDroppedAndReadAgainWhenItIsAskedFor) {
  start({{"fixed", ""}});
  EXPECT_EQ(load("a"), "");
  EXPECT_EQ(load("b"), "");
  expect_served(1, "a", "a");
  EXPECT_EQ(load("c"), "");  // "b" goes
  const std::vector<std::string> so_far = {"fixed", "a", "b", "c"};
  EXPECT_EQ(reader.read(), so_far);
  EXPECT_EQ((*models->status(""))->adapters.size(), 4U) << "it is served on";
  EXPECT_EQ((*models->ready_model("b")).name, "b");
  expect_served(2, "a", "a");
  expect_served(3, "c", "c");
  expect_served(4, "fixed", "fixed");
  EXPECT_EQ(reader.read(), so_far);
  expect_served(5, "b", "b");  // "a" goes
  expect_served(6, "c", "c");
  EXPECT_EQ(reader.read().size(), 5U);
  expect_served(7, "a", "a");
  EXPECT_EQ(reader.read().back(), "a");
}

TEST_F(AdaptersTest, WhatWaitsForAnAdapterKeepsItsOrderAndHoldsUpNobody) {
  start();
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(load(name), "");
  reader.close();
  for (StreamId id = 1; id <= 20; ++id) EXPECT_EQ(submit(id, "a"), "");
  reader.wait_until_read(5);
  // Others do not wait.
  expect_served(100, "d", "d");
  EXPECT_EQ(submit(101, "fake"), "");
  EXPECT_EQ(sink->wait_done(101).error, "");
  EXPECT_EQ(load("a", "", false),
            "lora_name: 'a' is an adapter already; unload it first, or "
            "replace it by \"load_inplace\": true");
  reader.open();
  for (StreamId id = 1; id <= 20; ++id) expect_ended(id, "a");
  EXPECT_EQ(reader.read().size(), 5U) << "read once for all";
}

TEST_F(AdaptersTest, WhatWaitsIsCancelledAndEndsWithTheAdapter) {
  start();
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(load(name), "");
  reader.close();
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.model = "a";
  request.prompt = {1};
  const Submission taken = models->submit(std::move(request));
  std::get<std::shared_ptr<StreamCanceller>>(taken)->cancel({1, 1});
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  EXPECT_EQ(submit(2, "a"), "");
  EXPECT_EQ(unload("a"), "");
  expect_part(sink->wait_done(2).error, "the adapter 'a' was unloaded");
  reader.open();
  expect_part(submit(3, "a"), "'a' is not served here");
  // One whose folder has gone.
  EXPECT_EQ(load("x", "x"), "");
  EXPECT_EQ(load("x", "gone", true), "gone: no such folder") << "the old one stays";
  expect_served(4, "x", "x");
  reader.close();
}

TEST_F(AdaptersTest, StoppingEndsWhatWaitsForAnAdapter) {
  start();
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(load(name), "");
  reader.close();
  EXPECT_EQ(submit(1, "a"), "");
  models->stop(0);
  expect_part(sink->wait_done(1).error, "shutting down");
}

TEST_F(AdaptersTest, NoneThatIsInUseIsDropped) {
  std::promise<void> gate;
  step_gate = gate.get_future().share();
  start();
  StreamId id = 0;
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(load(name), "");
    EXPECT_EQ(submit(++id, name), "");
  }
  const Result<void> refused = begin_load("d").get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  expect_part(refused.error().message,
              "3 adapters are held in memory (--max-cpu-loras), all in use");
  gate.set_value();
  for (StreamId each = 1; each <= id; ++each) sink->wait_done(each);
  while (!load("d").empty()) std::this_thread::yield();  // until the engine has let go
  expect_served(10, "d", "d");
}

TEST_F(AdaptersTest, ThoseOfTheStartAreNeverDropped) {
  start({{"a", ""}, {"b", ""}, {"c", ""}});
  const Result<void> refused = begin_load("d").get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  expect_part(refused.error().message, "all by --lora-modules");
}

TEST_F(AdaptersTest, OneThatLeavesNoPlaceIsRefused) {
  OnlyModel only;
  only.name = "fake";
  only.found = served("fake");
  int blocks_max = 0;
  only.found->load_adapter =
      [&](const AdapterSource& source,
          const AdapterReading& reading) -> Result<std::shared_ptr<const Adapter>> {
    blocks_max = reading.blocks_max;
    return testing::fake_adapter(source.name, 1000);
  };
  std::promise<void> loaded;
  only.on_loaded = [&](const Result<void>&) { loaded.set_value(); };
  models = std::make_unique<Registry>(std::make_unique<FakeFactory>(), std::move(only));
  loaded.get_future().wait();
  const Result<void> refused = begin_load("a").get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  expect_part(refused.error().message, "takes 1000 blocks of the KV cache");
  EXPECT_LT(blocks_max, 64);
  EXPECT_GT(blocks_max, 0);
}

// The engine of a stream is found when its adapter has gone.
TEST_F(AdaptersTest, AStreamIsEditedWhenItsAdapterIsServedNoMore) {
  std::promise<void> gate;
  step_gate = gate.get_future().share();
  start();
  EXPECT_EQ(load("a"), "");
  EXPECT_EQ(models->lasting_name("a"), "fake");
  EXPECT_EQ(models->lasting_name("fake"), "fake");
  EXPECT_EQ(models->lasting_name("nobody"), "nobody");
  const std::string name = models->lasting_name("a");
  EXPECT_EQ(submit(1, "a", 300), "");
  EXPECT_EQ(unload("a"), "");
  std::vector<Request> forks(1);
  forks[0].key = {1, 2};
  forks[0].sink = sink;
  forks[0].model = name;
  forks[0].fork = std::make_shared<const ForkOf>(ForkOf{{1, 1}, {}});
  const Submission forked = models->submit_forks(std::move(forks));
  EXPECT_TRUE(std::holds_alternative<std::shared_ptr<StreamCanceller>>(forked));
  gate.set_value();
  expect_ended(1, "a");
  EXPECT_EQ(sink->wait_done(2).error, "");
}

// A server of any model: an adapter has no name of a model that could be asked for.
TEST_F(AdaptersTest, OfAnyModel) {
  AutoOptions options;
  options.default_model.name = "one";
  models = std::make_unique<Registry>(
      std::make_unique<FakeFactory>([this](const std::string& name) -> Result<ServedModel> {
        if (name == "one" || name == "two") return served(name);
        return Error{ErrorCode::kNotFound, "'" + name + "' is unknown"};
      }),
      options);
  expect_part(load("a", "", false, "one"), "the model is not loaded; load it first");
  EXPECT_EQ(submit(1, "one"), "");
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(load("a", "", false, "one"), "");
  expect_part(load("two", "", false, "one"), "'two' is the name of a model");
  expect_part(load("one", "", false, "one"), "'one' is the name of a model");
  EXPECT_EQ(submit(2, "two"), "");
  EXPECT_EQ(sink->wait_done(2).error, "");
  expect_part(load("a", "", true, "two"), "'a' is an adapter of 'one'; unload it first");
  EXPECT_EQ(load("b", "", false, "two"), "");
  expect_served(3, "a", "a");
  expect_served(4, "b", "b");
  EXPECT_EQ(unload("b"), "");
}

}  // namespace
}  // namespace lmtp::registry
