// LMTP messages as plain structs, one per verb. On the wire: `NAME SPACE JSON` in one WebSocket
// text message; what the server sends is always a JSON array.
//
// Reference: LMQL, src/lmql/models/lmtp (README.md, lmtp_server.py, lmtp_client.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/candidate_logprob.h"
#include "lmtp/request/chat.h"
#include "lmtp/request/event.h"
#include "lmtp/request/grammar.h"
#include "lmtp/request/sampling_changes.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::protocol {

// ---- client to server ----

// Of a prompt that is not token ids alone: text, ids, or a buffer of the connection.
struct BufferPart {
  std::string name;
  std::optional<std::size_t> upto;  // its first tokens; absent: all
};
using PromptPart = std::variant<std::string, std::vector<TokenId>, BufferPart>;
inline constexpr std::size_t kMaxPromptParts = 256;

// What GENERATE and SCORE have in common besides tokens and model.
struct StreamOptions {
  std::vector<PromptPart> prompt_parts;  // not empty: in the place of `prompt`
  bool add_special_tokens = true;
  std::optional<bool> text;  // absent: where the prompt (of a SCORE: what is scored) has text
  bool skip_special_tokens = true;
  bool notices = false;
  int first_token_timeout_ms = 0;  // 0: none
  int timeout_ms = 0;              // 0: none
  std::string cache_salt = {};     // at most kMaxCacheSaltBytes; empty: none
};
inline constexpr int kMaxTimeoutMs = 86'400'000;
inline constexpr std::size_t kMaxCacheSaltBytes = 256;

inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 256;
inline constexpr int kMaxSamples = 64;
inline constexpr std::size_t kMaxBufferNameBytes = 64;

// How the reply to a chat is read: calls of its tools, and reasoning, are told apart from text.
struct ReplyReading {
  std::string tool_choice = {};  // OpenAI's, as JSON; empty: "auto"
  bool parallel_tool_calls = true;
  int thinking_token_budget = -1;  // negative: none
};

struct GenerateMessage {
  StreamId stream_id = 0;
  std::string model;            // empty: the loaded one
  std::vector<TokenId> prompt;  // not empty, or there are parts, or a chat; ids >= 0
  SamplingParams params;
  std::vector<std::string> unknown_keys;  // at most kMaxUnknownKeysKept, for one log line
  StreamOptions options = {};
  std::vector<std::string> stop = {};  // at most kMaxStops of 1 to kMaxStopBytes bytes
  bool include_stop = false;
  int num_resumed = 0;    // >= 0; of the prompt's last tokens
  int num_samples = 1;    // [1, kMaxSamples]
  std::string into = {};  // the buffer that gets prompt and generated tokens; empty: none
  // In the place of a prompt, which is then what came of it before: num_resumed ids.
  std::optional<Chat> chat = {};
  std::optional<ReplyReading> reading = {};  // where there is a chat; nothing: all of it is text
  std::vector<std::string> bad_words = {};   // at most kMaxBadWords of 1 to kMaxBadWordBytes bytes
  std::optional<Grammar> grammar = {};       // without triggers where there is `reading`
  std::string controller = {};               // of AICI: a tag, or a module's id; empty: none
  std::string controller_arg = {};           // a string as it is, or other JSON as text
};

// A text that may follow a prompt, as ids or as text.
using Candidate = std::variant<std::vector<TokenId>, std::string>;

struct ScoreMessage {
  StreamId stream_id = 0;
  std::string model;
  std::vector<TokenId> prompt;  // may be empty
  std::vector<TokenId> scored;  // not empty, or there is text, or there are candidates
  std::vector<std::string> unknown_keys = {};
  StreamOptions options = {};
  std::string scored_text = {};  // in the place of `scored`
  // In the place of both: the sum of each is asked for, and no entry of a token.
  std::vector<Candidate> candidates = {};
  int top_logprobs = 0;
  std::shared_ptr<const std::vector<TokenId>> logprob_token_ids = {};  // SamplingParams'
  Measures measures = {};
};

// Typed questions about a state. Its JSON are texts. REQUIRES: they are valid JSON.
struct DecideMessage {
  StreamId stream_id = 0;
  std::string model = {};
  std::string state = {};      // a string, an object or a list; empty: there are messages
  std::string messages = {};   // as Chat's; empty: there is a state
  std::string questions = {};  // an object
  std::string scoring = "auto";
  bool diagnoses = false;
  std::string instructions = {};     // plain text, the system's; empty: none
  std::string template_kwargs = {};  // as Chat's
  std::vector<std::string> unknown_keys = {};
  StreamOptions options = {};  // its notices and timeouts
};

