// LMTP messages as plain structs, one per verb. On the wire: `NAME SPACE JSON` in one WebSocket
// text message; what the server sends is always a JSON array.
//
// Reference: LMQL, src/lmql/models/lmtp (README.md, lmtp_server.py, lmtp_client.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::protocol {

// ---- client to server ----

struct GenerateMessage {
  StreamId stream_id = 0;
  std::string model;            // empty: the loaded one
  std::vector<TokenId> prompt;  // not empty; ids >= 0
  SamplingParams params;
  std::vector<std::string> unknown_keys;  // at most kMaxUnknownKeysKept, for one log line
};

struct ScoreMessage {
  StreamId stream_id = 0;
  std::string model;
  std::vector<TokenId> prompt;  // may be empty
  std::vector<TokenId> scored;  // not empty
  std::vector<std::string> unknown_keys = {};
};

struct ModelInfoMessage {
  StreamId stream_id = 0;
  std::string model;
};

// Our extension: ends a live stream; an unknown id is ignored.
struct CancelMessage {
  StreamId stream_id = 0;
};

using ClientMessage = std::variant<GenerateMessage, ScoreMessage, ModelInfoMessage, CancelMessage>;

// What parse_client_message found wrong.
struct ParseError {
  std::string message;                // "<field>: what is wrong and what is allowed"
  std::optional<StreamId> stream_id;  // where the message named one
  bool opens_stream = false;          // the verb is GENERATE or SCORE: a TOKEN error is due
  bool unknown_verb = false;          // the same, unless the id is a live stream's
};

// ---- server to client ----

// The end of a stream by an error: an entry of a TOKEN array (or of MSG, where no stream exists;
// stream_id is then null where the request had none).
struct ErrorEntry {
  std::optional<StreamId> stream_id;
  std::string error;
};

// The answer to MODEL_INFO: an entry of a MSG array. `info` is a JSON object as text.
struct ModelInfoEntry {
  StreamId stream_id = 0;
  std::string info_json;
};

// A server's entry as a client meets it, ours or LMQL's.
struct ServerEntry {
  bool is_msg = false;  // of a MSG array; else of a TOKEN array
  std::optional<StreamId> stream_id;
  std::optional<TokenId> token;
  float logprob = 0.0F;
  FinishReason finish_reason = FinishReason::kNone;
  std::vector<TokenLogprob> top_logprobs;
  std::string error;   // empty: none
  std::string status;  // "loading", or empty
  int progress_percent = 0;
  std::string model_info_json;  // empty: none
  std::string raw_json;         // the entry as it stood on the wire
};

}  // namespace lmtp::protocol
