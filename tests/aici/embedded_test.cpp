#include "lmtp/aici/embedded_runtime.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime_suite.h"

namespace lmtp::aici::testing {
namespace {

EmbeddedOptions options_for(const std::string& folder) {
  EmbeddedOptions options;
  options.tokenizer = std::make_shared<lmtp::testing::FakeTokenizer>(kVocab);
  options.vocab_size = kVocab;
  options.eos_id = kEos;
  options.cache_folder = folder;
  return options;
}

std::unique_ptr<Runtime> make(const EmbeddedOptions& options) {
  Result<std::unique_ptr<Runtime>> made = make_embedded_runtime(options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

const RuntimeMaker kEmbedded{"Embedded",
                             [](const std::string& folder) { return make(options_for(folder)); }};

std::string name_of(const ::testing::TestParamInfo<RuntimeMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, RuntimeSuite, ::testing::Values(kEmbedded), name_of);
INSTANTIATE_TEST_SUITE_P(All, RuntimeSuiteA, ::testing::Values(kEmbedded), name_of);
INSTANTIATE_TEST_SUITE_P(All, RuntimeSuiteC, ::testing::Values(kEmbedded), name_of);

class EmbeddedRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LMTP_AICI_MODULES).empty()) {
      GTEST_SKIP() << "clang or wasm-ld was not found: run tools/setup --tests";
    }
  }
  static std::string upload(Runtime& runtime, const std::string& name) {
    Answer<Result<ModuleInfo>> answer;
    runtime.upload(read_module(name), {}, answer.done());
    return answer.get()->module_id;
  }
  static ErrorCode refusal(Runtime& runtime, const std::string& wasm) {
    Answer<Result<ModuleInfo>> answer;
    runtime.upload(wasm, {}, answer.done());
    const Result<ModuleInfo> info = answer.get();
    return info ? ErrorCode::kInternal : info.error().code;
  }
  std::string cache() const { return folder_.path() + "/cache"; }

  lmtp::testing::TempFolder folder_;
};

void append_leb(std::size_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(0x80U | (value & 0x7fU));
  out += static_cast<char>(value);
}

void append_section(char id, const std::string& content, std::string& out) {
  out += id;
  append_leb(content.size(), out);
  out += content;
}

// Of one function, which has `num_ifs` times: local 0 becomes local 0 + 1 if it is not 0.
std::string long_module(std::size_t num_ifs) {
  using namespace std::string_literals;
  std::string body = "\0"s;  // no locals but the parameter
  const std::string one = "\x20\0\x04\x40\x20\0\x41\x01\x6a\x21\0\x0b"s;
  for (std::size_t i = 0; i < num_ifs; ++i) body += one;
  body += '\x0b';
  std::string code = "\x01"s;
  append_leb(body.size(), code);
  code += body;
  std::string wasm = "\0asm\x01\0\0\0"s;
  append_section(1, "\x01\x60\x01\x7f\0"s, wasm);  // a type: (i32) -> ()
  append_section(3, "\x01\0"s, wasm);              // a function of it
  append_section(10, code, wasm);
  return wasm;
}