struct TokenizeMessage {
  StreamId stream_id = 0;
  std::string model;
  std::string text;
  bool add_special_tokens = true;
  std::optional<Chat> chat = {};  // in the place of the text
};

struct DetokenizeMessage {
  StreamId stream_id = 0;
  std::string model;
  std::vector<TokenId> tokens;
  bool skip_special_tokens = true;
};

struct BufferMessage {
  StreamId stream_id = 0;
  std::string model;
  std::string buffer;                                       // its name
  std::variant<std::vector<TokenId>, std::string> content;  // ids or text
  bool append = false;
  std::optional<bool> add_special_tokens;  // absent: where the text begins the buffer
};

struct FreeMessage {
  std::optional<StreamId> stream_id;
  std::string buffer;
};

struct ModelInfoMessage {
  StreamId stream_id = 0;
  std::string model;
};

// An extension of lmtp-serve: ends a live stream; an unknown id is ignored.
struct CancelMessage {
  StreamId stream_id = 0;
};

// Begins streams with the tokens of a live one.
struct ForkMessage {
  StreamId stream_id = 0;         // of the live one
  std::vector<StreamId> streams;  // [1, kMaxForks], distinct
  SamplingChanges changes;
};
inline constexpr std::size_t kMaxForks = 64;

// Drops the last tokens of a live stream and puts others behind the rest.
struct BacktrackMessage {
  StreamId stream_id = 0;
  std::int64_t num_dropped = 0;  // >= 0
  std::vector<TokenId> appended;
};

// Uploads, names or lists controllers of AICI.
struct ControllerMessage {
  enum class Op { kUpload, kTag, kUntag, kList };

  StreamId stream_id = 0;
  std::string model;
  Op op = Op::kList;
  std::string binary = {};     // kUpload: the WebAssembly itself; not empty
  std::string module_id = {};  // kTag: [1, kMaxModuleIdBytes] bytes
  // kTag, kUntag: [1, kMaxTags], each of 1 to kMaxTagBytes bytes
  std::vector<std::string> tags = {};
};
inline constexpr std::size_t kMaxModuleIdBytes = 256;
inline constexpr std::size_t kMaxTags = 64;
inline constexpr std::size_t kMaxTagBytes = 256;
// As CONTROLLER's `op` has it.
std::string_view controller_op_name(ControllerMessage::Op op);

using ClientMessage = std::variant<GenerateMessage, ScoreMessage, DecideMessage, ModelInfoMessage,
                                   CancelMessage, TokenizeMessage, DetokenizeMessage, BufferMessage,
                                   FreeMessage, ForkMessage, BacktrackMessage, ControllerMessage>;

// What parse_client_message found wrong.
struct ParseError {
  std::string message;                // "<field>: what is wrong and what is allowed"
  std::optional<StreamId> stream_id;  // where the message named one
  bool opens_stream = false;          // GENERATE, SCORE or DECIDE: the answer is a TOKEN error
  bool unknown_verb = false;  // the answer is a TOKEN error unless stream_id is a live stream
  ErrorCode code = ErrorCode::kInvalid;  // or kTooLong
};

// ---- server to client ----

// The end of a stream by an error: an entry of a TOKEN array. If no stream exists, an entry of a
// MSG array, whose stream_id is null if the request had none.
struct ErrorEntry {
  std::optional<StreamId> stream_id;
  std::string error;
  ErrorCode code = ErrorCode::kInvalid;
  bool no_model = false;          // StreamError's
  std::optional<int> index = {};  // of the sample, where there are several
  int retry_after_ms = 0;         // 0: that of the code
};

// Some of a call of a function.
struct CallPiece {
  int index = 0;  // of the call
  std::string id = {};
  std::string name = {};       // both in its first piece
  std::string arguments = {};  // the next bytes of their JSON
  bool is_complete = false;    // in its last piece, unless it is cut
};

// What a token's text says beside `text`, where the reply is read.
struct ReplyPieces {
  std::string reasoning = {};
  std::vector<CallPiece> calls = {};
};

// The answer to a DECIDE.
struct DecisionAnswer {
  std::string answers = {};      // a JSON object, by the questions' names
  std::string diagnostics = {};  // likewise
  std::int64_t num_prompt = 0;   // tokens of all questions
  std::int64_t num_cached = 0;   // of these, that a cache had
};

