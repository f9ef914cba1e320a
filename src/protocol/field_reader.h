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
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::protocol {

enum class Field : std::uint8_t {
  kStreamId,
  kModel,
  kPrompt,
  kScored,
  kTemperature,
  kTopP,
  kTopK,
  kRepetitionPenalty,
  kPresencePenalty,
  kFrequencyPenalty,
  kLogitBias,
  kSeed,
  kTopLogprobs,
  kMaxTokens,
  kData,
  kNumFields,
};

inline constexpr std::size_t kNumFields = static_cast<std::size_t>(Field::kNumFields);

// The field's name on the wire.
std::string_view field_name(Field field);

struct NumberRange {
  double low = 0.0;
  double high = 0.0;
  bool low_allowed = true;  // false: (low, high]
};

// Reads fields one after the other and keeps the first thing that is wrong; from then on the
// readers return defaults. A field that is null counts as absent.
// Owner: the parse of one message; lives no longer than the parsed document.
class FieldReader {
 public:
  explicit FieldReader(simdjson::dom::object object);

  // Something is wrong that no reader sees.
  void fail(std::string_view field, std::string_view what);

  bool failed() const { return !error_.empty(); }
  // "<field>: what is wrong and what is allowed".
  const std::string& error() const { return error_; }
  // Names of fields that nobody reads, at most kMaxUnknownKeysKept.
  std::vector<std::string> take_unknown_keys() { return std::move(unknown_keys_); }

  // The stream id where there is a valid one; says nothing where not.
  std::optional<StreamId> peek_stream_id() const;

  StreamId required_stream_id();
  std::string optional_string(Field field, std::size_t max_bytes);
  // REQUIRES of the message: present, an array of whole numbers in [0, 2^31).
  std::vector<TokenId> required_tokens(Field field, bool may_be_empty);
  float number(Field field, float absent, NumberRange range);
  // Larger numbers than `cap` are read as `cap`.
  int whole(Field field, int absent, int low, int cap);
  // A whole number of 64 bits; a negative one stands for its two's complement.
  std::optional<std::uint64_t> optional_seed();
  std::shared_ptr<const LogitBias> optional_bias();

 private:
  const std::optional<simdjson::dom::element>& element(Field field) const {
    return elements_[static_cast<std::size_t>(field)];
  }
  void fail(Field field, std::string_view what);

  std::array<std::optional<simdjson::dom::element>, kNumFields> elements_;
  std::vector<std::string> unknown_keys_;
  std::string error_;
};

}  // namespace lmtp::protocol
