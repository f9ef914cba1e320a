#include <dlfcn.h>

#include <string>

#include "lmtp/base/installed.h"
#include "load.h"
#include "plugin/entry_point.h"

namespace lmtp::libtorch {

namespace {

std::string text_of(const Build& build) {
  return std::string(build.version) + "/" + std::to_string(build.abi);
}

}  // namespace

Result<const Library*> load_from(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, kEntryPoint);
  if (symbol == nullptr) {
    return Error{ErrorCode::kUnavailable, std::string("libtorch cannot be loaded (") + dlerror() +
                                              "): run tools/setup --torch and build again"};
  }
  // Another build may have been installed since this program was started.
  void* build = dlsym(library, kBuildEntryPoint);
  const std::string expected = text_of(this_build());
  const std::string found =
      build == nullptr ? "none"
                       : text_of(*reinterpret_cast<decltype(&lmtp_libtorch_build)>(build)());
  if (found != expected) {
    return Error{ErrorCode::kUnavailable, "libtorch cannot be loaded: " + path + " is of build " +
                                              found + ", and the server is of " + expected +
                                              ": restart the server"};
  }
  return reinterpret_cast<decltype(&lmtp_libtorch)>(symbol)();
}

Result<const Library*> load() {
  // By its absolute path: a library elsewhere in the search path may be of another build.
  const auto path = installed_path(kLibraryPath);
  if (!path) return path.error();
  return load_from(*path);
}

}  // namespace lmtp::libtorch
