// What a chat asks of its reply beside calls: reasoning, and what constrains the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "generation/reply_plan.h"
#include "replies.h"

namespace lmtp::server {
namespace {

const text::ReasoningLayout kThink{"<think>", "</think>"};

TEST(ReplyContent, ReasoningIsReadAndNothingInItIsACall) {
  const std::string call = text::write_calls(hermes(), kOne);
  Replies replies({.calls = {hermes()}, .reasoning = kThink}, {.tools = some_tools()});
  const std::string text = "<think>\nHm, " + call + "\n</think>\n\nSo: " + call;
  bool ends = false;
  EXPECT_EQ(replies.written(text, ends), text);
  EXPECT_EQ(replies.read(text, text.size()), "~Hm, " + call + "~So: " + shown_calls(kOne));
  // A block that the prompt has opened.
  Replies inside({.calls = {hermes()}, .reasoning = kThink}, {.tools = some_tools()},
                 "<|assistant|>\n<think>\n");
  EXPECT_EQ(inside.read("Hm </think> " + call, 99), "~Hm~" + shown_calls(kOne));
  // And one that it has closed.
  Replies behind({.calls = {hermes()}, .reasoning = kThink}, {.tools = some_tools()},
                 "<think>\n\n</think>\n\n");
  EXPECT_EQ(behind.read("<think> is a tag", 99), "<think> is a tag");
}

TEST(ReplyContent, AReplyGoesOnWhereItsMessageEnds) {
  const auto read = [](const std::string& begun) {
    Replies replies({.reasoning = kThink}, {.begun = begun}, "<think> </think>" + begun);
    return replies.read("so</think>on", 4);
  };
  EXPECT_EQ(read("<think>\nI th"), "~so~on");
  EXPECT_EQ(read("<think>I</think>It is"), "so</think>on");
  EXPECT_EQ(read("It is"), "so</think>on");
}

TEST(ReplyContent, WhatConstrainsAReplyBeginsAfterItsReasoning) {
  const Grammar schema{Grammar::Kind::kJsonSchema,
                       R"({"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false,
                           "x-guidance": {"whitespace_flexible": false}})"};
  for (const std::string prompt : {"", "<think>\n"}) {
    Replies replies({.reasoning = kThink}, {.grammar = schema}, prompt);
    const std::string begin = prompt.empty() ? "<think>" : "";
    const std::string text = begin + "What is {it?}</think>{\"a\":17}";
    bool ends = false;
    EXPECT_EQ(replies.written(text + "x", ends), text);
    EXPECT_TRUE(ends);
    EXPECT_EQ(replies.read(text, 2), "~What is {it?}~{\"a\":17}") << "in pieces";
  }
  Replies at_once({.reasoning = kThink}, {.grammar = schema}, "");
  bool ends = false;
  EXPECT_EQ(at_once.written("{\"a\":17}", ends), "{\"a\":17}") << "without reasoning";
  EXPECT_TRUE(ends);
  EXPECT_EQ(at_once.written("Sure", ends), "");
}

TEST(ReplyContent, ReasoningThatIsLongEnoughIsClosed) {
  Replies replies({.reasoning = kThink}, {.reasoning_tokens_max = 5}, "<think>\n");
  const auto stream = replies.stream();
  ASSERT_TRUE(stream.ok());
  const auto drawn = replies.streams().draw(*stream, 1, 40);
  const std::string text = replies.streams().text_of(drawn.tokens);
  const std::size_t end = text.find("</think>");
  ASSERT_NE(end, std::string::npos) << text;
  const auto thoughts = replies.streams().text_of(std::span(drawn.tokens).first(5));
  EXPECT_EQ(end, thoughts.size()) << text;
}

// Where drafts may come is where nothing is masked.
TEST(ReplyContent, ItIsKnownHowFarAnythingMayFollow) {
  const std::string call = text::write_calls(hermes(), kOne);
  const std::string text = "<think>\nI look.</think> See:\n```\n" + call + "\n```\n" + call + " ok";
  for (const bool has_tools : {true, false}) {
    ReplyWishes wishes{.reasoning_tokens_max = 9, .min_tokens = 2};
    if (has_tools) wishes.tools = some_tools();
    Replies replies({.calls = {hermes()}, .reasoning = kThink}, wishes);
    const auto stream = replies.stream();
    ASSERT_TRUE(stream.ok());
    const std::vector<TokenId> tokens = *replies.streams().tokenizer().encode_continuation(text);
    const std::span<const TokenId> all(tokens);
    std::vector<bool> is_free;
    for (std::size_t at = 0; at <= all.size(); ++at) {
      const auto next = replies.streams().next(*stream->mask_source, all.first(at));
      is_free.push_back(next.ok() && std::ranges::count(next->words, ~0U) ==
                                         static_cast<std::ptrdiff_t>(next->words.size()));
    }
    for (std::size_t at = 0; at < all.size(); ++at) {
      const auto end =
          std::find(is_free.begin() + static_cast<std::ptrdiff_t>(at), is_free.end(), false);
      const std::ptrdiff_t num = end - is_free.begin() - static_cast<std::ptrdiff_t>(at);
      EXPECT_EQ(stream->mask_source->num_free(all.first(at), all.subspan(at)),
                static_cast<std::size_t>(std::max<std::ptrdiff_t>(num - 1, 0)))
          << at;
    }
    EXPECT_GT(std::ranges::count(is_free, true), 20);
    EXPECT_GT(std::ranges::count(is_free, false), has_tools ? 20 : 2);
  }
}

TEST(ReplyContent, MinTokensCountAfterReasoning) {
  Replies replies({.reasoning = kThink}, {.min_tokens = 3}, "<think>\n");
  EXPECT_TRUE(replies.plan().counts_min_tokens);
  const auto stream = replies.stream();
  ASSERT_TRUE(stream.ok());
  std::vector<TokenId> tokens = *replies.streams().tokenizer().encode_continuation("Hm</think>");
  EXPECT_FALSE(
      replies.streams().next(*stream->mask_source, tokens)->allows(replies.streams().eos()));
  const auto more = *replies.streams().tokenizer().encode_continuation("a b c d");
  tokens.insert(tokens.end(), more.begin(), more.begin() + 3);
  EXPECT_TRUE(
      replies.streams().next(*stream->mask_source, tokens)->allows(replies.streams().eos()));
}

TEST(ReplyContent, ASchemaOfTheContentLeavesRoomForCalls) {
  const Grammar schema{Grammar::Kind::kJsonSchema,
                       R"({"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false})"};
  Replies replies({.calls = {hermes()}}, {.tools = some_tools(), .grammar = schema});
  const std::string call = text::write_calls(hermes(), kOne);
  bool ends = false;
  EXPECT_EQ(replies.written(call, ends), call);
  EXPECT_EQ(replies.read(call, 5), shown_calls(kOne));
  EXPECT_EQ(replies.written("{\"a\": 1}", ends), "{\"a\": 1}");
  EXPECT_EQ(replies.read("{\"a\": 1}", 5), "{\"a\": 1}");
  EXPECT_EQ(replies.written("Sure", ends), "");
}

