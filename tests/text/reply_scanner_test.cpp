// Where reasoning begins and ends in a text, and what opens a grammar, however it is cut.
#include "lmtp/text/reply_scanner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::text {
namespace {

using Kind = ReplyScanner::Kind;

// "text", "~reasoning~", "|" at its end, and "@rest" from an opening on.
std::string shown(const std::vector<ReplyScanner::Part>& parts) {
  std::string out;
  for (const ReplyScanner::Part& part : parts) {
    if (part.kind == Kind::kText) out += part.bytes;
    if (part.kind == Kind::kReasoning) out += "~" + part.bytes + "~";
    if (part.kind == Kind::kReasoningEnd) out += "|";
    if (part.kind == Kind::kOpening) out += "@" + part.bytes;
  }
  return out;
}

// In pieces of so many bytes; nothing comes after an opening.
std::string scan(const GrammarTriggers& markers, const std::string& text, std::size_t size) {
  ReplyScanner scanner(std::make_shared<const GrammarTriggers>(markers));
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    if (scanner.has_stopped()) {
      out += text.substr(at);
      break;
    }
    out += shown(scanner.push(text.substr(at, size)));
  }
  out += shown(scanner.finish());
  for (auto at = out.find("~~"); at != std::string::npos; at = out.find("~~")) out.erase(at, 2);
  return out;
}

const GrammarTriggers kMarkers{.reasoning_begin = "<think>",
                               .reasoning_end = "</think>",
                               .openings = {"<call>", "<call2>"},
                               .first_openings = {"{\"name\": \"f\""},
                               .dropped = {"<|start|>", "<|end|>"}};

TEST(ReplyScanner, ATextIsReadTheSameInPiecesOfEachSize) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a<call>b", "a@<call>b"},
      {"a<cal", "a<cal"},
      {"<call2>x", "@<call2>x"},
      {" \n<think>a<call>b</think> c<call>", " \n~a<call>b~| c@<call>"},
      {"a<think>b", "a<think>b"},
      {"```\n<call>\n```\n<call>", "```\n<call>\n```\n@<call>"},
      {"a ```<call>", "a ```@<call>"},
      {"{\"name\": \"f\"}", "@{\"name\": \"f\"}"},
      {"\n {\"name\": \"f\"}", "\n @{\"name\": \"f\"}"},
      {"So {\"name\": \"f\"}", "So {\"name\": \"f\"}"},
      {"{\"name\": \"g\"}", "{\"name\": \"g\"}"},
      {"<|start|><think>a</think>b<|end|>c", "~a~|bc"},
      {"b<|end|><think>a</think>", "b~a~|"},
      {"<think><think>a</think>", "~a~|"},
      {"<think>a", "~a~"},
      {"<<<call>", "<<@<call>"},
  };
  for (const auto& [text, expected] : cases) {
    for (std::size_t size = 1; size <= text.size(); ++size) {
      EXPECT_EQ(scan(kMarkers, text, size), expected) << text << ", " << size;
    }
  }
}

TEST(ReplyScanner, ALongerMarkerGoesFirst) {
  const GrammarTriggers markers{.openings = {"<call>"}, .dropped = {"<call>none"}};
  for (std::size_t size = 1; size <= 9; ++size) {
    EXPECT_EQ(scan(markers, "<call>nonea<call>f", size), "a@<call>f") << size;
    EXPECT_EQ(scan(markers, "<call>not", size), "@<call>not") << size;
    EXPECT_EQ(scan(markers, "a<call>", size), "a@<call>") << size;
  }
}

TEST(ReplyScanner, ATextMayBeginInsideOfReasoning) {
  GrammarTriggers markers = kMarkers;
  markers.in_reasoning = true;
  EXPECT_EQ(scan(markers, "a</think>{\"name\": \"f\"", 3), "~a~|@{\"name\": \"f\"");
  EXPECT_EQ(scan(markers, "<think>a</think>b", 3), "~a~|b") << "which the model opens once more";
}

TEST(ReplyScanner, WhatIsHeldIsNoLongerThanAMarker) {
  ReplyScanner scanner(std::make_shared<const GrammarTriggers>(kMarkers));
  EXPECT_EQ(shown(scanner.push("abc <cal")), "abc ");
  EXPECT_EQ(shown(scanner.push("m")), "<calm");
}

TEST(ReplyScanner, AnOpeningMayEndAndMayBeNone) {
  ReplyScanner scanner(std::make_shared<const GrammarTriggers>(kMarkers));
  EXPECT_EQ(shown(scanner.push("a<call>b")), "a@<call>b");
  EXPECT_EQ(shown(scanner.resume(" c<call>")), " c@<call>");
  EXPECT_EQ(shown(scanner.reject("<call><call>d")), "<call>@<call>d");
  EXPECT_TRUE(scanner.has_stopped());
}

}  // namespace
}  // namespace lmtp::text
