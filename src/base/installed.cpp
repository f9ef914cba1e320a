#include "lmtp/base/installed.h"

#include <system_error>

namespace lmtp {

Result<std::filesystem::path> installed_path(const std::filesystem::path& relative) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{ErrorCode::kInternal,
                 relative.string() + " cannot be looked for: /proc/self/exe: " + error.message()};
  }
  const auto folder = program.parent_path();
  const bool is_helper = folder.filename() == "lmtp" && folder.parent_path().filename() == "lib";
  return (is_helper ? folder.parent_path() : folder).parent_path() / relative;
}

}  // namespace lmtp