ReplyLayout harmony() {
  const auto all = forms();
  const auto found = std::ranges::find_if(
      all, [](const Form& form) { return form.calls.opening.starts_with("<|channel|>"); });
  ReplyLayout layout = found->reply;
  layout.reasoning = text::known_reasoning("<|channel|>analysis<|message|>");
  return layout;
}
const std::string kHarmonyThought = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";

TEST(ReplyContent, ContentThatIsConstrainedComesAfterWhatItsModelWritesBefore) {
  const Grammar schema{Grammar::Kind::kJsonSchema,
                       R"({"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false})"};
  std::set<std::string> begins;
  for (const Form& form : forms()) {
    const std::string& begin = form.reply.content_begin;
    if (!begins.insert(begin).second || begin.empty()) continue;
    SCOPED_TRACE(form.name);
    for (const bool has_tools : {false, true}) {
      ReplyWishes wishes{.grammar = schema};
      if (has_tools) wishes.tools = some_tools();
      Replies replies(form.reply, wishes);
      bool ends = false;
      const std::string text = begin + "{\"a\": 17}";
      EXPECT_EQ(replies.written("{", ends), "") << "without it";
      EXPECT_EQ(replies.written(text, ends), text);
      EXPECT_TRUE(ends);
      for (std::size_t size = 1; size <= 7; ++size) {
        EXPECT_EQ(replies.read(text, size), "{\"a\": 17}") << size;
      }
      if (!has_tools) continue;
      EXPECT_EQ(replies.written(form.written(kOne), ends), form.written(kOne));
    }
    Replies begun(form.reply, {.grammar = schema, .begun = "So: "}, "So: ");
    bool ends = false;
    EXPECT_EQ(begun.written("{\"a\": 17}", ends), "{\"a\": 17}") << "its message goes on";
  }
  EXPECT_EQ(begins.size(), 6U);
}