TEST_F(EmbeddedRuntimeTest, WhatCompilesTooLongIsRefusedAndHoldsNothing) {
  EmbeddedOptions options = options_for(cache());
  const std::string known = upload(*make(options), "allow_one");
  options.limits.compile_time = std::chrono::milliseconds(100);
  const std::unique_ptr<Runtime> runtime = make(options);
  EXPECT_EQ(refusal(*runtime, long_module(300'000)), ErrorCode::kInvalid);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no compiler is left";
  // What was compiled before runs.
  EXPECT_EQ(RuntimeDriver(*runtime).run(known, "65").front().text(), "pA<299>");
}

TEST_F(EmbeddedRuntimeTest, ThereIsRoomForSoManyTags) {
  constexpr int kTagsMax = 10'000;
  const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "allow_one");
  const auto tag = [&](const std::vector<std::string>& names, const Auth& auth = {}) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->set_tags(id, names, auth, answer.done());
    return answer.get().ok();
  };
  ASSERT_TRUE(tag({"localhost.one"}));
  for (int i = 0; i < kTagsMax - 2; ++i) {
    std::ofstream(cache() + "/tags/t" + std::to_string(i) + ".json") << "{}";
  }
  EXPECT_FALSE(tag({"localhost.two", "localhost.three"}));
  EXPECT_TRUE(tag({"localhost.two", "localhost.two", "localhost.one"}));
  EXPECT_FALSE(tag({"localhost.three"}));
  EXPECT_TRUE(tag({"localhost.one", "localhost.two"}));
  EXPECT_TRUE(tag({"three"}, {"root", true})) << "an admin's always fits";
}

// The modules' thread is held by an answer.
TEST_F(EmbeddedRuntimeTest, WhatIsLoadedDoesNotWaitAndSharesTakeTurns) {
  std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "allow_one");
  RuntimeDriver(*runtime).run(id, "65");  // loads it
  std::promise<void> held;
  std::promise<void> gate;
  const auto list = [&](ConnectionId share, Runtime::Done<Result<std::vector<TagInfo>>> done) {
    runtime->get_tags({.share = share}, std::move(done));
  };
  list(1, [&](const auto&) {
    held.set_value();
    gate.get_future().wait();
  });
  held.get_future().wait();
  std::mutex mutex;
  std::vector<ConnectionId> answered;
  int num_refused = 0;
  std::promise<void> last;
  const auto note = [&](ConnectionId share) {
    return [&, share](const Result<std::vector<TagInfo>>& tags) {
      const std::lock_guard lock(mutex);
      if (!tags) return void(++num_refused);
      answered.push_back(share);
      if (answered.size() == 49) last.set_value();
    };
  };
  for (int i = 0; i < 50; ++i) list(1, note(1));
  list(2, note(2));
  EXPECT_EQ(num_refused, 2) << "one share has 48 places";
  EXPECT_EQ(RuntimeDriver(*runtime).run(id, "65").front().text(), "pA<299>");
  EXPECT_TRUE(answered.empty());
  gate.set_value();
  last.get_future().wait();
  runtime.reset();  // its thread holds the mutex for a moment more
  EXPECT_EQ(answered.at(1), 2U) << "one of each";
}

TEST_F(EmbeddedRuntimeTest, OneUserHasAShareOfTheTags) {
  constexpr int kTagsOfOneMax = 256;
  const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "allow_one");
  const auto tag = [&](const std::string& name, const Auth& auth) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->set_tags(id, {name}, auth, answer.done());
    const auto set = answer.get();
    return set ? "" : set.error().message;
  };
  for (int i = 0; i < kTagsOfOneMax; ++i) {
    ASSERT_EQ(tag("ann.t" + std::to_string(i), {"ann"}), "") << i;
  }
  EXPECT_NE(tag("ann.more", {"ann"}).find("too many of this key; allowed are 256"),
            std::string::npos);
  EXPECT_EQ(tag("ann.t7", {"ann"}), "") << "it is there already";
  EXPECT_EQ(tag("bob.t", {"bob"}), "");
  EXPECT_EQ(tag("ann.b.t", {"ann.b"}), "") << "is another user";
  Answer<Result<std::vector<TagInfo>>> removed;
  runtime->remove_tags({"ann.t7"}, {"ann"}, removed.done());
  ASSERT_TRUE(removed.get().ok());
  EXPECT_EQ(tag("ann.more", {"ann"}), "");
}

