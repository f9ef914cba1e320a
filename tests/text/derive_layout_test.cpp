// Whatever a template writes: a layout that says the same, or none.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "call_probe.h"
#include "lmtp/base/utf8.h"
#include "lmtp/text/call_writer.h"
#include "lmtp/text/known_formats.h"

namespace lmtp::text {
namespace {

// What a template of that layout makes of the probe's chats.
CallProbe probe_of(const CallLayout& layout) {
  return {
      .before_answer = "<|end|>\n<|assistant|>",
      .after_answer = "<|end|>\n",
      .one_call = "<|end|>\n<|assistant|>" + write_calls(layout, probe_call_list(1)) + "<|end|>\n",
      .two_calls =
          "<|end|>\n<|assistant|>" + write_calls(layout, probe_call_list(2)) + "<|end|>\n"};
}

TEST(DeriveLayout, FindsEveryKnownFormatAgain) {
  int found = 0;
  for (const KnownFormat& format : known_formats()) {
    for (const CallLayout& layout : format.calls) {
      const auto derived = derive_layout(probe_of(layout));
      if (!derived) continue;
      ++found;
      EXPECT_EQ(write_calls(*derived, probe_call_list(2)), write_calls(layout, probe_call_list(2)))
          << format.name;
    }
  }
  EXPECT_GE(found, 45);
}

// Cuts, doubles, swaps and replaces pieces.
std::string changed(std::string text, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) {
    return random() % std::max<std::size_t>(1, limit);
  };
  for (std::size_t left = 1 + below(3); left > 0; --left) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t size = below(std::min<std::size_t>(24, text.size() - at) + 1);
    const std::string piece = text.substr(at, size);
    switch (below(4)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(below(text.size() + 1), piece);
        break;
      case 2:
        text.replace(at, size, std::string(size, "<>{}\"\xc3lmtp"[below(10)]));
        break;
      default:
        text.insert(at, probe_call_list(2)[below(2)].name);
    }
  }
  return text;
}

TEST(DeriveLayout, TakesWhateverATemplateWrites) {
  std::mt19937 random(1);
  int found = 0;
  for (int round = 0; round < 100; ++round) {
    for (const KnownFormat& format : known_formats()) {
      CallProbe probe = probe_of(format.calls.front());
      for (std::string* text :
           {&probe.before_answer, &probe.after_answer, &probe.one_call, &probe.two_calls}) {
        if (random() % 2 == 0) *text = changed(*text, random);
      }
      const auto derived = derive_layout(probe);
      if (!derived) continue;
      ++found;
      EXPECT_TRUE(agrees(probe, {*derived})) << format.name << " " << round;
      EXPECT_TRUE(is_utf8(derived->call_begin) && is_utf8(derived->call_end)) << round;
    }
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace lmtp::text