TEST(ReplyContent, EachKindOfConstraintComesAfterIt) {
  using Kind = Grammar::Kind;
  const std::string begin = harmony().content_begin;
  for (const auto& [kind, grammar, text] : std::vector<std::tuple<Kind, std::string, std::string>>{
           {Kind::kJson, "", "{\"a\": [1]}"},
           {Kind::kRegex, R"([a-z]/\d\/x)", "b/7/x"},
           {Kind::kChoice, R"x(["\"yes\"", "no"])x", "\"yes\""},
           {Kind::kLark, "start: word\nword: /[a-z]+!/", "abc!"},
           {Kind::kGbnf, R"(root ::= "a"+ "b")", "aab"}}) {
    Replies replies(harmony(), {.grammar = Grammar{kind, grammar}});
    for (const std::string before : {"", kHarmonyThought.c_str()}) {
      bool ends = false;
      EXPECT_EQ(replies.written(before + begin + text + "~", ends), before + begin + text);
      EXPECT_TRUE(ends) << text;
      EXPECT_EQ(replies.read(before + begin + text, 3), (before.empty() ? "" : "~Hm~") + text);
    }
    bool ends = false;
    EXPECT_EQ(replies.written(kHarmonyThought + text, ends), kHarmonyThought);
  }
}

TEST(ReplyContent, AMessageOfReasoningIsFollowedByAnother) {
  for (const Choice choice : {Choice::kRequired, Choice::kNamed, Choice::kAuto}) {
    Replies replies(harmony(), {.tools = some_tools(choice)}, "<|end|><|start|>assistant");
    for (const CallLayout& calls : harmony().calls) {
      if (calls.opening.starts_with("<|start|>")) continue;
      const std::string text = kHarmonyThought + text::write_calls(calls, kOne);
      bool ends = false;
      EXPECT_EQ(replies.written(text, ends), text);
      for (std::size_t size = 1; size <= 7; ++size) {
        EXPECT_EQ(replies.read(text, size), "~Hm~" + shown_calls(kOne)) << size;
      }
    }
  }
  Replies bounded(harmony(), {.reasoning_tokens_max = 5});
  const auto stream = bounded.stream();
  ASSERT_TRUE(stream.ok());
  const auto begin =
      bounded.streams().tokenizer().encode_around("<|channel|>analysis<|message|>", {});
  const auto drawn = bounded.streams().draw(*stream, 1, 20, *begin);
  EXPECT_NE(bounded.streams().text_of(drawn.tokens).find("<|end|><|start|>assistant"),
            std::string::npos);
}

TEST(ReplyContent, ARecipientIsNoText) {
  const auto all = forms();
  const auto form = std::ranges::find(all, std::string("functionary_v3_2"),
                                      [](const Form& one) { return one.reply.name; });
  Replies replies(form->reply, {.tools = some_tools()});
  const std::string call = form->written(kOne);
  for (std::size_t size = 1; size <= 9; ++size) {
    EXPECT_EQ(replies.read("all\nHi, all\nof you" + call, size),
              "Hi, all\nof you" + shown_calls(kOne));
    EXPECT_EQ(replies.read(call + ">>>all\nThat is it.", size), shown_calls(kOne) + "That is it.");
    EXPECT_EQ(replies.read("all", size), "all");
    EXPECT_EQ(replies.read("alloys\n", size), "alloys\n");
  }
}

}  // namespace
}  // namespace lmtp::server
