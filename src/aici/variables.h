// The variables of a request, which its sequences share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

// Owner: a request; one thread at a time.
class Variables {
 public:
  explicit Variables(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // A command of a controller, {"ReadVar": {...}} or {"WriteVar": {...}}; gives the answer for it,
  // JSON as well. What was written is appended to `log`.
  Result<std::string> run(std::string_view command, std::vector<VariableWrite>& log);
  // Grows with each write.
  std::uint64_t num_writes() const { return num_writes_; }

 private:
  struct Variable {
    std::int64_t version = 0;
    std::string value;
  };

  Result<std::string> write(VariableWrite write, std::vector<VariableWrite>& log);

  const std::size_t bytes_max_;
  std::map<std::string, Variable, std::less<>> variables_;
  std::size_t num_bytes_ = 0;
  std::uint64_t num_writes_ = 0;
};

}  // namespace lmtp::aici
