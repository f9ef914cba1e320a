// Calls whose arguments are none, as a model may write them where no grammar holds: none is whole,
// and what follows them is text.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "replies.h"

namespace lmtp::server {
namespace {

using Arguments = CallLayout::Arguments;

std::string closing_text(const CallLayout& layout) { return layout.call_end + layout.section_end; }

// How many calls of a reply that ends with this text are whole.
std::ptrdiff_t num_whole_calls(const Form& form, const std::string& text) {
  TokenEvent token;
  token.finish_reason = FinishReason::kStop;
  ReplyEvents events;
  Replies(form.reply, {.tools = some_tools()})
      .plan()
      .format()
      ->read(text::mark_special(*model_tokenizer(), text), token, false, events);
  return std::ranges::count_if(
      events, [](const ReplyEvent& event) { return std::holds_alternative<CallEnds>(event); });
}

TEST(BrokenCalls, ACallWhoseArgumentsAreNoJsonIsNotWhole) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    std::string one = form.written(kOne);
    one.replace(one.rfind('3'), 1, "3x");
    EXPECT_EQ(num_whole_calls(form, one), 0);
  }
}

TEST(BrokenCalls, WithinArgumentsThatAreNoJsonThereIsNone) {
  int num_tried = 0;
  for (const Form& form : forms()) {
    if (form.calls.arguments != Arguments::kJson || !form.opens()) continue;
    SCOPED_TRACE(form.name);
    const std::string one = form.written(kOne);
    const std::size_t at = one.find('{', one.find(kOne.front().arguments.begin().key()) - 3);
    if (at == std::string::npos) continue;
    ++num_tried;
    for (const char* begin : {"'t': '", "'t': '} ", "'t': '}}]\" ", "'t': 'a\"b}' , 'u': '"}) {
      const std::string text = std::string(one).insert(at + 1, begin + one + one + "', ");
      EXPECT_EQ(num_whole_calls(form, text), 0) << begin;
    }
  }
  EXPECT_GT(num_tried, 3);
}

// A call that lacks the quote after this text, or its bracket.
std::string without_end_of(const Form& form, const Calls& calls, const std::string& text) {
  std::string one = form.written(calls);
  const std::string& quote = form.calls.string_quote;
  const std::size_t at = one.rfind(text) + text.size();
  return one.erase(at, quote.empty() ? 1 : quote.size());
}

// What tells that a call is over, but for brackets.
bool has_closing(const CallLayout& layout) {
  return (layout.call_end + layout.section_end).find_first_not_of("}]) \n") != std::string::npos;
}

std::vector<std::string> broken_calls(const Form& form) {
  const auto call = [](const char* json) {
    return Calls{{"weather", "abc123456", *parse_ordered_json(json, "")}};
  };
  const Calls nested = call(R"({"city": "x", "at": {"lat": 1.5, "names": ["y", "z"]}})");
  std::vector<std::string> broken = {without_end_of(form, nested, "z"),
                                     without_end_of(form, nested, "1.5")};
  if (form.calls.arguments != Arguments::kTagged) {  // there a text has no quotes
    broken.push_back(without_end_of(form, call(R"({"city": "Rome"})"), "Rome"));
    broken.push_back(without_end_of(form, call(R"({"city": "Rome", "days": 3})"), "Rome"));
  }
  if (form.calls.arguments == Arguments::kJson) {
    broken.push_back(without_end_of(form, nested, R"(["y", "z")"));
    broken.push_back(without_end_of(form, nested, R"(["y", "z"])"));
  }
  return broken;
}

// The call's own bracket is missing, not one of its arguments: what follows is not within them.
bool has_whole_arguments(const std::string& call) {
  return call.find(R"(["y", "z"]})") != std::string::npos;
}

