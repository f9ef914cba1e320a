// The compiler's queue, its memory of grammars, its limits of time, and how it ends.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiled_grammar.h"
#include "llguidance_library.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "support/constraint_driver.h"
#include "support/eventually.h"

namespace lmtp::constraint {
namespace {

using lmtp::testing::eventually;
using testing::Kind;
using testing::Streams;

// Its tokens are asked for when the first grammar comes: that waits here.
class SlowTokenizer : public tokenizer::Tokenizer {
 public:
  Result<std::vector<TokenId>> encode(std::string_view text) const override {
    return base().encode(text);
  }
  Result<std::vector<TokenId>> encode_around(
      std::string_view text, std::span<const tokenizer::TextRange> plain) const override {
    return base().encode_around(text, plain);
  }
  std::string decode(std::span<const TokenId> ids) const override { return base().decode(ids); }
  std::string_view token_bytes(TokenId id) const override {
    gate.wait(false);
    return base().token_bytes(id);
  }
  bool is_special(TokenId id) const override { return base().is_special(id); }
  int vocab_size() const override { return base().vocab_size(); }
  TokenId bos_id() const override { return base().bos_id(); }
  TokenId eos_id() const override { return base().eos_id(); }
  bool adds_bos() const override { return base().adds_bos(); }
  std::size_t spaces_dropped_max() const override { return base().spaces_dropped_max(); }

  void open() {
    gate = true;
    gate.notify_all();
  }

  std::atomic<bool> gate = false;

 private:
  static const tokenizer::Tokenizer& base() { return *testing::demo(); }
};

TEST(CompilerTest, WhatIsKnownIsAnsweredAtOnce) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kRegex, "[a-z]+");
  bool is_answered = false;
  streams.compiler().compile({Kind::kRegex, "[a-z]+"}, [&](GrammarCompiler::Compiled compiled) {
    is_answered = true;
    EXPECT_EQ(*compiled, grammar);
  });
  EXPECT_TRUE(is_answered);
  // Of the same text, and another kind.
  EXPECT_EQ(streams.refusal(Kind::kChoice, "[a-z]+").find("it is accepted"), std::string::npos);
  is_answered = false;
  streams.compiler().compile({Kind::kChoice, "[a-z]+"},
                             [&](const GrammarCompiler::Compiled& compiled) {
                               is_answered = true;
                               EXPECT_FALSE(compiled.ok());
                             });
  EXPECT_TRUE(is_answered);
}

TEST(CompilerTest, TheOldestIsForgotten) {
  Streams streams;
  const auto first = streams.grammar(Kind::kRegex, "x0");
  for (int i = 1; i < 256; ++i) streams.grammar(Kind::kRegex, "x" + std::to_string(i));
  EXPECT_EQ(streams.grammar(Kind::kRegex, "x0"), first);  // used again: now the newest
  streams.grammar(Kind::kRegex, "x256");
  EXPECT_EQ(streams.grammar(Kind::kRegex, "x0"), first);
  bool is_answered = false;
  std::promise<void> answered;
  streams.compiler().compile({Kind::kRegex, "x1"}, [&](const GrammarCompiler::Compiled&) {
    is_answered = true;
    answered.set_value();
  });
  const bool at_once = is_answered;
  answered.get_future().wait();
  EXPECT_FALSE(at_once);
}

TEST(CompilerTest, WhatWaitsTooLongIsRefusedAndWorksLater) {
  const auto slow = std::make_shared<SlowTokenizer>();
  GrammarCompiler compiler(slow, slow->vocab_size(), {slow->eos_id()},
                           {.timeout = std::chrono::milliseconds(50)});
  GrammarCompiler::Compiled late = Error{};
  EXPECT_TRUE(eventually([&] {  // on a slow machine the thread may begin it too late
    late = testing::compile(compiler, {Kind::kRegex, "a"});
    return late.error().code == ErrorCode::kInvalid;
  }));
  EXPECT_EQ(late.error().message,
            "grammar: took longer than 50 ms to compile; allowed are simpler ones");
  slow->open();
  // It is compiled all the same; then it is known.
  EXPECT_TRUE(eventually([&] { return testing::compile(compiler, {Kind::kRegex, "a"}).ok(); }));
}

