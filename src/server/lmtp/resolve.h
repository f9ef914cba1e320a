// From what a message says to token ids. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "extended_stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/registry.h"

namespace lmtp::server {

// Holds the buffers that the prompt has as parts. The error names one that is unknown or too short.
Result<void> hold_buffers(const std::vector<protocol::PromptPart>& parts, const Buffers& buffers,
                          WaitingOperation& waiting);

// Encodes what is text and puts parts together. A prompt that is longer than the context without
// its text is refused before that. The error's text is about the field.
Result<Resolved> resolve(WaitingOperation& waiting, const registry::ReadyModel& model);

// Of the text that resolve() encodes.
std::size_t num_text_bytes(const Operation& operation);

Error unknown_buffer(const std::string& name);
bool has_text(const std::vector<protocol::PromptPart>& parts);
// The error of a field that needs a tokenizer, where the model has none for that reason.
Error no_tokenizer(std::string_view option, const Error& reason);

}  // namespace lmtp::server
