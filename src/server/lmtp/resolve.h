// From what a message says to token ids, and back. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "extended_stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/models.h"

namespace lmtp::server {

// Holds the buffers that the prompt has as parts. The error names one that is unknown or too short.
Result<void> hold_buffers(const std::vector<protocol::PromptPart>& parts, const Buffers& buffers,
                          WaitingOperation& waiting);

// Encodes what is text and puts parts together; or decodes. A prompt that is longer than the
// context without its text is refused before that, and what would be answered with more than
// max_answer_bytes. The error's text is about the field.
Result<Encoded> resolve(WaitingOperation& waiting, const registry::ReadyModel& model,
                        std::size_t max_answer_bytes);

// Bytes of the text that resolve() encodes, or of the ids that it decodes.
std::size_t num_coded_bytes(const Operation& operation);
// Whether resolve() renders a chat.
bool renders_chat(const Operation& operation);

Error too_much(std::string_view field, std::size_t max_answer_bytes);
Error unknown_buffer(const std::string& name);
bool has_text(const std::vector<protocol::PromptPart>& parts);

}  // namespace lmtp::server
