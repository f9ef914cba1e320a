// A server of one model: its names, its loading, its failures.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "eventually.h"
#include "fake_factory.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/registry/registry.h"
#include "recording_sink.h"

namespace lmtp::registry {
namespace {

using testing::FakeFactory;
using testing::RecordingSink;

TEST(StaticRegistry, ServesOneModelUnderItsNamesAlone) {
  OnlyModel only;
  only.name = "fake";
  only.found = testing::fake_served_model("fake");
  std::promise<bool> loaded;
  only.on_loaded = [&](const Result<void>& outcome) { loaded.set_value(outcome.ok()); };
  Registry manager(std::make_unique<FakeFactory>(), std::move(only));
  EXPECT_TRUE(loaded.get_future().get());
  EXPECT_TRUE(manager.healthy());
  for (const char* name : {"", "fake", "/models/fake"}) {
    EXPECT_TRUE((*manager.status(name)).ok()) << name;
  }
  const auto other = manager.status("other");
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(other->error().message.find("allowed is 'fake'"), std::string::npos);
  Request request;
  request.model = "other";
  const Submission submitted = manager.submit(std::move(request));
  ASSERT_TRUE(std::holds_alternative<Refusal>(submitted));
  EXPECT_TRUE(std::get<Refusal>(submitted).no_model);
}

TEST(StaticRegistry, WaitsForItsDownload) {
  std::promise<void> done;
  auto factory = std::make_unique<FakeFactory>();
  factory->set_fetch(
      [known = done.get_future().share()](const std::string& name, const auto& progress) {
        progress({50, 100});
        known.wait();
        return Result<ServedModel>(testing::fake_served_model(name));
      });
  OnlyModel only;
  only.name = "org/fake";
  Registry manager(std::move(factory), std::move(only));
  EXPECT_FALSE(manager.healthy());
  const auto sink = std::make_shared<RecordingSink>();
  for (const char* name : {"", "fake", "org/fake"}) {
    Request request;
    request.key = {1, static_cast<StreamId>(std::string(name).size())};
    request.sink = sink;
    request.model = name;
    request.prompt = {1};
    ASSERT_TRUE(std::holds_alternative<std::shared_ptr<StreamCanceller>>(
        manager.submit(std::move(request))));
  }
  EXPECT_TRUE(testing::eventually([&] { return (*manager.status(""))->progress_percent >= 45; }));
  done.set_value();
  for (const StreamId id : {0, 4, 8}) EXPECT_EQ(sink->wait_done(id).error, "");
}

// Over the path, which still leads to it, while the model is sought, loaded and lost.
TEST(StaticRegistry, TellsTheNamesThatItIsServedBy) {
  std::promise<void> done;
  std::promise<std::string> sought;
  auto factory = std::make_unique<FakeFactory>();
  factory->set_fetch(
      [&, known = done.get_future().share()](const std::string& name, const auto& progress) {
        sought.set_value(name);
        progress({50, 100});
        known.wait();
        ServedModel found = testing::fake_served_model("shown");
        found.description.hides_path = true;
        found.names = {"shown", "alias", "/secret/fake", "fake"};
        return Result<ServedModel>(std::move(found));
      });
  OnlyModel only;
  only.name = "/secret/fake";
  only.served_names = {"shown", "alias"};
  Registry manager(std::move(factory), std::move(only));
  EXPECT_EQ(sought.get_future().get(), "/secret/fake");
  EXPECT_EQ((*manager.status("/secret/fake"))->description.name, "shown");
  EXPECT_NE(manager.status("other")->error().message.find("allowed is 'shown'"), std::string::npos);
  const auto sink = std::make_shared<RecordingSink>();
  const char* const names[] = {"", "shown", "alias", "/secret/fake", "fake", "tgi", "dummy"};
  for (StreamId id = 0; id < std::ssize(names); ++id) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = names[id];
    request.prompt = {1};
    ASSERT_TRUE(std::holds_alternative<std::shared_ptr<StreamCanceller>>(
        manager.submit(std::move(request))))
        << names[id];
  }
  done.set_value();
  for (StreamId id = 0; id < std::ssize(names); ++id) {
    const RecordingSink::Stream stream = sink->wait_done(id);
    EXPECT_EQ(stream.error, "") << names[id];
    const std::string told = is_any_model(names[id]) ? names[id] : "shown";  // or an adapter's
    EXPECT_EQ(stream.loading_model, told);
    EXPECT_EQ(manager.ready_model(names[id])->name, "shown") << names[id];
  }
}

TEST(StaticRegistry, WhyItWasNotLoadedNamesNoPathWhereItHasAName) {
  for (const bool has_name : {false, true}) {
    SCOPED_TRACE(has_name);
    auto factory = std::make_unique<FakeFactory>();
    factory->set_fetch([](const std::string& name, const auto& /*progress*/) {
      return Result<ServedModel>(Error{ErrorCode::kInvalid, name + "/config.json is broken"});
    });
    OnlyModel only;
    only.name = "/secret/fake";
    if (has_name) only.served_names = {"shown"};
    std::promise<std::string> loaded;
    only.on_loaded = [&](const Result<void>& outcome) {
      loaded.set_value(outcome.error().message);
    };
    Registry manager(std::move(factory), std::move(only));
    EXPECT_EQ(loaded.get_future().get(), "/secret/fake/config.json is broken");
    const std::string told = manager.status("")->error().message;
    EXPECT_EQ(told.find("/secret") == std::string::npos, has_name) << told;
  }
}

// A tokenizer may have fewer ids than the model, or more: grammars work all the same.
TEST(StaticRegistry, NamesIdsOfTheTokenizerThatTheModelLacks) {
  for (const int more : {-10, 0, 10}) {
    SCOPED_TRACE(more);
    OnlyModel only;
    only.name = "fake";
    only.found = testing::fake_served_model("fake");
    only.found->load_tokenizer = [more] {
      return LoadedTokenizer(
          std::make_shared<const testing::FakeTokenizer>(testing::kFakeVocabSize + more));
    };
    std::promise<bool> loaded;
    only.on_loaded = [&](const Result<void>& outcome) { loaded.set_value(outcome.ok()); };
    Registry manager(std::make_unique<FakeFactory>(), std::move(only));
    ASSERT_TRUE(loaded.get_future().get());
    std::vector<std::string> notes;
    if (more > 0) {
      notes = {
          "the tokenizer has 1010 ids, the model's vocabulary 1000: those from 1000 on are never "
          "generated, and a prompt that has one of them is refused"};
    }
    EXPECT_EQ((*manager.status(""))->description.notes, notes);
    if (!constraint::grammar_support()) continue;
    std::promise<std::string> compiled;
    manager.ready_model("")->grammars->compile(
        {Grammar::Kind::kRegex, "[a-z]+"},
        [&](const constraint::GrammarCompiler::Compiled& grammar) {
          compiled.set_value(grammar ? "" : grammar.error().message);
        });
    EXPECT_EQ(compiled.get_future().get(), "");
  }
}

TEST(StaticRegistry, WhereItDoesNotComeBackItSaysWhyOnce) {
  OnlyModel only;
  only.name = "fake";
  std::promise<std::string> gone;  // a second word would throw
  only.on_gone = [&](const std::string& reason) { gone.set_value(reason); };
  testing::FakeAgentOptions agent;
  agent.before_step = [](const auto&) -> Result<void> {
    return Error{ErrorCode::kInternal, "sticky"};
  };
  agent.is_lost = [] { return true; };
  only.found = testing::fake_served_model("fake", agent);
  only.found->load = [first = only.found->load, used = std::make_shared<bool>(false)](
                         std::int64_t kv_bytes, const scheduler::LoadProgress& progress)
      -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    if (std::exchange(*used, true)) {
      return Error{ErrorCode::kInternal, "no memory is left on the device"};
    }
    return first(kv_bytes, progress);
  };
  Registry manager(std::make_unique<FakeFactory>(), std::move(only));
  const auto sink = std::make_shared<RecordingSink>();
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.prompt = {1};
  ASSERT_TRUE(
      std::holds_alternative<std::shared_ptr<StreamCanceller>>(manager.submit(Request(request))));
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: sticky");
  EXPECT_EQ(gone.get_future().get(), "no memory is left on the device");
  EXPECT_FALSE(manager.healthy());
  const Submission submitted = manager.submit(Request(request));
  ASSERT_TRUE(std::holds_alternative<Refusal>(submitted));
  EXPECT_EQ(std::get<Refusal>(submitted).error.message, "model: no memory is left on the device");
}