TEST(BrokenCalls, WhatClosesACallEndsArgumentsThatDoNot) {
  int num_tried = 0;
  for (const Form& form : forms()) {
    if (!form.opens() || !has_closing(form.calls)) continue;
    const Replies replies(form.reply, {.tools = some_tools()});
    for (const std::string& broken : broken_calls(form)) {
      SCOPED_TRACE(broken);
      ++num_tried;
      for (const std::string& after : {std::string("So it is.\n"), std::string("It's \"x\".")}) {
        const std::string text = broken + "\n" + after + form.written(kOne);
        const std::string shown = after.substr(0, after.find('\n'));
        for (const std::size_t size : {std::size_t{1}, std::size_t{5}, text.size()}) {
          std::string out = replies.read(text, size);
          std::erase(out, '\n');
          EXPECT_TRUE(out.starts_with("{weather ") && out.find(shown) != std::string::npos) << out;
          EXPECT_LE(num_whole_calls(form, text), has_whole_arguments(broken) ? 1 : 0);
          EXPECT_TRUE(replies.read(broken + "\nOK", size).ends_with("OK"));
        }
      }
    }
  }
  EXPECT_GT(num_tried, 50);
}

// Where nothing closes calls.
TEST(BrokenCalls, WhatOpensACallEndsArgumentsThatDoNot) {
  int num_tried = 0;
  for (const Form& form : forms()) {
    if (!form.opens() || has_closing(form.calls)) continue;
    for (const std::string& broken : broken_calls(form)) {
      SCOPED_TRACE(broken);
      ++num_tried;
      const std::string text = broken + "\n" + form.written(kOne);
      EXPECT_LE(num_whole_calls(form, text), has_whole_arguments(broken) ? 1 : 0);
      const Replies replies(form.reply, {.tools = some_tools()});
      EXPECT_TRUE(replies.read(text, 4).starts_with("{weather "));
    }
  }
  EXPECT_GT(num_tried, 10);
}

// A text that is quoted rightly, in arguments that are wrong after it.
TEST(BrokenCalls, AMarkWithinATextMakesNoCallOfWhatFollowsIt) {
  for (const Form& form : forms()) {
    if (form.calls.arguments != Arguments::kJson || !form.opens()) continue;
    SCOPED_TRACE(form.name);
    const std::string one = form.written(kOne);
    const std::string inner = nlohmann::json(closing_text(form.calls) + one).dump();
    const std::size_t at = one.find('{', one.find(kOne.front().arguments.begin().key()) - 3);
    if (at == std::string::npos) continue;
    for (const char* wrong : {"NaN", "True", "'x'", "\"\\ud83d\""}) {
      const std::string text =
          std::string(one).insert(at + 1, "\"t\": " + inner + ", \"n\": " + wrong + ", ");
      EXPECT_EQ(num_whole_calls(form, text), 0) << wrong;
    }
  }
}

TEST(BrokenCalls, SpecialTokensArePartOfNoArguments) {
  int num_tried = 0;
  for (const Form& form : forms()) {
    const std::string closing = form.calls.call_end + form.calls.section_end;
    const std::size_t special = closing.find("<|tool_call_end|>");
    if (form.calls.arguments != Arguments::kPython || special == std::string::npos) continue;
    SCOPED_TRACE(form.name);
    ++num_tried;
    const std::string one = form.written(kOne);
    const std::size_t at = one.find(", ") + 2;
    for (const char* inserted : {"<|tool_call_end|>", "x='\\<|tool_call_end|>', "}) {
      EXPECT_EQ(num_whole_calls(form, std::string(one).insert(at, inserted)), 0) << inserted;
    }
  }
  EXPECT_GT(num_tried, 0);
}

TEST(BrokenCalls, ArgumentsThatAreNoObjectAreTextWhereNothingClosesThem) {
  const Form form = {"hermes", {.calls = {hermes()}}, hermes()};
  const Replies replies(form.reply, {.tools = some_tools()});
  const std::string begin = "<tool_call>\n{\"name\": \"weather\", \"arguments\": ";
  EXPECT_TRUE(replies.read(begin + "null}\nThe answer is 5.", 3).ends_with("The answer is 5."));
}

TEST(BrokenCalls, WhatIsCutWithinATextIsStillOfTheArguments) {
  const Form form = {"hermes", {.calls = {hermes()}}, hermes()};
  const Replies replies(form.reply, {.tools = some_tools()});
  const std::string begin = "<tool_call>\n{\"name\": \"weather\", \"arguments\": ";
  const std::string cut = R"({"city": "</tool_call> x)";
  EXPECT_EQ(replies.read(begin + cut, 3, FinishReason::kLength), "{weather " + cut);
  EXPECT_EQ(replies.read(begin + cut, 3), R"({weather {"city": "x)");
}

}  // namespace
}  // namespace lmtp::server
