// What every Runtime does, over controllers in C. A test program includes this and instantiates
// RuntimeSuite with its RuntimeMaker; its tokenizer is FakeTokenizer(kVocab).
#pragma once

#include <gmock/gmock.h>

#include "fake_tokenizer.h"
#include "runtime_driver.h"
#include "temp_folder.h"

namespace lmtp::aici::testing {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int kVocab = 300;
constexpr TokenId kEos = kVocab - 1;
using End = DrivenSequence::End;

struct RuntimeMaker {
  std::string name;
  // cache_folder: empty at first; the runtime ends before it.
  std::function<std::unique_ptr<Runtime>(const std::string& cache_folder)> make;
  bool has_dialect_a = true;
  bool has_dialect_c = true;
};

// The module NAME.wasm that tests/aici/CMakeLists.txt compiles.
inline std::string read_module(const std::string& name) {
  std::ifstream file(std::string(LMTP_AICI_MODULES) + "/" + name + ".wasm", std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

class RuntimeSuite : public ::testing::TestWithParam<RuntimeMaker> {
 protected:
  void SetUp() override {
    if (std::string(LMTP_AICI_MODULES).empty()) {
      GTEST_SKIP() << "clang or wasm-ld was not found: run tools/setup --tests";
    }
    runtime_ = GetParam().make(folder_.path());
    driver_ = std::make_unique<RuntimeDriver>(*runtime_);
  }

  Result<ModuleInfo> upload(const std::string& wasm) {
    Answer<Result<ModuleInfo>> answer;
    runtime_->upload(wasm, {}, answer.done());
    return answer.get();
  }
  std::string id_of(const std::string& module) {
    const Result<ModuleInfo> info = upload(read_module(module));
    EXPECT_TRUE(info.ok()) << info.error().message;
    return info->module_id;
  }
  Result<std::vector<TagInfo>> tag(const std::string& id, const std::vector<std::string>& tags,
                                   const Auth& auth = {}) {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime_->set_tags(id, tags, auth, answer.done());
    return answer.get();
  }
  std::vector<TagInfo> tags() {
    Answer<Result<std::vector<TagInfo>>> answer;
    runtime_->get_tags({"root", true}, answer.done());
    return *answer.get();
  }
  // Of one that has one sequence.
  DrivenSequence run(const std::string& module, const std::string& arg,
                     const std::string& prompt = "p", int num_choices_max = 50) {
    std::vector<DrivenSequence> all = driver_->run(id_of(module), arg, prompt, num_choices_max);
    EXPECT_EQ(all.size(), 1U);
    return all.front();
  }

  lmtp::testing::TempFolder folder_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<RuntimeDriver> driver_;
};

class RuntimeSuiteA : public RuntimeSuite {
  void SetUp() override {
    if (!GetParam().has_dialect_a) GTEST_SKIP() << "of dialect A";
    RuntimeSuite::SetUp();
  }
};

class RuntimeSuiteC : public RuntimeSuite {
  void SetUp() override {
    if (!GetParam().has_dialect_c) GTEST_SKIP() << "of dialect C";
    RuntimeSuite::SetUp();
  }
};

// ---- modules and tags ----

TEST_P(RuntimeSuite, TheSameModuleHasTheSameId) {
  const Result<ModuleInfo> first = upload(read_module("empty"));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->module_id.size(), 64U);
  EXPECT_EQ(first->wasm_size, static_cast<std::int64_t>(read_module("empty").size()));
  EXPECT_GT(first->compiled_size, 0);
  EXPECT_EQ(upload(read_module("empty"))->module_id, first->module_id);
  EXPECT_NE(upload(read_module("no_mid"))->module_id, first->module_id);
}

TEST_P(RuntimeSuite, WhatIsNoModuleIsRefused) {
  EXPECT_FALSE(upload("this is no WebAssembly").ok());
  EXPECT_FALSE(upload("").ok());
}

TEST_P(RuntimeSuite, ATagIsANameOfAModule) {
  const std::string id = id_of("empty");
  const std::string other = id_of("no_mid");
  ASSERT_TRUE(tag(id, {"localhost.a", "localhost.b"}).ok());
  ASSERT_TRUE(tag(other, {"localhost.b"}).ok());
  std::map<std::string, std::string> names;
  for (const TagInfo& info : tags()) names[info.tag] = info.module_id;
  EXPECT_EQ(names,
            (std::map<std::string, std::string>{{"localhost.a", id}, {"localhost.b", other}}));
  EXPECT_EQ(tags().front().updated_by, "localhost");
  EXPECT_GT(tags().front().updated_at, 1'700'000'000);
}

TEST_P(RuntimeSuite, TagsThatAreNoNamesOrNotOnesOwnAreRefused) {
  const std::string id = id_of("empty");
  EXPECT_FALSE(tag(id, {"anna.a"}).ok());
  EXPECT_TRUE(tag(id, {"anna.a"}, {"anna"}).ok());
  EXPECT_TRUE(tag(id, {"short"}, {"root", true}).ok());
  const Auth admin{"root", true};
  for (const char* name : {"", "1a", "a/b", "../a", "a b", "abcdefabcdefabcdefabcdef"}) {
    EXPECT_FALSE(tag(id, {name}, admin).ok()) << name;
  }
  EXPECT_FALSE(tag(id, {std::string(51, 'x')}, admin).ok());
  EXPECT_FALSE(tag(std::string(64, '0'), {"nothing"}, admin).ok());
}

TEST_P(RuntimeSuite, UnknownControllersAreErrors) {
  for (const std::string& name :
       {std::string("localhost.none"), std::string(64, 'a'), std::string("../x"), std::string()}) {
    const DrivenSequence its = driver_->run(name, "").front();
    EXPECT_EQ(its.end, End::kFail) << name;
    EXPECT_NE(its.error, "") << name;
  }
}

TEST_P(RuntimeSuite, SequencesThatAreNoneFail) {
  Answer<Advance> advance;
  runtime_->advance(77, {}, advance.done());
  EXPECT_EQ(advance.get().kind, Advance::Kind::kFail);
  Answer<Choice> choice;
  runtime_->choose(77, {77}, choice.done());
  EXPECT_EQ(choice.get().kind, Choice::Kind::kFail);
  runtime_->free(77);
  runtime_->discard("none");
}

// ---- dialect A ----

TEST_P(RuntimeSuiteA, ATagRuns) {
  ASSERT_TRUE(tag(id_of("allow_one"), {"localhost.one"}).ok());
  EXPECT_EQ(driver_->run("localhost.one", "72 105").front().text(), "pHi<299>");
}

TEST_P(RuntimeSuiteA, AllowsOneTokenAfterTheOther) {
  const DrivenSequence its = run("allow_one", "65 66 298");
  EXPECT_EQ(its.text(), "pAB<298><299>");
  EXPECT_EQ(its.end, End::kStop);
  EXPECT_EQ(its.num_choices, 4);
}

TEST_P(RuntimeSuiteA, ForcesTokens) {
  const DrivenSequence its = run("forced", "65 66");
  EXPECT_EQ(its.text(), "pABxxAB");
  EXPECT_EQ(its.end, End::kStop);
}

TEST_P(RuntimeSuiteA, TakesTokensBack) {
  const DrivenSequence its = run("backtrack", "65 66 67");
  EXPECT_EQ(its.text(), "pxABC");
  EXPECT_EQ(its.end, End::kStop);
  EXPECT_THAT(its.logs, EndsWith("{\"tokens\":[65,66,67],\"backtrack\":2}\n"));
}

TEST_P(RuntimeSuiteA, TakesTokensBackAndPutsNoneThere) {
  EXPECT_EQ(run("backtrack", "").text(), "px");
}

TEST_P(RuntimeSuiteA, ForksGoTheirOwnWays) {
  const std::vector<DrivenSequence> all = driver_->run(id_of("fork"), "");
  std::vector<std::string> texts;
  for (const DrivenSequence& each : all) {
    texts.push_back(each.text());
    EXPECT_EQ(each.end, End::kStop) << each.error;
  }
  EXPECT_THAT(texts, ElementsAre("pAxx", "pBxx", "pCxx", "pDxx"));
}

TEST_P(RuntimeSuiteA, WaitsForAVariable) {
  const std::vector<DrivenSequence> all = driver_->run(id_of("wait"), "");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text(), "pxxx");
  EXPECT_EQ(all[1].text(), "pxhellox");
  EXPECT_EQ(all[0].end, End::kStop) << all[0].error;
  EXPECT_EQ(all[1].end, End::kStop) << all[1].error;
  ASSERT_EQ(all[0].storage.size(), 1U);
  EXPECT_EQ(all[0].storage[0].name, "text");
  EXPECT_EQ(all[0].storage[0].value, "hello");
  EXPECT_TRUE(all[1].storage.empty());
}

TEST_P(RuntimeSuiteA, NobodyIsLeftToWaitFor) {
  const std::vector<DrivenSequence> all = driver_->run(id_of("wait"), "-");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].end, End::kStop);
  EXPECT_EQ(all[1].text(), "px");
  EXPECT_EQ(all[1].end, End::kFail);
  EXPECT_THAT(all[1].error, HasSubstr(kDeadlock));
  EXPECT_GE(all[1].num_suspended, 1);
}

