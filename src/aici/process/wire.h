// The runtime protocol's JSON that both dialects have: envelopes, results of sequences, and the
// side channel. Pure functions; any thread. Errors name the field that is wrong.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"
#include "process/wire_value.h"

namespace lmtp::aici {

// As "$auth" wants it.
Json auth_json(const Auth& auth);
Json mk_module(const std::string& wasm);
Json set_tags(const std::string& module_id, const std::vector<std::string>& tags);
Json instantiate(const InstantiateRequest& request);

// The data of an answer of type "ok". Of others the error: kInvalid where the caller is at fault,
// kUnavailable where the runtime is.
Result<Json> data_of(Json answer);

Result<ModuleInfo> read_module(const Json& data);
Result<std::vector<TagInfo>> read_tags(const Json& data);

// What "instantiate" answers, in any dialect.
struct InstantiateAnswer {
  std::string error;  // of the controller, whose instance waits all the same
  Instantiated value;
  bool is_plain = false;  // {}, as the oldest dialect says it
};
Result<InstantiateAnswer> read_instantiate(const Json& data, int vocab_size);

// Of one sequence. Where there is an error the result holds nothing.
template <typename T>
struct SequenceResult {
  std::string error;
  std::optional<T> result;
  CallLog log;
};
template <typename T>
using Results = std::map<Sequence, SequenceResult<T>>;

// May throw BadAnswer. read: the value of "result" where it is not null.
CallLog read_log(const WireValue& sequence);
Sequence read_id(const std::string& key, const WireValue& value);
template <typename T>
SequenceResult<T> read_result(const WireValue& value,
                              const std::function<T(const WireValue&)>& read) {
  SequenceResult<T> sequence{value.at("error").text(), std::nullopt, read_log(value)};
  const std::optional<WireValue> result = value.find("result");
  if (sequence.error.empty() && result) sequence.result = read(*result);
  return sequence;
}
template <typename T>
Results<T> read_results(const WireValue& value, const std::function<T(const WireValue&)>& read) {
  Results<T> results;
  for (const auto& [key, sequence] : value.members()) {
    results.emplace(read_id(key, sequence), read_result<T>(sequence, read));
  }
  return results;
}

}  // namespace lmtp::aici
