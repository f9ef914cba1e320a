// What the dispatcher asks of an operation, whichever it is. Pure functions; any thread.
#pragma once

#include <memory>
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
// Null where it is no stream.
const protocol::StreamOptions* options_of(const Operation& operation);
// A BUFFER of token ids does not.
bool needs_model(const Operation& operation);
// Whether it must not overtake a BUFFER.
bool concerns_buffers(const Operation& operation);
// What a stream keeps of its message from the beginning on.
std::unique_ptr<ExtendedStream> make_extended(CallerModels models, Encoder& encoder,
                                              const Peer& peer, Operation operation);

// A stream's request with all that its samples have in common. What the session needs of it is set
// in `stream`, with one sample to begin with. The error is the client's.
Result<Request> make_request(protocol::GenerateMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream);
Result<Request> make_request(protocol::ScoreMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream);
Result<Request> make_request(protocol::DecideMessage& message, Encoded encoded,
                             const registry::ReadyModel& model, ExtendedStream& stream);

}  // namespace lmtp::server
