// The fields of a JSON body, read one after the other: each is checked, and the first error kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/request/field_checks.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/request/sampling_table.h"

// Numbers without a fraction are whole, however they are written.
template <>
struct lmtp::FieldAccess<lmtp::Json> {
  static FieldValue value(const Json& json);
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): the body outlives its reading.
  static const Json& items(const Json& json) { return json; }
  static auto members(const Json& json) { return json.items(); }
};

namespace lmtp::server {

// The ids of an array; the error's text is for behind the field's name.
Result<std::vector<TokenId>> token_ids(const Json& value);

class JsonFields;
// Request::cache_salt.
std::string read_cache_salt(JsonFields& fields);
// Request::priority.
int read_priority(JsonFields& fields);

// A field that is null counts as absent. Owner: the reading of one body, which outlives it.
class JsonFields : public FieldChecks {
 public:
  explicit JsonFields(const Json& object) : object_(object) {}

  // For a test, which is told the name of each field that is looked up. Set while nothing is read.
  static inline void (*on_find)(std::string_view field) = nullptr;

  // Null: absent.
  const Json* find(std::string_view field) const;
  // The same; "" counts as absent, too, as for all fields below that are no texts: programs with a
  // form write it for what was not filled in.
  const Json* given(std::string_view field) const;

  bool boolean(std::string_view field, bool absent);
  std::optional<std::int64_t> whole(std::string_view field, std::int64_t low, std::int64_t high);
  std::optional<float> number(std::string_view field, const ParamRange& range);
  const std::string* text(std::string_view field);
  std::vector<TokenId> ids(std::string_view field, std::size_t num_max);
  // Strings, or one alone.
  std::vector<std::string> strings(std::string_view field, std::size_t num_max,
                                   std::size_t bytes_max);
  // Those of kSamplingTable that are given, but for `others`, which the API has in another way.
  // top_k -1 is off, as vLLM has it.
  void params(std::initializer_list<std::string_view> others, SamplingParams& params);

  // The names of the fields that nothing above has asked for, but for those that clients are known
  // to send and that mean nothing here: at most protocol::kMaxUnknownKeysKept, shortened.
  std::vector<std::string> unknown_keys() const;

 private:
  const Json& object_;
  mutable std::vector<const Json*> found_;
};

}  // namespace lmtp::server