// By the one plan, like a model of an auto server; when it comes back it gets what it had.
TEST(StaticRegistry, ItsMemoryIsDecidedAsThatOfAnyModel) {
  constexpr std::int64_t kGi = std::int64_t{1} << 30;
  std::atomic<bool> lost = false;
  testing::FakeAgentOptions agent;
  agent.before_step = [&lost](const auto&) -> Result<void> {
    if (!lost) return {};
    return Error{ErrorCode::kInternal, "sticky"};
  };
  agent.is_lost = [&lost] { return lost.exchange(false); };
  OnlyModel only;
  only.name = "fake";
  only.found = testing::fake_served_model("fake", agent);
  only.found->memory = {.weights_bytes = kGi, .kv_bytes_min = 1};
  only.found->context_of = [](std::int64_t kv_bytes) { return static_cast<int>(kv_bytes / kGi); };
  std::vector<std::int64_t> sizes;  // of the loads
  only.found->load = [&, first = only.found->load](std::int64_t kv_bytes, const auto& progress) {
    sizes.push_back(kv_bytes);
    return first(kv_bytes, progress);
  };
  auto factory = std::make_unique<FakeFactory>();
  std::atomic<std::int64_t> free_bytes = 12 * kGi;
  factory->set_free_memory([&free_bytes] { return free_bytes.load(); });
  Registry manager(std::move(factory), std::move(only));
  const auto sink = std::make_shared<RecordingSink>();
  const auto run = [&](StreamId id) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.prompt = {1};
    request.params.max_tokens = 1;
    manager.submit(std::move(request));
    return sink->wait_done(id).error;
  };
  EXPECT_EQ(run(1), "");
  EXPECT_EQ((*manager.status(""))->limits.context_length, 3);
  free_bytes = 2 * kGi;
  lost = true;
  EXPECT_EQ(run(2), "the step failed: sticky");
  EXPECT_EQ(run(3), "");
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{3 * kGi, 3 * kGi}));
}

TEST(StaticRegistry, TellsWhyItsLoadingFailed) {
  OnlyModel only;
  only.name = "fake";
  std::promise<std::string> error;
  only.on_loaded = [&](const Result<void>& outcome) {
    error.set_value(outcome ? "" : outcome.error().message);
  };
  Registry manager(std::make_unique<FakeFactory>(), std::move(only));
  EXPECT_EQ(error.get_future().get(), "'fake' is unknown");
  EXPECT_FALSE(manager.healthy());
  Request request;
  request.model = "fake";
  const Submission submitted = manager.submit(std::move(request));
  ASSERT_TRUE(std::holds_alternative<Refusal>(submitted));
  EXPECT_EQ(std::get<Refusal>(submitted).error.message, "model: 'fake' is unknown");
}

}  // namespace
}  // namespace lmtp::registry
