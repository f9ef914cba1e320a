#include "lmtp/request/field_checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>

#include "lmtp/base/text.h"

namespace lmtp {
namespace {

// NaN: it is no number.
double number_of(const FieldValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* large = std::get_if<std::uint64_t>(&value)) return static_cast<double>(*large);
  const auto* const fraction = std::get_if<double>(&value);
  return fraction != nullptr ? *fraction : std::nan("");
}

// The token id that a bias key spells: decimal digits only.
std::optional<TokenId> id_of_key(std::string_view key) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || key.empty() || key[0] == '-') {
    return std::nullopt;
  }
  return id;
}

// Sorts both vectors by id; LMQL sends them sorted.
void sort_bias(LogitBias& bias) {
  if (std::is_sorted(bias.ids.begin(), bias.ids.end())) return;
  std::vector<std::pair<TokenId, float>> pairs;
  for (std::size_t i = 0; i < bias.ids.size(); ++i) pairs.emplace_back(bias.ids[i], bias.values[i]);
  std::ranges::sort(pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) std::tie(bias.ids[i], bias.values[i]) = pairs[i];
}

}  // namespace

// 5.0 keeps its point, to differ from the valid 5.
std::string seen(const FieldValue& value) {
  const auto text = []<typename T>(const T& read) -> std::string {
    if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>) {
      return std::to_string(read);
    } else if constexpr (std::is_same_v<T, double>) {
      const std::string number = number_text(read);
      return number.find_first_of(".e") == std::string::npos ? number + ".0" : number;
    }
    if constexpr (std::is_same_v<T, bool>) return "a truth value";
    if constexpr (std::is_same_v<T, std::string_view>) return "a string";
    if constexpr (std::is_same_v<T, ArrayValue>) return "an array";
    if constexpr (std::is_same_v<T, ObjectValue>) return "an object";
    return "null";
  };
  return "is " + std::visit(text, value);
}

void FieldChecks::fail(std::string_view field, std::string_view what, ErrorCode code) {
  if (failed()) return;
  error_.message.append(field).append(": ").append(what);
  error_.code = code;
}

void FieldChecks::fail(std::string error) {
  if (!failed()) error_ = {ErrorCode::kInvalid, std::move(error)};
}

std::optional<bool> FieldChecks::as_bool(std::string_view field, const FieldValue& value) {
  if (const auto* read = std::get_if<bool>(&value)) return *read;
  fail(field, seen(value) + "; allowed is true or false");
  return std::nullopt;
}

std::optional<float> FieldChecks::as_number(std::string_view field, const FieldValue& value,
                                            const ParamRange& range) {
  const double read = number_of(value);
  const bool high_enough = range.low_allowed ? read >= range.low : read > range.low;
  if (high_enough && read <= range.high) {
    // A positive number that a float would round to 0 must stay positive, to be in the range.
    const auto rounded = static_cast<float>(read);
    return rounded == 0.0F && read > 0.0 ? std::numeric_limits<float>::min() : rounded;
  }
  fail(field, seen(value) + "; allowed is a number " + (range.low_allowed ? ">= " : "> ") +
                  number_text(range.low) + " and <= " + number_text(range.high));
  return std::nullopt;
}

std::optional<std::int64_t> FieldChecks::as_whole(std::string_view field, const FieldValue& value,
                                                  std::int64_t low, std::int64_t high) {
  const auto* const read = std::get_if<std::int64_t>(&value);
  if (read != nullptr && *read >= low && *read <= high) return *read;
  fail(field, seen(value) + "; allowed is a whole number from " + std::to_string(low) + " to " +
                  std::to_string(high));
  return std::nullopt;
}

std::optional<int> FieldChecks::as_clamped(std::string_view field, const FieldValue& value,
                                           const ParamRange& range) {
  const auto low = static_cast<int>(range.low);
  const auto cap = static_cast<int>(range.high);
  if (std::holds_alternative<std::uint64_t>(value)) return cap;
  const auto* const read = std::get_if<std::int64_t>(&value);
  if (read != nullptr && *read >= low) return static_cast<int>(std::min<std::int64_t>(*read, cap));
  fail(field, seen(value) + "; allowed is a whole number >= " + std::to_string(low));
  return std::nullopt;
}

std::optional<std::uint64_t> FieldChecks::as_seed(std::string_view field, const FieldValue& value) {
  if (const auto* large = std::get_if<std::uint64_t>(&value)) return *large;
  if (const auto* read = std::get_if<std::int64_t>(&value)) {
    return static_cast<std::uint64_t>(*read);
  }
  fail(field, seen(value) + "; allowed is a whole number of 64 bits");
  return std::nullopt;
}

std::string FieldChecks::as_short_text(std::string_view field, const FieldValue& value,
                                       std::size_t bytes_max) {
  const auto* const text = std::get_if<std::string_view>(&value);
  if (text != nullptr && !text->empty() && text->size() <= bytes_max) return std::string(*text);
  fail(field, (text == nullptr ? seen(value) : "has " + std::to_string(text->size()) + " bytes") +
                  "; allowed are 1 to " + std::to_string(bytes_max) + " bytes of text");
  return {};
}

void FieldChecks::read_number(const SamplingParam& row, const FieldValue& value,
                              SamplingParams& params) {
  const auto read = [&]<typename T>(T SamplingParams::*member) {
    if constexpr (std::is_same_v<T, float>) {
      params.*member = as_number(row.name, value, row.range).value_or(params.*member);
    } else if constexpr (std::is_same_v<T, int>) {
      params.*member = as_clamped(row.name, value, row.range).value_or(params.*member);
    } else if constexpr (std::is_same_v<T, bool>) {
      params.*member = as_bool(row.name, value).value_or(params.*member);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      const auto seed = as_seed(row.name, value);
      params.has_seed = seed.has_value();
      params.*member = seed.value_or(0);
    }
  };
  std::visit(read, row.member);
}

bool FieldChecks::add_bias(const SamplingParam& row, std::string_view key, const FieldValue& value,
                           LogitBias& bias) {
  const std::optional<TokenId> id = id_of_key(key);
  if (!id) {
    fail(row.name, "key '" + shortened(key, kShownKeyBytes) +
                       "' is not a token id; allowed are whole numbers >= 0");
    return false;
  }
  const double read = number_of(value);
  if (!(read >= row.range.low && read <= row.range.high)) {
    fail(row.name, "the value of " + std::to_string(*id) + " " + seen(value) +
                       "; allowed is a number >= -1e30 and <= 1e30");
    return false;
  }
  bias.ids.push_back(*id);
  bias.values.push_back(static_cast<float>(read));
  return true;
}

std::shared_ptr<const LogitBias> FieldChecks::sorted_bias(std::string_view field, LogitBias bias) {
  if (bias.ids.empty()) return nullptr;
  sort_bias(bias);
  const auto twice = std::adjacent_find(bias.ids.begin(), bias.ids.end());
  if (twice == bias.ids.end()) return std::make_shared<LogitBias>(std::move(bias));
  fail(field, "token id " + std::to_string(*twice) + " is given twice; once is allowed");
  return nullptr;
}

}  // namespace lmtp