// On the compiler's thread, even where the grammar is known: constrain() has nothing left to do.
TEST(CompilerTest, ResumedTokensAreLookedAtElsewhere) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kRegex, "[a-z ]+!");
  const auto ids = *streams.tokenizer().encode_continuation("some words");
  const auto compile = [&](std::vector<TokenId> resumed) {
    std::promise<std::pair<GrammarCompiler::Compiled, std::thread::id>> answer;
    streams.compiler().compile(
        {Kind::kRegex, "[a-z ]+!"},
        [&](GrammarCompiler::Compiled compiled) {
          answer.set_value({std::move(compiled), std::this_thread::get_id()});
        },
        std::move(resumed));
    return answer.get_future().get();
  };
  const auto [resumed, thread] = compile(ids);
  EXPECT_NE(thread, std::this_thread::get_id());
  ASSERT_TRUE(resumed.ok());
  const auto tokens = (*resumed)->resumed()->tokens();
  EXPECT_EQ(std::vector<TokenId>(tokens.begin(), tokens.end()), ids);
  EXPECT_FALSE(grammar->resumed().has_value());
  // As without it, on from there, and back from there.
  EXPECT_EQ(streams.draw(*constrain(*resumed, ids, nullptr), 3, 30, ids).tokens,
            streams.draw(*constrain(grammar, ids, nullptr), 3, 30, ids).tokens);
  const auto stream = constrain(*resumed, ids, nullptr);
  const std::vector<TokenId> other = *streams.tokenizer().encode_continuation("so");
  EXPECT_EQ(streams.next(*stream->mask_source, other)->words,
            streams.next(*constrain(grammar, {}, nullptr)->mask_source, other)->words);

  const auto digits = *streams.tokenizer().encode_continuation("some 9");
  const auto refused = compile(digits).first;
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(refused.error().message, constrain(grammar, digits, nullptr).error().message);
}

TEST(CompilerTest, AFullQueueSaysSo) {
  const auto slow = std::make_shared<SlowTokenizer>();
  GrammarCompiler compiler(slow, slow->vocab_size(), {slow->eos_id()},
                           {.timeout = std::chrono::hours(1)});
  std::atomic<int> num_good = 0;
  std::vector<std::promise<void>> answers(64);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    compiler.compile(
        {Kind::kRegex, "a" + std::to_string(i)},
        [&, i](const GrammarCompiler::Compiled& compiled) {
          if (compiled.ok()) ++num_good;
          answers[i].set_value();
        },
        {}, i < 48 ? 1 : 2);
    if (i != 47) continue;
    const auto of_one = testing::compile(compiler, {Kind::kRegex, "b"}, 1);
    ASSERT_FALSE(of_one.ok());
    EXPECT_EQ(of_one.error().message, "grammar: 48 wait already; try again later");
  }
  const auto refused = testing::compile(compiler, {Kind::kRegex, "b"}, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(refused.error().message, "grammar: 64 wait already; try again later");
  slow->open();
  for (std::promise<void>& answer : answers) answer.get_future().wait();
  EXPECT_EQ(num_good, 64);
}

// The machine has no address space for its threads' stacks; later it has again.
TEST(CompilerTest, WithoutAThreadAGrammarIsRefused) {
  Streams streams;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  rlim_t num_pages = 0;
  ASSERT_TRUE(statm >> num_pages);
  rlimit scarce = before;
  scarce.rlim_cur = num_pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{256} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &scarce), 0);
  const auto refused = testing::compile(streams.compiler(), {Kind::kRegex, "[a-z]+"});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_TRUE(refused.error().message.starts_with("grammar: no thread")) << refused.error().message;
  EXPECT_TRUE(testing::compile(streams.compiler(), {Kind::kRegex, "[a-z]+"}).ok());
}

