// What the dispatcher asks of an operation, whichever it is. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "extended_stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/request.h"

namespace lmtp::server {

std::string id_in_use(StreamId id);

std::string_view verb_of(const Operation& operation);
StreamId id_of(const Operation& operation);
const std::string& model_of(const Operation& operation);  // empty: none is named
// Null where it is no stream.
const protocol::StreamOptions* options_of(const Operation& operation);
// Null where it has none.
const Grammar* grammar_of(const Operation& operation);
// A BUFFER of token ids does not.
bool needs_model(const Operation& operation);
// Whether it must not overtake a BUFFER.
bool concerns_buffers(const Operation& operation);
// What it takes while it waits.
std::size_t num_bytes(const Operation& operation);
// The same of the buffers that it holds, each once.
std::size_t num_buffer_bytes(const WaitingOperation& waiting);

// Of a GENERATE or SCORE: what its stream keeps of the message from the beginning on. `part`: of
// what waits, its connection's.
std::unique_ptr<ExtendedStream> make_extended(Operation operation,
                                              std::shared_ptr<MemoryLimit::Part> part);

// A stream's request with all that its samples have in common. What the session needs of it is set
// in `stream`, with one sample to begin with. The error is the client's.
Result<Request> make_request(protocol::GenerateMessage& message, Resolved resolved,
                             const registry::ReadyModel& model, ExtendedStream& stream);
Result<Request> make_request(protocol::ScoreMessage& message, Resolved resolved,
                             const registry::ReadyModel& model, ExtendedStream& stream);

}  // namespace lmtp::server
