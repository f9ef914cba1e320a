// LMTP messages: parsing and serialising. Pure functions and one cache; no sockets, no threads.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
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

// Interns logit biases, so that a repeated mask of 25,000 entries costs one comparison of its
// bytes: the key is the JSON object's text, compared exactly.
//
// Owner: the server, shared by all sessions. Any thread.
class BiasCache {
 public:
  explicit BiasCache(std::size_t max_bytes = kBiasCacheBytes);
  ~BiasCache();
  BiasCache(const BiasCache&) = delete;
  BiasCache& operator=(const BiasCache&) = delete;

  // Null if this text has not been seen, or was evicted.
  std::shared_ptr<const LogitBias> find(std::string_view object_text);
  // REQUIRES: `object_text` is one whole, valid JSON object that was read as `bias`.
  void insert(std::string_view object_text, std::shared_ptr<const LogitBias> bias);

  struct PrefixHit {
    std::shared_ptr<const LogitBias> bias;  // null: none
    std::size_t num_bytes = 0;              // length of the matched object's text
  };
  // As find, for the object at the front of `text`, whatever follows it; only among the most
  // recently used. Saves the scan for the object's end. No complete object's text is a prefix of
  // another one's, so a hit is exact.
  PrefixHit find_at_front(std::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A model's limits, as far as they are known.
struct RequestLimits {
  std::size_t num_tokens = std::numeric_limits<std::size_t>::max();  // of prompt, and of scored
  std::size_t num_biases = std::numeric_limits<std::size_t>::max();
};
// Called only for messages with long fields. `model`: as in the message, JSON escapes included;
// empty: none is named.
using LimitsOf = std::function<RequestLimits(std::string_view model)>;

// Parses one text message from a client, with all checks that need no model; the dispatcher makes
// the others (ids within the vocabulary, context).
// Fields longer than `limits_of` allows are refused without being parsed: parsing takes ten times
// the memory of the text.
// REQUIRES: `text` is valid UTF-8 (the socket has checked it). Any thread; uses a thread-local
// parser.
std::variant<ClientMessage, ParseError> parse_client_message(std::string_view text,
                                                             BiasCache& bias_cache,
                                                             const LimitsOf& limits_of = nullptr);

// Parses one text message from a server: all entries of its array (a lone object counts as an array
// of one). Messages other than TOKEN and MSG give an empty vector.
Result<std::vector<ServerEntry>> parse_server_message(std::string_view text);

// The text of the value of `key` in the object `text`, which is JSON, if there is one.
std::optional<std::string_view> find_raw_field(std::string_view text, std::string_view key);

// Each appends one whole message (`TOKEN [...]` or `MSG [...]`) to `out`.
// Log probabilities are written as the shortest decimal that reads back as the same float; minus
// infinity, which JSON does not have, as -1e30.
using TokenOrError = std::variant<TokenEvent, TokenEntry, ErrorEntry>;
void serialize_tokens(std::span<const TokenOrError> entries, std::string& out);
void serialize_msg_error(const ErrorEntry& entry, std::string& out);
void serialize_loading(std::span<const LoadingNotice> entries, std::string& out);
void serialize_controllers(std::span<const ControllerEntry> entries, std::string& out);
void serialize_notices(std::span<const NoticeEntry> entries, std::string& out);
void serialize_answer(const std::variant<TokensEntry, TextEntry, BufferEntry>& entry,
                      std::string& out);
void serialize_model_info(const ModelInfoEntry& entry, std::string& out);
void serialize_controller_answer(const ControllerAnswer& entry, std::string& out);

// A client's message; parameters at their defaults are omitted, as LMQL does. `bias_json`: for a
// GENERATE, replaces its params' logit_bias, so that a repeated mask is serialised once.
std::string serialize_client_message(const ClientMessage& message, std::string_view bias_json = {});
// A logit_bias as `bias_json` takes it.
std::string serialize_bias(const LogitBias& bias);

}  // namespace lmtp::protocol
