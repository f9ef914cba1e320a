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
#include "lmtp/request/sampling_table.h"

namespace lmtp::protocol {

enum class Field : std::uint8_t {
  kStreamId,
  kModel,
  kPrompt,
  kScored,
  kData,
  kFirstParam,  // then the others of kSamplingTable
};

inline constexpr std::size_t kNumFields =
    static_cast<std::size_t>(Field::kFirstParam) + kSamplingTable.size();

// The field's name on the wire.
std::string_view field_name(Field field);

// Reads fields one after the other and keeps the first error; after it the readers return defaults.
// A field that is null counts as absent.
// Owner: the parse of one message; lives no longer than the parsed document.
class FieldReader {
 public:
  explicit FieldReader(simdjson::dom::object object);

  // For errors that no reader finds.
  void fail(std::string_view field, std::string_view what);

  bool failed() const { return !error_.empty(); }
  // "<field>: what is wrong and what is allowed".
  const std::string& error() const { return error_; }
  // Names of unknown fields, at most kMaxUnknownKeysKept.
  std::vector<std::string> take_unknown_keys() { return std::move(unknown_keys_); }

  // The stream id if it is valid; otherwise empty, without setting the error.
  std::optional<StreamId> peek_stream_id() const;

  StreamId required_stream_id();
  std::string optional_string(Field field, std::size_t max_bytes);
  // The field must be present, an array of whole numbers in [0, 2^31).
  std::vector<TokenId> required_tokens(Field field, bool may_be_empty);
  // All fields of kSamplingTable, in its order.
  SamplingParams params();

 private:
  const std::optional<simdjson::dom::element>& element(Field field) const {
    return elements_[static_cast<std::size_t>(field)];
  }
  void fail(Field field, std::string_view what);

  float number(Field field, float absent, const ParamRange& range);
  // Clamped to the range's maximum.
  int whole(Field field, int absent, const ParamRange& range);
  // A whole number of 64 bits; a negative one is read as its two's complement.
  std::optional<std::uint64_t> optional_seed(Field field);
  std::shared_ptr<const LogitBias> optional_bias(Field field, const ParamRange& range);

  std::array<std::optional<simdjson::dom::element>, kNumFields> elements_;
  std::vector<std::string> unknown_keys_;
  std::string error_;
};

}  // namespace lmtp::protocol