TEST_P(RuntimeSuiteA, RequestsThatAreLeftEnd) {
  const std::string id = id_of("allow_one");
  for (int i = 0; i < 5; ++i) {
    Answer<Result<Instantiated>> answer;
    const std::string request = "left-" + std::to_string(i);
    runtime_->instantiate({request, {1}, id, "65"}, answer.done());
    const bool is_made = i % 2 == 0 && answer.get().ok();
    EXPECT_EQ(is_made, i % 2 == 0);
    runtime_->discard(request);
    if (i % 2 == 1) std::ignore = answer.get();  // either way
  }
  driver_->leaves = [](Sequence, const DrivenSequence& its) { return its.num_choices == 1; };
  EXPECT_EQ(run("allow_one", "65 66").text(), "pA");
}

TEST_P(RuntimeSuiteA, RequestsRunBesideEachOther) {
  const std::string id = id_of("allow_one");
  std::vector<Answer<Result<Instantiated>>> made(8);
  for (std::size_t i = 0; i < made.size(); ++i) {
    runtime_->instantiate({"beside-" + std::to_string(i), {1}, id, std::to_string(65 + i)},
                          made[i].done());
  }
  std::vector<Answer<Advance>> advanced(made.size());
  std::vector<Answer<Choice>> chosen(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    ASSERT_TRUE(made[i].get().ok());
    const auto sequence = static_cast<Sequence>(1000 + i);
    runtime_->bind("beside-" + std::to_string(i), sequence);
    runtime_->advance(sequence, {}, advanced[i].done());
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(advanced[i].get().kind, Advance::Kind::kGoOn);
    const auto sequence = static_cast<Sequence>(1000 + i);
    runtime_->choose(sequence, {sequence}, chosen[i].done());
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Choice choice = chosen[i].get();
    ASSERT_EQ(choice.branches.size(), 1U);
    EXPECT_EQ(choice.branches[0].mask[2], std::uint32_t{2} << i);
    runtime_->free(static_cast<Sequence>(1000 + i));
  }
}