TEST_F(EmbeddedRuntimeTest, TagsBelongToWhoMadeThem) {
  const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "allow_one");
  const std::string other = upload(*runtime, "empty");
  const Auth root{"root", true};
  const auto tag = [&](const std::string& module, const std::string& name, const Auth& auth) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->set_tags(module, {name}, auth, answer.done());
    return answer.get().ok();
  };
  const auto untag = [&](const std::string& name, const Auth& auth) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->remove_tags({name}, auth, answer.done());
    return answer.get().ok();
  };
  const auto seen = [&](const Auth& auth) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->get_tags(auth, answer.done());
    std::set<std::string> names;
    const Result<std::vector<TagInfo>> tags = answer.get();
    for (const TagInfo& info : *tags) names.insert(info.tag);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_TRUE(tag(id, "team.eve.mine", {"team.eve"}));
  EXPECT_FALSE(tag(other, "team.eve.mine", {"team"}));
  EXPECT_FALSE(tag(other, "team.eve.new", {"team"})) << "where the other has none yet, too";
  EXPECT_FALSE(untag("team.eve.mine", {"team"}));
  EXPECT_TRUE(tag(id, "shared", root));
  EXPECT_TRUE(tag(other, "team.eve.mine", root));
  EXPECT_EQ(seen({"team.eve"}), Names({"shared", "team.eve.mine"})) << "it is its maker's";
  EXPECT_EQ(seen({"team"}), Names({"shared"}));
  EXPECT_EQ(seen(root), Names({"shared", "team.eve.mine"}));
  EXPECT_TRUE(tag(id, "team.eve.mine", {"team.eve"}));
  EXPECT_FALSE(untag("shared", {"team.eve"}));
  EXPECT_FALSE(untag("none", root));
  EXPECT_FALSE(untag("../x", root));
  EXPECT_TRUE(untag("team.eve.mine", {"team.eve"}));
  EXPECT_TRUE(untag("shared", root));
  EXPECT_EQ(seen(root), Names());
  // A file that tells no owner.
  folder_.write("cache/tags/team.eve.old.json",
                R"({"tag": "team.eve.old", "module_id": ")" + id + R"(", "updated_by": "root"})");
  EXPECT_EQ(seen({"team.eve"}), Names({"team.eve.old"}));
  EXPECT_EQ(seen({"team"}), Names());
  EXPECT_TRUE(untag("team.eve.old", {"team.eve"}));
}

TEST_F(EmbeddedRuntimeTest, ModulesAndTagsOutliveTheRuntime) {
  std::string id;
  {
    const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
    id = upload(*runtime, "allow_one");
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime->set_tags(id, {"one"}, {"root", true}, answer.done());
    ASSERT_TRUE(answer.get().ok());
  }
  const auto run_again = [&] {
    const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
    return RuntimeDriver(*runtime).run("one", "65").front();
  };
  EXPECT_EQ(run_again().text(), "pA<299>");
  // What another version or a broken disk left is compiled again.
  for (const auto& file : std::filesystem::directory_iterator(cache())) {
    if (file.path().extension() == ".cwasm") {
      folder_.write("cache/" + file.path().filename().string(), "x");
    }
  }
  EXPECT_EQ(run_again().text(), "pA<299>");
  // A module whose bytes are others than its name says is none.
  folder_.write("cache/" + id + ".wasm", "x");
  EXPECT_EQ(run_again().end, End::kFail);
}

TEST_F(EmbeddedRuntimeTest, WhatIsUnderWayIsAnsweredAtTheEnd) {
  std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "wait");
  Answer<Result<Instantiated>> made;
  runtime->instantiate({"waits", {1}, id, ""}, made.done());
  ASSERT_TRUE(made.get().ok());
  runtime->bind("waits", 1);
  Answer<Advance> first;
  runtime->advance(1, {}, first.done());
  ASSERT_EQ(first.get().num_forks, 2);
  runtime->fork(1, {2});
  std::array<Answer<Choice>, 2> choices;
  for (const Sequence each : {1U, 2U}) runtime->choose(each, {1, 2}, choices.at(each - 1).done());
  for (Answer<Choice>& choice : choices) ASSERT_EQ(choice.get().kind, Choice::Kind::kBranches);
  // The first is not asked any more, so that the second waits for ever and nobody finds a deadlock.
  Answer<Advance> suspended;
  runtime->advance(2, {.sampled = 7, .appended = {7}}, suspended.done());
  ASSERT_EQ(suspended.get().kind, Advance::Kind::kSuspend);
  Answer<Advance> waits;
  runtime->advance(2, {}, waits.done());
  Answer<Result<Instantiated>> late;
  runtime->instantiate({"late", {1}, id, ""}, late.done());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is asked again, in vain
  EXPECT_FALSE(waits.is_there());
  runtime.reset();
  EXPECT_EQ(waits.get().kind, Advance::Kind::kFail);
  std::ignore = late.get();  // one way or the other
}

TEST_F(EmbeddedRuntimeTest, AModuleWithOtherStateCannotFork) {
  const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::vector<DrivenSequence> all =
      RuntimeDriver(*runtime).run(upload(*runtime, "no_fork"), "");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text(), "px");
  EXPECT_EQ(all[0].end, End::kStop) << all[0].error;
  EXPECT_EQ(all[1].end, End::kFail);
  EXPECT_THAT(all[1].error, HasSubstr("mutable globals"));
}

