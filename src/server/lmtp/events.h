// From the events of models to the messages of a connection.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/event.h"
#include "peer.h"

namespace lmtp::server {

using Answers = std::vector<std::string>;

protocol::ErrorEntry error_entry(std::optional<StreamId> id, Error error, bool no_model = false);
void answer_token_error(const protocol::ErrorEntry& error, Answers& answers);
void answer_msg_error(const protocol::ErrorEntry& error, Answers& answers);
// The end of a stream that no model has: where its model could not be had, as MSG too, since LMQL
// takes one of the two for the answer.
void answer_stream_error(const protocol::ErrorEntry& error, Answers& answers);

// What has become of an operation that waited for its model, or of rows.
struct Outcome {
  StreamId id = 0;
  std::optional<StreamError> error;  // nothing: the model is ready, or other rows, or their answer
  bool is_counted = true;            // the error, by who told of it
};

// What a controller has written before its stream begins, and the prompt where it has changed that.
void answer_begun(StreamId id, WaitingOperation& waiting, const BegunController& begun,
                  Answers& answers);

// The events of one step of one connection as messages: at most one TOKEN, one MSG of progress and
// one of notices, and a MSG for each stream whose model could not be had. Streams that end leave
// the table; events of streams that are not in it are dropped. What waited is the caller's to go on
// with.
std::vector<Outcome> append_events(std::span<StreamEvent> events, Peer& peer, Answers& messages);

}  // namespace lmtp::server
