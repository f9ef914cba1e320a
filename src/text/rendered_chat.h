// A rendered chat as lmtp-jinja sends it.
#pragma once

#include <optional>
#include <string_view>

#include "lmtp/text/chat_template.h"

namespace lmtp::text {

// Behind AnswerKind::kDone; each part of the text is made UTF-8. That process runs a model's code:
// nullopt for what is no such answer.
std::optional<RenderedChat> read_rendered(std::string_view answer);

}  // namespace lmtp::text
