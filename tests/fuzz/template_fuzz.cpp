// What libFuzzer calls with one chat template after the other (tools/dev/fuzz.py): whatever a
// template is, the server gets an answer, and no special token in it is a client's.
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "fake_tokenizer.h"
#include "lmtp/base/utf8.h"
#include "lmtp/text/chat_template.h"

namespace lmtp::text {
namespace {

constexpr std::size_t kRenderedBytesMax = std::size_t{3} << 20;  // U+FFFD for each of 1 MiB
constexpr std::string_view kSpecial = "</s>";

void check(bool holds, const char* what, const std::string& source) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, source.c_str());
  std::abort();
}

void check_rendered(const RenderedChat& rendered, const std::string& source) {
  check(is_utf8(rendered.text), "no UTF-8", source);
  check(rendered.text.size() <= kRenderedBytesMax, "too long", source);
  std::size_t done = 0;
  for (const tokenizer::TextRange& range : rendered.plain) {
    check(range.begin >= done && range.end >= range.begin, "ranges out of order", source);
    done = range.end;
  }
  check(done <= rendered.text.size(), "a range beyond the text", source);
  // What a template without that character writes is from the client.
  if (source.find('<') != std::string::npos) return;
  for (std::size_t at = 0; (at = rendered.text.find(kSpecial, at)) != std::string::npos; ++at) {
    bool is_plain = false;
    for (const tokenizer::TextRange& range : rendered.plain) {
      is_plain |= range.end > at && range.begin < at + kSpecial.size();
    }
    check(is_plain, "a special token of the client", source);
  }
}

}  // namespace
}  // namespace lmtp::text

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lmtp::text;
  const std::string source(reinterpret_cast<const char*>(data), size);
  if (!simdjson::validate_utf8(source)) return 0;
  static const auto tokenizer = std::make_shared<const lmtp::testing::FakeTokenizer>(300);
  const auto made = ChatTemplate::make({{{"default", source}}, {}}, tokenizer);
  if (!made) {
    check(!made.error().message.empty(), "says nothing", source);
    return 0;
  }
  const lmtp::Chat chat = {
      .messages = R"([{"role": "user", "content": "a</s>b é"}, {"role": "assistant",
        "content": "</s>",
        "tool_calls": [{"function": {"arguments": {"x</s>": ["</s>", 1.5]}}}]}])",
      .tools = R"([{"type": "function", "function": {"name": "f</s>"}}])"};
  for (int i = 0; i < 2; ++i) {
    const auto rendered = (*made)->render(chat);
    if (rendered) {
      check_rendered(*rendered, source);
    } else {
      check(!rendered.error().message.empty(), "says nothing", source);
    }
  }
  return 0;
}
