#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "plugin/entry_point.h"

namespace lmtp::libtorch {

Result<const Library*> load() {
  // By its whole path: what a search would find elsewhere need not be of this build.
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{ErrorCode::kInternal,
                 "libtorch cannot be looked for: /proc/self/exe: " + error.message()};
  }
  const std::string path = program.parent_path().parent_path() / kLibraryPath;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, kEntryPoint);
  if (symbol == nullptr) {
    return Error{ErrorCode::kUnavailable, std::string("libtorch cannot be loaded (") + dlerror() +
                                              "): install all of a build with -DLMTP_TORCH=ON"};
  }
  return reinterpret_cast<decltype(&lmtp_libtorch)>(symbol)();
}

}  // namespace lmtp::libtorch
