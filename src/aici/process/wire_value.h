// WireValue: a value in an answer of a runtime, with where it is. What it should be and is not ends
// the reading of the answer.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

constexpr int kIntMax = std::numeric_limits<int>::max();

// Stays inside read_wire().
class BadAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns read(); an answer that is wrong becomes an error.
template <typename Read>
auto read_wire(const Read& read) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const BadAnswer& wrong) {
    return Error{ErrorCode::kUnavailable, std::string("the runtime's answer: ") + wrong.what()};
  }
}

// Lives as long as the JSON. All may throw BadAnswer.
class WireValue {
 public:
  WireValue(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  WireValue at(const std::string& key) const;                   // of an object
  std::optional<WireValue> find(const std::string& key) const;  // nothing where it is null, too
  std::vector<WireValue> list() const;
  std::vector<std::pair<std::string, WireValue>> members() const;

  bool is_object() const { return json_->is_object(); }
  std::string text() const;
  bool flag() const;
  double number() const;
  std::int64_t integer(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  std::vector<TokenId> tokens(int vocab_size) const;

  [[noreturn]] void fail(const std::string& problem) const {
    throw BadAnswer(path_ + ": " + problem);
  }

 private:
  std::string below(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }

  const Json* json_;
  std::string path_;
};

}  // namespace lmtp::aici