TEST(CompilerTest, ItsEndAnswersWhatWaits) {
  const auto slow = std::make_shared<SlowTokenizer>();
  auto compiler = std::make_unique<GrammarCompiler>(slow, slow->vocab_size(),
                                                    std::vector<TokenId>{slow->eos_id()},
                                                    CompilerOptions{std::chrono::hours(1)});
  std::vector<std::promise<ErrorCode>> answers(3);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    compiler->compile(
        {Kind::kRegex, "a" + std::to_string(i)}, [&, i](const GrammarCompiler::Compiled& compiled) {
          answers[i].set_value(compiled.ok() ? ErrorCode::kInternal : compiled.error().code);
        });
  }
  std::thread ending([&] { compiler.reset(); });
  EXPECT_EQ(answers[2].get_future().get(), ErrorCode::kStopping);
  EXPECT_EQ(answers[1].get_future().get(), ErrorCode::kStopping);
  slow->open();
  ending.join();
}

TEST(CompilerTest, ItMayEndInItsOwnAnswer) {
  std::promise<void> answered;
  auto streams = std::make_shared<Streams>();
  GrammarCompiler& compiler = streams->compiler();
  // What is answered holds the last reference.
  compiler.compile({Kind::kRegex, "a+"},
                   [held = std::move(streams), &answered](GrammarCompiler::Compiled) mutable {
                     held.reset();
                     answered.set_value();
                   });
  answered.get_future().wait();
}

TEST(CompilerTest, AGrammarOutlivesItsCompiler) {
  std::shared_ptr<const CompiledGrammar> grammar;
  { grammar = Streams().grammar(Kind::kRegex, "ab"); }
  const Streams others;
  const auto stream = constrain(grammar, {}, nullptr);
  EXPECT_TRUE(others.draw(*stream, 1, 5).has_ended);
}