// A token's entry: the event, and what its stream asked for besides.
struct TokenEntry {
  TokenEvent event;
  std::optional<int> index = {};  // of the sample, where there are several
  std::optional<std::string> text = {};
  std::shared_ptr<const ReplyPieces> pieces = {};  // null: none
  std::optional<std::string> stop_text = {};       // the stop string that ended the stream
  std::optional<ForkBegun> fork = {};              // of the first one of a fork
  std::optional<SampleForked> forked = {};         // it has no token: a controller has forked one
  // The answer to a SCORE of candidates; it has no token.
  std::optional<std::vector<CandidateLogprob>> candidates = {};
  std::optional<DecisionAnswer> decision = {};  // likewise
};

// A notice of a stream that asked for them; which members are sent depends on `status`.
struct NoticeEntry {
  StreamId stream_id = 0;
  std::optional<int> index = {};
  // "accepted", "queued", "preempted", "resumed", "recomputes", "draining", "moved"
  std::string_view status;
  std::uint64_t seed = 0;    // accepted
  std::string model = {};    // accepted
  int num_prompt = 0;        // accepted
  int position = 0;          // queued
  std::int64_t wait_ms = 0;  // queued: wait_ms_estimate; draining: deadline_ms
  int num_tokens = 0;        // recomputes
};

// What a stream's controller has written: an entry of a MSG array.
struct ControllerEntry {
  StreamId stream_id = 0;
  std::optional<int> index = {};
  std::string logs;
  std::string storage;  // a JSON list; empty: none
  std::int64_t micros = 0;
  std::optional<std::vector<TokenId>> prompt = {};  // in the place of the request's
};

// Answers to TOKENIZE, DETOKENIZE, BUFFER and FREE: entries of a MSG array.
struct TokensEntry {
  StreamId stream_id = 0;
  std::vector<TokenId> tokens;
};
struct TextEntry {
  StreamId stream_id = 0;
  std::string text;
};
struct BufferEntry {
  StreamId stream_id = 0;
  std::string buffer;
  std::size_t length = 0;
};

// The answer to MODEL_INFO: an entry of a MSG array. `info` is a JSON object as text.
struct ModelInfoEntry {
  StreamId stream_id = 0;
  std::string info_json;
};

// The answer to CONTROLLER, likewise.
struct ControllerAnswer {
  StreamId stream_id = 0;
  std::string controller_json;
};

// An entry that a client receives, from lmtp-serve or from LMQL's server.
struct ServerEntry {
  bool is_msg = false;  // true: of a MSG array; false: of a TOKEN array
  std::optional<StreamId> stream_id;
  std::optional<TokenId> token;  // none also where a controller ends, forks or cuts the stream
  float logprob = 0.0F;
  FinishReason finish_reason = FinishReason::kNone;
  std::vector<TokenLogprob> top_logprobs;
  std::vector<TokenLogprob> token_logprobs;  // of logprob_token_ids
  std::vector<CandidateLogprob> candidates = {};
  Measured measured = {};
  std::string answers_json = {};  // of a DECIDE; empty: none
  std::string error;              // empty: none
  std::string error_code = {};    // empty: the server does not say
  bool retryable = false;
  int retry_after_ms = 0;                 // [0, kMaxTimeoutMs]
  int index = 0;                          // of the sample: >= 0
  int num_backtracked = 0;                // >= 0: so many tokens before this one are gone
  bool is_forced = false;                 // TokenEvent's
  std::optional<int> fork_of_index = {};  // of a sample's first entry, where a controller forked
  int fork_at = 0;                        // >= 0: so many of that sample's tokens come before
  std::optional<std::string> text = {};
  std::optional<std::string> stop_text = {};
  std::optional<std::vector<TokenId>> tokens = {};  // the answer to TOKENIZE
  std::string status;      // "loading", "accepted", "queued", ..., or empty
  std::uint64_t seed = 0;  // of status "accepted"
  int position = 0;        // of status "queued"
  int wait_ms = 0;         // as well: wait_ms_estimate
  int num_tokens = 0;      // of status "recomputes"
  int progress_percent = 0;
  std::string model_info_json;       // empty: none
  std::string controller_json = {};  // of a stream's controller, or the answer to CONTROLLER
  std::string raw_json;              // the entry's text as received
};

}  // namespace lmtp::protocol
