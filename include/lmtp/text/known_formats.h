// The formats of calls and reasoning that published chat templates have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/text/reply_layout.h"

namespace lmtp::text {

struct KnownFormat {
  std::string_view name;  // as vLLM calls its parser, where it has one
  // A template is of this format if it has all of `markers` and none of `others`.
  std::vector<std::string_view> markers;
  std::vector<std::string_view> others = {};
  std::string_view token = {};  // not empty: that special token is in the vocabulary, too
  std::vector<CallLayout> calls;
  std::vector<std::string> dropped = {};
  std::string message_begin = {};
  std::string content_begin = {};

  bool is_of(std::string_view chat_template) const;
};

// The first that a template is of counts. Several rows with one name are variants.
const std::vector<KnownFormat>& known_formats();

std::optional<ReasoningLayout> known_reasoning(std::string_view chat_template);

}  // namespace lmtp::text
