#include "lmtp/catalog/device_choice.h"

#include <charconv>
#include <string_view>

namespace lmtp::catalog {

Result<std::optional<int>> parse_device(const std::string& name) {
  if (name == "cpu") return std::optional<int>();
  if (name == "cuda") return std::optional<int>(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    int number = -1;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0) return std::optional<int>(number);
  }
  return Error{ErrorCode::kInvalid,
               "--device: '" + name + "' is unknown; allowed are cpu, cuda and cuda:N"};
}

}  // namespace lmtp::catalog
