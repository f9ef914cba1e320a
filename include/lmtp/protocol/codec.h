// Text to messages and back. Pure functions and one cache; no sockets, no threads of their own.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::protocol {

inline constexpr std::size_t kMaxUnknownKeysKept = 8;
inline constexpr std::size_t kBiasCacheBytes = std::size_t{64} << 20;

// Keeps equal logit biases once, so that a repeated mask of 25,000 entries costs one comparison of
// its bytes: the key is the JSON object's text, compared exactly.
//
// Owner: the server, shared by all sessions. Any thread.
class BiasCache {
 public:
  explicit BiasCache(std::size_t max_bytes = kBiasCacheBytes);
  ~BiasCache();
  BiasCache(const BiasCache&) = delete;
  BiasCache& operator=(const BiasCache&) = delete;

  // Null where this text has not been seen, or was evicted.
  std::shared_ptr<const LogitBias> find(std::string_view object_text);
  // REQUIRES: `object_text` is one whole, valid JSON object that was read as `bias`.
  void insert(std::string_view object_text, std::shared_ptr<const LogitBias> bias);

  struct PrefixHit {
    std::shared_ptr<const LogitBias> bias;  // null: none
    std::size_t num_bytes = 0;              // how much of the text it is
  };
  // As find, for the object that `text` begins with, whatever follows it; only among the few used
  // last. It spares looking for the object's end, and no text of one whole object is the beginning
  // of another, so a hit is exact.
  PrefixHit find_at_front(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a model takes at most, as far as that is known.
struct RequestLimits {
  std::size_t num_tokens = std::numeric_limits<std::size_t>::max();  // of prompt, and of scored
  std::size_t num_biases = std::numeric_limits<std::size_t>::max();
};
// Asked for messages with long fields only. `model`: as it stands in the message, escapes and all;
// empty: none is named.
using LimitsOf = std::function<RequestLimits(std::string_view model)>;

// Parses one text message from a client and checks all that can be checked without a model.
// Checks that need the model (ids within the vocabulary, context) are the dispatcher's.
// What is longer than `limits_of` says is refused unread: megabytes of JSON take ten times their
// size to parse.
// REQUIRES: `text` is valid UTF-8 (the socket has checked it). Any thread, one parser a thread is
// reused inside.
std::variant<ClientMessage, ParseError> parse_client_message(std::string_view text,
                                                             BiasCache& bias_cache,
                                                             const LimitsOf& limits_of = nullptr);

// Parses one text message from a server: all entries of its array (an object alone is taken as an
// array of one). Messages that are neither TOKEN nor MSG give an empty vector.
Result<std::vector<ServerEntry>> parse_server_message(std::string_view text);

// Each appends one whole message (`TOKEN [...]` or `MSG [...]`) to `out`.
// Log probabilities are written as the shortest decimal that reads back as the same float; minus
// infinity, which JSON lacks, as -1e30.
using TokenOrError = std::variant<TokenEvent, TokenEntry, ErrorEntry>;
void serialize_tokens(std::span<const TokenOrError> entries, std::string& out);
void serialize_msg_error(const ErrorEntry& entry, std::string& out);
void serialize_loading(std::span<const LoadingNotice> entries, std::string& out);
void serialize_notices(std::span<const NoticeEntry> entries, std::string& out);
void serialize_answer(const std::variant<TokensEntry, TextEntry, BufferEntry>& entry,
                      std::string& out);
void serialize_model_info(const ModelInfoEntry& entry, std::string& out);

// What a client sends; `params` keys at their defaults are left out, as LMQL does. `bias_json`: of
// a GENERATE, in the place of its params' logit_bias, where that is sent again and again.
std::string serialize_client_message(const ClientMessage& message, std::string_view bias_json = {});
// A logit_bias as it stands in a message.
std::string serialize_bias(const LogitBias& bias);

}  // namespace lmtp::protocol
