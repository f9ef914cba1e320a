// response_template in tokenizer_config.json, by which transformers 5 reads replies.
#pragma once

#include <optional>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::text {

struct ResponseTemplate {
  // Where white space may stand by a pattern, there is none.
  std::optional<CallLayout> calls = {};  // nullopt: it has none
  std::optional<ReasoningLayout> reasoning = {};
};

// `text`: JSON. The error says what of it is no layout: such as a pattern that is more than literal
// text, white space and the name.
Result<ResponseTemplate> read_response_template(const std::string& text);

}  // namespace lmtp::text