// ---- controllers that misbehave ----

TEST_P(RuntimeSuiteA, OneThatFailsEndsItsSequenceAlone) {
  // Each draws one token first.
  for (const char* arg :
       {"trap", "json", "silent", "words", "blob", "vocabulary", "storage", "recursion", "x"}) {
    const DrivenSequence its = run("bad", arg);
    EXPECT_EQ(its.end, End::kFail) << arg;
    EXPECT_EQ(its.text(), "px") << arg;
    EXPECT_NE(its.error, "") << arg;
  }
  EXPECT_EQ(run("allow_one", "65").text(), "pA<299>");
}

TEST_P(RuntimeSuiteA, ATrapKeepsTheLogAndStays) {
  const std::string id = id_of("bad");
  Answer<Result<Instantiated>> made;
  runtime_->instantiate({"trap", {1}, id, "trap"}, made.done());
  ASSERT_TRUE(made.get().ok());
  constexpr Sequence kSequence = 2000;
  runtime_->bind("trap", kSequence);
  Report report;
  for (int step = 0; step < 2; ++step) {
    Answer<Advance> advance;
    runtime_->advance(kSequence, report, advance.done());
    ASSERT_EQ(advance.get().kind, Advance::Kind::kGoOn);
    Answer<Choice> choice;
    runtime_->choose(kSequence, {kSequence}, choice.done());
    const Choice chosen = choice.get();
    ASSERT_EQ(chosen.kind, step == 0 ? Choice::Kind::kBranches : Choice::Kind::kFail);
    EXPECT_THAT(chosen.log.logs, HasSubstr(step == 0 ? "" : "before the trap"));
    report = {.sampled = 5, .appended = {5}};
  }
  Answer<Advance> again;
  runtime_->advance(kSequence, report, again.done());
  EXPECT_EQ(again.get().kind, Advance::Kind::kFail);
  runtime_->free(kSequence);
}

