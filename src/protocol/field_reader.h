// The known fields of one client message, and the checks that turn them into values.
#pragma once

#include <simdjson.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/request/field_checks.h"
#include "lmtp/request/sampling_table.h"

template <>
struct lmtp::FieldAccess<simdjson::dom::element> {
  static FieldValue value(const simdjson::dom::element& json);
  static simdjson::dom::array items(const simdjson::dom::element& json) {
    return json.get_array().value();
  }
  static simdjson::dom::object members(const simdjson::dom::element& json) {
    return json.get_object().value();
  }
};

namespace lmtp::protocol {

enum class Field : std::uint8_t {
  kStreamId,
  kModel,
  kPrompt,
  kScored,
  kData,
  kFirstParam,  // then the others of kSamplingTable
  kMask = kFirstParam + kSamplingTable.size(),
  kLogprobs,
  kLogprobTokenIds,
  kEntropy,
  kRank,
  kCandidates,
  kStopTokenIds,
  kStop,
  kIncludeStop,
  kBadWords,
  kResumed,
  kN,
  kInto,
  kAddSpecialTokens,
  kText,
  kSkipSpecialTokens,
  kNotices,
  kFirstTokenTimeoutMs,
  kTimeoutMs,
  kCacheSalt,
  kTokens,
  kBuffer,
  kAppend,
  kMessages,
  kTools,
  kAddGenerationPrompt,
  kChatTemplateKwargs,
  kParsed,
  kToolChoice,
  kParallelToolCalls,
  kThinkingTokenBudget,
  kGrammar,
  kController,
  kControllerArg,
  kStreams,
  kParams,
  kDrop,
  kOp,
  kBinary,
  kModuleId,
  kTags,
  kState,
  kQuestions,
  kScoring,
  kDiagnostics,
  kInstructions,
  kCount,
};

inline constexpr auto kNumFields = static_cast<std::size_t>(Field::kCount);

// The field's name on the wire.
std::string_view field_name(Field field);

// Reads fields one after the other. A field that is null counts as absent.
// Owner: the parse of one message; lives no longer than the parsed document.
class FieldReader : public FieldChecks {
 public:
  explicit FieldReader(simdjson::dom::object object);

  // Names of unknown fields, at most kMaxUnknownKeysKept.
  std::vector<std::string> take_unknown_keys() { return std::move(unknown_keys_); }

  // The stream id if it is valid; otherwise empty, without setting the error.
  std::optional<StreamId> peek_stream_id() const;

  // Whether the message has the field, whatever is in it.
  bool has(Field field) const { return element(field).has_value(); }
  bool is_text(Field field) const { return has(field) && element(field)->is_string(); }
  using FieldChecks::fail;
  void fail(Field field, std::string_view what) { fail(field_name(field), what); }

  StreamId required_stream_id();
  std::string optional_string(Field field, std::size_t max_bytes);
  std::string required_string(Field field);
  std::optional<bool> optional_bool(Field field);
  // Clamped to the range's maximum.
  int whole(Field field, int absent, const ParamRange& range);
  // Larger numbers are refused.
  int whole_within(Field field, int absent, int low, int high);
  // Any that is not negative, for those who know what is allowed; absent: 0.
  std::int64_t count(Field field);
  // The field must be present, an array of whole numbers in [0, 2^31). With `parts` it may be a
  // list of prompt parts, which are appended there.
  std::vector<TokenId> required_tokens(Field field, bool may_be_empty,
                                       std::vector<PromptPart>* parts = nullptr);
  // Token ids, or none and `parts`.
  std::vector<TokenId> required_prompt(bool may_be_empty, std::vector<PromptPart>& parts);
  // Ids or text each; REQUIRES: has(kCandidates).
  std::vector<Candidate> candidates();
  // A buffer's name.
  std::string required_name(Field field);
  // Strings, or one alone, each of 1 to `bytes_max` bytes; absent: none.
  std::vector<std::string> strings(Field field, std::size_t num_max, std::size_t bytes_max);
  // Nothing without messages; the other fields of a chat are checked all the same.
  std::optional<Chat> chat();
  // Nothing: the reply to the chat is all text.
  std::optional<ReplyReading> reading();
  std::optional<Grammar> grammar();
  // A string as it is, anything else as JSON.
  std::string text_or_json(Field field);
  // All fields of kSamplingTable, in its order, then the others of SamplingParams.
  SamplingParams params();
  // The fields of kSamplingTable that the object `params` has, and no others.
  SamplingChanges changes();
  // The ids of the streams that a FORK begins.
  std::vector<StreamId> streams();
  // A CONTROLLER, but for its stream id and model.
  ControllerMessage controller();
  // A DECIDE, but for what all streams have.
  DecideMessage decision(StreamId stream_id, std::string model);
  // Of a SCORE, whose default is another.
  int top_logprobs();
  // Null: none. num_top: the alternatives that are reported as well.
  std::shared_ptr<const std::vector<TokenId>> logprob_token_ids(int num_top);
  Measures measures();

 private:
  const std::optional<simdjson::dom::element>& element(Field field) const {
    return elements_[static_cast<std::size_t>(field)];
  }

  // REQUIRES: has(field).
  FieldValue value(Field field) const { return field_value(*element(field)); }
  GrammarTriggers triggers(simdjson::dom::element given);
  ControllerMessage::Op controller_op();
  std::string base64(Field field);
  // The text of an optional array or object.
  std::string messages();
  std::string optional_json(Field field, simdjson::dom::element_type type);
  void read_parts(simdjson::dom::array array, std::vector<PromptPart>& parts);
  BufferPart buffer_part(std::string_view where, simdjson::dom::object object);

  std::shared_ptr<const TokenMask> optional_mask();
  bool raw_logprobs();
  std::vector<TokenId> stop_token_ids();

  std::array<std::optional<simdjson::dom::element>, kNumFields> elements_;
  std::vector<std::string> unknown_keys_;
};

}  // namespace lmtp::protocol