TEST_F(EmbeddedRuntimeTest, LimitsAreErrorsThatNameThem) {
  const auto run = [&](const Limits& limits, const std::string& module, const std::string& arg) {
    EmbeddedOptions options = options_for(cache());
    options.limits = limits;
    const std::unique_ptr<Runtime> runtime = make(options);
    return RuntimeDriver(*runtime).run(upload(*runtime, module), arg, "p", 2).front();
  };
  EXPECT_THAT(run({.forks_max = 3}, "fork", "").error, HasSubstr("allowed are 3"));
  EXPECT_EQ(run({.forks_max = 4}, "fork", "").error, "");
  EXPECT_THAT(run({.step_time = std::chrono::milliseconds(10)}, "bad", "loop").error,
              HasSubstr("10 ms"));
  EXPECT_LE(run({.log_bytes = 1000}, "bad", "flood").logs.size(), 1000U);
  EXPECT_THAT(run({.variable_bytes = 1000}, "bad", "overwrite").error,
              HasSubstr("one call has written more than 6128 bytes"));
  EXPECT_THAT(run({.memory_bytes = 1000}, "empty", "").error, HasSubstr("memory"));
}

TEST_F(EmbeddedRuntimeTest, VariablesAreLimited) {
  EmbeddedOptions options = options_for(cache());
  options.limits.variable_bytes = 8;  // "text" and "hello" have 9
  const std::unique_ptr<Runtime> runtime = make(options);
  const DrivenSequence its = RuntimeDriver(*runtime).run(upload(*runtime, "wait"), "").front();
  EXPECT_EQ(its.end, End::kFail);
  EXPECT_THAT(its.error, HasSubstr("8 bytes"));
}

TEST_F(EmbeddedRuntimeTest, RequestsAreLimited) {
  EmbeddedOptions options = options_for(cache());
  options.limits.requests_max = 1;
  const std::unique_ptr<Runtime> runtime = make(options);
  const std::string id = upload(*runtime, "empty");
  Answer<Result<Instantiated>> first;
  runtime->instantiate({"a", {1}, id, ""}, first.done());
  ASSERT_TRUE(first.get().ok());
  Answer<Result<Instantiated>> second;
  runtime->instantiate({"b", {1}, id, ""}, second.done());
  const Result<Instantiated> refused = second.get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
}

TEST_F(EmbeddedRuntimeTest, ControllersHaveALimitTogether) {
  EmbeddedOptions options = options_for(cache());
  options.limits.total_bytes = std::size_t{2} << 20;
  const std::unique_ptr<Runtime> runtime = make(options);
  const std::string id = upload(*runtime, "empty");
  const auto begin = [&](int number) {
    Answer<Result<Instantiated>> answer;
    runtime->instantiate({"r" + std::to_string(number), {1}, id, ""}, answer.done());
    return answer.get();
  };
  int count = 0;
  Result<Instantiated> last = begin(0);
  for (; last && count < 100; last = begin(++count)) {
  }
  ASSERT_GE(count, 2);
  ASSERT_LT(count, 100);
  EXPECT_EQ(last.error().code, ErrorCode::kOverloaded);
  EXPECT_THAT(last.error().message, HasSubstr("--aici-max-total-memory"));
  EXPECT_THAT(RuntimeDriver(*runtime).run(id, "").front().error, HasSubstr("allowed"));
  for (int i = 0; i < count; ++i) runtime->discard("r" + std::to_string(i));
  EXPECT_TRUE(begin(count + 1).ok()) << "what has ended is not counted";
}

TEST_F(EmbeddedRuntimeTest, ARequestsNameIsItsOwn) {
  const std::unique_ptr<Runtime> runtime = make(options_for(cache()));
  const std::string id = upload(*runtime, "empty");
  Answer<Result<Instantiated>> first;
  Answer<Result<Instantiated>> second;
  runtime->instantiate({"same", {1}, id, ""}, first.done());
  runtime->instantiate({"same", {1}, id, ""}, second.done());
  EXPECT_TRUE(first.get().ok());
  EXPECT_FALSE(second.get().ok());
}

}  // namespace
}  // namespace lmtp::aici::testing