TEST_P(RuntimeSuiteA, AnEndlessLoopIsStopped) {
  const DrivenSequence its = run("bad", "loop");
  EXPECT_EQ(its.end, End::kFail);
  EXPECT_EQ(its.text(), "px");
}

TEST_P(RuntimeSuiteA, MemoryIsLimited) {
  const DrivenSequence its = run("bad", "memory");
  EXPECT_EQ(its.end, End::kFail);
  EXPECT_EQ(its.text(), "px");
}

TEST_P(RuntimeSuiteA, OfAFloodOfLogsTheEndIsKept) {
  const DrivenSequence its = run("bad", "flood", "p", 2);
  EXPECT_EQ(its.text(), "pxx");
  EXPECT_LE(its.logs.size(), std::size_t{64} << 10);
  EXPECT_THAT(its.logs, EndsWith("the last line\n"));
}

TEST_P(RuntimeSuiteA, OneThatFailsAtOnceIsAnErrorOfItsRequest) {
  const DrivenSequence its = run("bad", "init");
  EXPECT_EQ(its.end, End::kFail);
  EXPECT_EQ(its.text(), "");
  EXPECT_THAT(its.error, HasSubstr("there is no way on"));
}

TEST_P(RuntimeSuiteA, WhatIsNoControllerFails) { EXPECT_EQ(run("no_mid", "").end, End::kFail); }

// ---- dialect C ----

TEST_P(RuntimeSuiteC, BranchesGoTheirOwnWays) {
  const std::vector<DrivenSequence> all = driver_->run(id_of("branches"), "", "pq");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text(), "pqa");
  EXPECT_EQ(all[0].temperature, 0.5F);
  EXPECT_EQ(all[1].text(), "p?");
  EXPECT_EQ(all[0].end, End::kStop);
  EXPECT_EQ(all[1].end, End::kStop);
  EXPECT_THAT(all[0].logs, HasSubstr(R"({"backtrack":0,"tokens":[97],"sampled":97,)"));
  EXPECT_THAT(all[1].logs, HasSubstr(R"({"backtrack":1,"tokens":[63],"sampled":null,)"));
}

TEST_P(RuntimeSuiteC, SplicesFollowTheDrawnToken) {
  const DrivenSequence its = run("script_c", "mkdus");
  // m; k and xy behind it; a d that goes, with the y; a u that the splice does not mean; st for u
  EXPECT_EQ(its.text(), "pmkxzst");
  EXPECT_EQ(its.end, End::kStop) << its.error;
  EXPECT_THAT(its.logs, AllOf(HasSubstr(R"({"backtrack":0,"tokens":[],"sampled":null,)"),
                              HasSubstr(R"({"backtrack":0,"tokens":[109],"sampled":109,)"),
                              HasSubstr(R"({"backtrack":0,"tokens":[107,120,121],"sampled":107,)"),
                              HasSubstr(R"({"backtrack":1,"tokens":[122],"sampled":100,)"),
                              HasSubstr(R"({"backtrack":0,"tokens":[117],"sampled":117,)"),
                              HasSubstr(R"({"backtrack":1,"tokens":[115,116],"sampled":null,)")));
}

TEST_P(RuntimeSuiteC, ThePromptIsReplaced) {
  EXPECT_EQ(run("script_c", "Pm").text(), "PQm");
  EXPECT_EQ(run("script_c", "m").text(), "pm");
}

TEST_P(RuntimeSuiteC, OneBranchWaitsForTheOther) {
  const std::vector<DrivenSequence> all = driver_->run(id_of("script_c"), "fwg");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].text(), "p1wg");
  EXPECT_EQ(all[1].text(), "p2wg");
  EXPECT_EQ(all[1].end, End::kStop) << all[1].error;
}

TEST_P(RuntimeSuiteC, NobodyIsLeftToWaitFor) {
  const DrivenSequence its = run("script_c", "mW");
  EXPECT_EQ(its.text(), "pm");
  EXPECT_EQ(its.end, End::kFail);
  EXPECT_THAT(its.error, HasSubstr(kDeadlock));
}

TEST_P(RuntimeSuiteC, AMaskThatAllowsNothingFails) {
  const DrivenSequence its = run("script_c", "me");
  EXPECT_EQ(its.text(), "pm");
  EXPECT_EQ(its.end, End::kFail);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RuntimeSuite);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RuntimeSuiteA);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RuntimeSuiteC);

}  // namespace lmtp::aici::testing
