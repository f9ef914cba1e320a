// The fields that decide how tokens are chosen.
#include <algorithm>
#include <limits>

#include "field_reader.h"
#include "lmtp/base/text.h"
#include "mask_codec.h"

namespace lmtp::protocol {

SamplingParams FieldReader::params() {
  SamplingParams params;
  auto at = static_cast<std::size_t>(Field::kFirstParam);
  for (const SamplingParam& row : kSamplingTable) {
    if (const auto& value = elements_[at++]) read_param(row, *value, params);
  }
  params.stop_token_ids = stop_token_ids();
  params.raw_logprobs = raw_logprobs();
  params.mask = optional_mask();
  params.logprob_token_ids = logprob_token_ids(params.top_logprobs);
  params.measures = measures();
  return params;
}

SamplingChanges FieldReader::changes() {
  SamplingChanges changes;
  const auto& value = element(Field::kParams);
  if (!value) return changes;
  if (!value->is_object()) {
    fail(Field::kParams, seen(*value) + "; allowed is an object of sampling parameters");
    return changes;
  }
  FieldReader reader(value->get_object().value());
  changes.values = reader.params();
  constexpr auto kFirst = static_cast<std::size_t>(Field::kFirstParam);
  for (std::size_t i = 0; i < kNumFields; ++i) {
    if (!reader.has(static_cast<Field>(i))) continue;
    if (i >= kFirst && i < kFirst + kSamplingTable.size()) {
      changes.given.set(i - kFirst);
    } else {
      reader.fail(static_cast<Field>(i),
                  "cannot be changed; allowed are temperature to logit_bias of GENERATE");
    }
  }
  if (reader.failed()) fail("params." + reader.error().message);
  return changes;
}

std::vector<StreamId> FieldReader::streams() {
  const std::string allowed =
      "; allowed are 1 to " + std::to_string(kMaxForks) + " different whole numbers of 64 bits";
  std::vector<StreamId> streams;
  const auto& value = element(Field::kStreams);
  simdjson::dom::array array;
  if (!value || value->get_array().get(array) != simdjson::SUCCESS) {
    fail(Field::kStreams, (value ? seen(*value) : "is missing") + allowed);
    return streams;
  }
  if (array.size() == 0 || array.size() > kMaxForks) {
    fail(Field::kStreams, "has " + std::to_string(array.size()) + " entries" + allowed);
    return streams;
  }
  for (const simdjson::dom::element item : array) {
    StreamId id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS) {
      fail(Field::kStreams, "entry " + std::to_string(streams.size()) + " " + seen(item) + allowed);
    } else if (std::ranges::find(streams, id) != streams.end()) {
      fail(Field::kStreams, "has " + std::to_string(id) + " twice" + allowed);
    }
    streams.push_back(id);
  }
  return streams;
}

int FieldReader::top_logprobs() {
  constexpr std::size_t kRow = [] {
    return std::ranges::find(kSamplingTable, kTopLogprobsName, &SamplingParam::name) -
           kSamplingTable.begin();
  }();
  const auto field = static_cast<Field>(static_cast<std::size_t>(Field::kFirstParam) + kRow);
  return whole(field, 0, kSamplingTable[kRow].range);
}

int FieldReader::whole(Field field, int absent, const ParamRange& range) {
  return has(field) ? as_clamped(field_name(field), value(field), range).value_or(absent) : absent;
}

int FieldReader::whole_within(Field field, int absent, int low, int high) {
  if (!has(field)) return absent;
  const auto read = as_whole(field_name(field), value(field), low, high);
  return static_cast<int>(read.value_or(absent));
}

std::int64_t FieldReader::count(Field field) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  return has(field) ? as_whole(field_name(field), value(field), 0, kMax).value_or(0) : 0;
}

std::vector<TokenId> FieldReader::stop_token_ids() {
  const auto& value = element(Field::kStopTokenIds);
  if (!value) return {};
  const std::size_t count = value->is_array() ? value->get_array().value().size() : 0;
  if (count <= kMaxStopTokens) return required_tokens(Field::kStopTokenIds, true);
  fail(Field::kStopTokenIds, "has " + std::to_string(count) + " token ids; allowed are at most " +
                                 std::to_string(kMaxStopTokens));
  return {};
}

std::shared_ptr<const std::vector<TokenId>> FieldReader::logprob_token_ids(int num_top) {
  constexpr Field kField = Field::kLogprobTokenIds;
  const auto& value = element(kField);
  if (!value) return nullptr;
  const std::size_t count = value->is_array() ? value->get_array().value().size() : 0;
  const auto most = static_cast<std::size_t>(kMaxTopLogprobs - num_top);
  if (count > most) {
    fail(kField, "has " + std::to_string(count) + " token ids; allowed are at most " +
                     std::to_string(most) + ", with top_logprobs " +
                     std::to_string(kMaxTopLogprobs));
    return nullptr;
  }
  std::vector<TokenId> ids = required_tokens(kField, true);
  std::vector<TokenId> sorted = ids;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    fail(kField, "has " + std::to_string(*twice) + " twice; allowed are token ids that differ");
  }
  return ids.empty() ? nullptr : std::make_shared<const std::vector<TokenId>>(std::move(ids));
}

Measures FieldReader::measures() {
  return {.entropy = optional_bool(Field::kEntropy).value_or(false),
          .rank = optional_bool(Field::kRank).value_or(false)};
}

bool FieldReader::raw_logprobs() {
  const auto& value = element(Field::kLogprobs);
  const std::string_view read = is_text(Field::kLogprobs) ? value->get_string().value() : "";
  if (value && read != "raw" && read != "processed") {
    fail(Field::kLogprobs,
         (read.empty() ? seen(*value) : "is '" + shortened(read, kShownKeyBytes) + "'") +
             "; allowed are processed and raw");
  }
  return read == "raw";
}

std::shared_ptr<const TokenMask> FieldReader::optional_mask() {
  const auto& value = element(Field::kMask);
  if (!value) return nullptr;
  if (!value->is_string()) {
    fail(Field::kMask, seen(*value) + "; allowed is a string of base64");
    return nullptr;
  }
  std::shared_ptr<const TokenMask> mask = decode_mask(value->get_string().value());
  if (!mask) {
    fail(Field::kMask, "is not base64; allowed are A to Z, a to z, 0 to 9, + and /, and = behind");
  } else if (!allows_any(*mask)) {
    fail(Field::kMask, "allows no token; at least one bit must be set");
  }
  return mask;
}

}  // namespace lmtp::protocol