// Each ends in an error of a sentence, or is compiled: none takes the process along, or its time.
TEST(CompilerTest, Bombs) {
  Streams streams(testing::demo(), {.timeout = std::chrono::hours(1)});
  const auto repeat = [](const std::string& text, int num) {
    std::string all;
    for (int i = 0; i < num; ++i) all += text;
    return all;
  };
  std::string chain = "start: T0\n";
  for (int i = 0; i < 12'000; ++i) {
    chain += "T" + std::to_string(i) + ": T" + std::to_string(i + 1) + "\n";
  }
  chain += "T12000: \"a\"\n";
  const std::vector<Grammar> bombs = {
      {Kind::kRegex, "((((a{30}){30}){30}){30})"},
      {Kind::kRegex, "(a?){30000}a{30000}"},
      {Kind::kRegex, "(.*a){1000}"},
      {Kind::kRegex, "[ab]*a[ab]{5000}"},
      {Kind::kRegex, "(\\p{L}{1,500}x){50,500}"},
      {Kind::kRegex, repeat("(", 50'000) + repeat(")", 50'000)},
      {Kind::kRegex, repeat("a|", 20'000)},
      {Kind::kJsonSchema, repeat("[", 100'000)},
      {Kind::kJsonSchema, repeat(R"({"items":)", 20'000) + "{}" + repeat("}", 20'000)},
      {Kind::kJsonSchema, R"({"type":"string","maxLength":100000000})"},
      {Kind::kJsonSchema, R"({"type":"array","minItems":1000000000,"items":{"minItems":9999}})"},
      {Kind::kJsonSchema, R"({"$ref":"#"})"},
      {Kind::kJsonSchema, R"({"allOf":[{"$ref":"#"},{"$ref":"#"}],"type":"object"})"},
      {Kind::kJsonSchema, R"({"type":"string","pattern":"(.*a){500}(.*b){500}"})"},
      {Kind::kLark, "start: " + repeat("(", 20'000) + "\"a\"" + repeat(")", 20'000)},
      {Kind::kLark, "start: " + repeat("\"a\"?", 34'000)},
      {Kind::kLark, chain},
      {Kind::kLark, "start: T\nT: U{200}\nU: V{200}\nV: W{200}\nW: \"a\"{200}"},
      {Kind::kLark, "start: t\nt: u{1000}\nu: v{1000}\nv: w{1000}\nw: \"a\"{1000}"},
      {Kind::kLark, "start: t\nt: t t | t"},
      {Kind::kGbnf, "root ::= " + repeat("(", 64) + "\"a\"" + repeat(")*", 64)},
      {Kind::kGbnf, "root ::= " + repeat("[a-z]{1,9999} ", 100)},
      {Kind::kLlguidance, repeat(R"({"grammars":[)", 10'000)},
  };
  for (const Grammar& bomb : bombs) {
    const auto compiled = testing::compile(streams.compiler(), bomb);
    const std::string said = compiled.ok() ? "is compiled" : compiled.error().message;
    EXPECT_EQ(said.find("took longer"), std::string::npos) << bomb.text.substr(0, 60);
    EXPECT_LT(said.size(), 600U);
    if (compiled.ok()) streams.draw(*constrain(*compiled, {}, nullptr), 1, 20);
  }
}

TEST(CompilerTest, WhatIsMissingIsSaid) {
  const auto library = load_llguidance_from("/nonexistent");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(library.error().message.starts_with("llguidance cannot be loaded (/nonexistent/"))
      << library.error().message;
  EXPECT_TRUE(
      library.error().message.ends_with("): install all of a build with -DLMTP_GRAMMAR=ON"));
}

// llguidance joins the patterns to one, for minutes, and cannot be stopped. The last test, since it
// goes on behind it.
Grammar endless(int which) {
  std::string patterns;
  for (int i = 5; i < 40; ++i) {
    patterns += std::string(patterns.empty() ? "" : ",") + R"({"pattern":"(a|b){)" +
                std::to_string(i) + "," + std::to_string(3 * i + which) + R"(}c"})";
  }
  return {Kind::kJsonSchema, R"({"type":"string","allOf":[)" + patterns + "]}"};
}

TEST(CompilerTest, OthersAreCompiledBesideWhatTakesLong) {
  Streams streams(testing::demo(), {.timeout = std::chrono::milliseconds(200)});
  const std::string late = "grammar: took longer than 200 ms to compile; allowed are simpler ones";
  // A slow machine may need more than one try to begin one in time, or to compile it.
  const auto takes_long = [&](int which) {
    return eventually([&] {
      const auto compiled = testing::compile(streams.compiler(), endless(which));
      return !compiled.ok() && compiled.error().message == late;
    });
  };
  EXPECT_TRUE(takes_long(0));
  EXPECT_TRUE(eventually([&] {
    return testing::compile(streams.compiler(), {Kind::kRegex, "x0"}).ok();
  }));
  // It takes no second thread, and is answered at once.
  bool is_answered = false;
  streams.compiler().compile(endless(0), [&](const GrammarCompiler::Compiled& compiled) {
    is_answered = true;
    EXPECT_EQ(compiled.error().message, late);
  });
  EXPECT_TRUE(is_answered);
  EXPECT_TRUE(takes_long(1));
  const auto refused = testing::compile(streams.compiler(), {Kind::kRegex, "y"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(refused.error().message, "grammar: 2 others take long to compile; try again later");
  EXPECT_TRUE(eventually([&] {
    return testing::compile(streams.compiler(), {Kind::kRegex, "y"}, 2).ok();
  })) << "another share has a thread";
  EXPECT_TRUE(testing::compile(streams.compiler(), {Kind::kRegex, "x0"}).ok());
  // Its end does not wait for them.
}

// One client has many that take long: another's is compiled beside them.
TEST(CompilerTest, ManyThatTakeLongHoldUpNoOtherShare) {
  Streams streams(testing::demo(), {.timeout = std::chrono::seconds(2)});
  for (int i = 0; i < 48; ++i) {
    streams.compiler().compile(
        endless(i), [](const GrammarCompiler::Compiled&) {}, {}, 1);
  }
  EXPECT_TRUE(eventually([&] {  // a slow machine may need more than one try
    return testing::compile(streams.compiler(), {Kind::kRegex, "x+"}, 2).ok();
  }));
}

}  // namespace
}  // namespace lmtp::constraint
