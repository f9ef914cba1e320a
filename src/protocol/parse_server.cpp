// Parses a server's text, of lmtp-serve or of LMQL's own server.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "json_parser.h"
#include "json_scan.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

using simdjson::dom::element;

// The number under `key`; empty if it is missing or of another type.
template <typename T>
std::optional<T> get(const simdjson::dom::object& object, std::string_view key) {
  T value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// The number under `key`, clamped to [0, most]; 0 if it is missing or of another type.
int clamped(const simdjson::dom::object& object, std::string_view key, int most) {
  return static_cast<int>(
      std::clamp(get<double>(object, key).value_or(0.0), 0.0, static_cast<double>(most)));
}

std::optional<std::string> get_text(const simdjson::dom::object& object, std::string_view key) {
  const auto text = get<std::string_view>(object, key);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

// The ids under `key` up to the first entry that is not one.
std::optional<std::vector<TokenId>> get_tokens(const simdjson::dom::object& object,
                                               std::string_view key) {
  const auto array = get<simdjson::dom::array>(object, key);
  if (!array) return std::nullopt;
  std::vector<TokenId> tokens;
  for (const element item : *array) {
    std::int64_t id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS || id != static_cast<TokenId>(id)) break;
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

std::vector<TokenLogprob> read_logprobs(const simdjson::dom::object& object,
                                        std::string_view field) {
  std::vector<TokenLogprob> top;
  const auto fields = get<simdjson::dom::object>(object, field);
  if (!fields) return top;
  for (const auto& [key, value] : *fields) {
    TokenLogprob entry;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), entry.token);
    double logprob = 0.0;
    if (parsed.ec != std::errc() || value.get_double().get(logprob) != simdjson::SUCCESS) continue;
    entry.logprob = static_cast<float>(logprob);
    top.push_back(entry);
  }
  return top;
}

std::vector<CandidateLogprob> read_candidates(const simdjson::dom::object& object) {
  std::vector<CandidateLogprob> candidates;
  const auto array = get<simdjson::dom::array>(object, "candidates");
  if (!array) return candidates;
  for (const element item : *array) {
    simdjson::dom::object one;
    if (item.get_object().get(one) != simdjson::SUCCESS) continue;
    candidates.push_back({get<double>(one, "logprob").value_or(0.0),
                          clamped(one, "num_tokens", std::numeric_limits<int>::max())});
  }
  return candidates;
}

ServerEntry read_entry(bool is_msg, const simdjson::dom::object& object, std::string_view raw) {
  ServerEntry entry;
  entry.is_msg = is_msg;
  entry.stream_id = get<std::int64_t>(object, "stream_id");
  if (const auto token = get<std::int64_t>(object, "token")) {
    entry.token = static_cast<TokenId>(*token);
  }
  entry.logprob = static_cast<float>(get<double>(object, "logprob").value_or(0.0));
  const std::string_view reason = get<std::string_view>(object, "finish_reason").value_or("");
  if (!reason.empty()) {
    entry.finish_reason = reason == "length" ? FinishReason::kLength : FinishReason::kStop;
  }
  entry.top_logprobs = read_logprobs(object, "top_logprobs");
  entry.token_logprobs = read_logprobs(object, "token_logprobs");
  entry.candidates = read_candidates(object);
  if (const auto entropy = get<double>(object, "entropy")) {
    entry.measured.entropy = static_cast<float>(*entropy);
  }
  entry.measured.rank = clamped(object, "rank", std::numeric_limits<int>::max());
  entry.error = get<std::string_view>(object, "error").value_or("");
  entry.error_code = get<std::string_view>(object, "code").value_or("");
  entry.retryable = get<bool>(object, "retryable").value_or(false);
  entry.retry_after_ms = clamped(object, "retry_after_ms", kMaxTimeoutMs);
  entry.index = clamped(object, "index", std::numeric_limits<int>::max());
  entry.num_backtracked = clamped(object, "backtrack", std::numeric_limits<int>::max());
  entry.is_forced = get<bool>(object, "forced").value_or(false);
  entry.fork_at = clamped(object, "fork_at", std::numeric_limits<int>::max());
  if (get<std::int64_t>(object, "fork_of_index")) {
    entry.fork_of_index = clamped(object, "fork_of_index", std::numeric_limits<int>::max());
  }
  entry.text = get_text(object, "text");
  entry.stop_text = get_text(object, "stop_text");
  entry.tokens = get_tokens(object, "tokens");
  entry.status = get<std::string_view>(object, "status").value_or("");
  entry.seed = get<std::uint64_t>(object, "seed").value_or(0);
  entry.position = clamped(object, "position", std::numeric_limits<int>::max());
  entry.wait_ms = clamped(object, "wait_ms_estimate", kMaxTimeoutMs);
  entry.num_tokens = clamped(object, "num_tokens", std::numeric_limits<int>::max());
  entry.progress_percent = clamped(object, "progress", 100);
  if (get<simdjson::dom::object>(object, "model_info")) {
    entry.model_info_json = find_raw_field(raw, "model_info").value_or("");
  }
  if (get<simdjson::dom::object>(object, "answers")) {
    entry.answers_json = find_raw_field(raw, "answers").value_or("");
  }
  if (get<simdjson::dom::object>(object, "controller")) {
    entry.controller_json = find_raw_field(raw, "controller").value_or("");
  }
  entry.raw_json = raw;
  return entry;
}

}  // namespace

Result<std::vector<ServerEntry>> parse_server_message(std::string_view text) {
  std::vector<ServerEntry> entries;
  const std::size_t space = std::min(text.find(' '), text.size());
  const std::string_view verb = text.substr(0, space);
  if (verb != "TOKEN" && verb != "MSG") return entries;
  const std::string_view payload = text.substr(std::min(space + 1, text.size()));

  JsonParser& parser = thread_parser();
  const ParserTrimmer trimmer(parser);
  element document;
  const simdjson::error_code code = parser.parse(payload).get(document);
  if (code != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid,
                 "the server sent a " + std::string(verb) +
                     " message that is not JSON: " + simdjson::error_message(code)};
  }
  simdjson::dom::object object;
  if (document.get_object().get(object) == simdjson::SUCCESS) {
    entries.push_back(read_entry(verb == "MSG", object, payload));
    return entries;
  }
  const std::vector<std::string_view> raws = split_raw_array(payload);
  simdjson::dom::array array;
  if (document.get_array().get(array) != simdjson::SUCCESS || array.size() != raws.size()) {
    return Error{ErrorCode::kInvalid,
                 "the server sent a " + std::string(verb) + " message that is not an array"};
  }
  entries.reserve(raws.size());
  std::size_t i = 0;
  for (const simdjson::dom::element item : array) {
    if (item.get_object().get(object) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid, "the server sent an entry that is not an object"};
    }
    entries.push_back(read_entry(verb == "MSG", object, raws[i]));
    ++i;
  }
  return entries;
}

}  // namespace lmtp::protocol
