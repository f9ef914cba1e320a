// The checks of a request's fields, and what they say of one that is wrong: one set for LMTP's
// messages and for the bodies of HTTP's APIs, whose JSON different parsers have read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp {

struct ArrayValue {
  std::size_t size = 0;
};
struct ObjectValue {
  std::size_t size = 0;
};

// A JSON value as the checks see it; the first is null. Its text is the value's own.
using FieldValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                                std::string_view, ArrayValue, ObjectValue>;

// Specialised for each parser's value: value(json); items(json) of an array, each of them json; and
// members(json) of an object, pairs of a key and json.
template <typename AnyJson>
struct FieldAccess;

template <typename AnyJson>
FieldValue field_value(const AnyJson& json) {
  return FieldAccess<AnyJson>::value(json);
}

// How an error shows a value of the wrong type or size: "is a string", "is -1".
std::string seen(const FieldValue& value);
template <typename AnyJson>
std::string seen(const AnyJson& json) {
  return seen(field_value(json));
}

// Longer names from clients are cut where they are shown.
inline constexpr std::size_t kShownKeyBytes = 64;

// Keeps the first error. After an error, and of a wrong value, the checks return what stands for an
// absent field. Owner: the reading of one message or body. Not shared between threads.
class FieldChecks {
 public:
  // For errors that no check finds.
  void fail(std::string_view field, std::string_view what, ErrorCode code = ErrorCode::kInvalid);
  void fail(std::string error);
  bool failed() const { return !error_.message.empty(); }
  // "<field>: what is wrong and what is allowed". REQUIRES: failed().
  const Error& error() const { return error_; }

 protected:
  std::optional<bool> as_bool(std::string_view field, const FieldValue& value);
  std::optional<float> as_number(std::string_view field, const FieldValue& value,
                                 const ParamRange& range);
  // Larger numbers are refused.
  std::optional<std::int64_t> as_whole(std::string_view field, const FieldValue& value,
                                       std::int64_t low, std::int64_t high);
  // Clamped to the range's maximum.
  std::optional<int> as_clamped(std::string_view field, const FieldValue& value,
                                const ParamRange& range);
  // A whole number of 64 bits; a negative one is read as its two's complement.
  std::optional<std::uint64_t> as_seed(std::string_view field, const FieldValue& value);
  // Text of 1 to `bytes_max` bytes; "" where the field has an error.
  std::string as_short_text(std::string_view field, const FieldValue& value, std::size_t bytes_max);

  // Such texts, or one alone.
  template <typename AnyJson>
  std::vector<std::string> as_short_texts(std::string_view field, const AnyJson& json,
                                          std::size_t num_max, std::size_t bytes_max) {
    const FieldValue value = field_value(json);
    const auto* const array = std::get_if<ArrayValue>(&value);
    std::vector<std::string> texts;
    if (array == nullptr) {
      texts.push_back(as_short_text(field, value, bytes_max));
    } else if (array->size > num_max) {
      fail(field, "has " + std::to_string(array->size) + " strings; allowed are at most " +
                      std::to_string(num_max));
    } else {
      for (const auto& item : FieldAccess<AnyJson>::items(json)) {
        const std::string place = std::string(field) + "[" + std::to_string(texts.size()) + "]";
        texts.push_back(as_short_text(place, field_value(item), bytes_max));
      }
    }
    return texts;
  }

  template <typename AnyJson>
  void read_param(const SamplingParam& row, const AnyJson& json, SamplingParams& params) {
    const FieldValue value = field_value(json);
    const auto* const biases = std::get_if<BiasMember>(&row.member);
    if (biases == nullptr) return read_number(row, value, params);
    const auto* const object = std::get_if<ObjectValue>(&value);
    if (object == nullptr) {
      return fail(row.name, seen(value) + "; allowed is an object of token id: number");
    }
    LogitBias bias;
    bias.ids.reserve(object->size);
    bias.values.reserve(object->size);
    for (const auto& [key, item] : FieldAccess<AnyJson>::members(json)) {
      if (!add_bias(row, key, field_value(item), bias)) return;
    }
    params.** biases = sorted_bias(row.name, std::move(bias));
  }

 private:
  using BiasMember = std::shared_ptr<const LogitBias> SamplingParams::*;

  void read_number(const SamplingParam& row, const FieldValue& value, SamplingParams& params);
  bool add_bias(const SamplingParam& row, std::string_view key, const FieldValue& value,
                LogitBias& bias);
  std::shared_ptr<const LogitBias> sorted_bias(std::string_view field, LogitBias bias);

  Error error_;
};

}  // namespace lmtp
