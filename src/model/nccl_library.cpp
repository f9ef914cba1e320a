#include "nccl_library.h"

#include <dlfcn.h>

#include <string>

namespace lmtp::model {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  function = reinterpret_cast<Function>(symbol);
  return symbol != nullptr;
}

Result<NcclApi> read_library() {
  constexpr const char* kName = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  std::string reason = library == nullptr ? dlerror() : "";
  NcclApi api{};
  const bool is_whole =
      library != nullptr && find(library, "ncclCommInitAll", api.comm_init_all) &&
      find(library, "ncclCommAbort", api.comm_abort) &&
      find(library, "ncclAllGather", api.all_gather) && find(library, "ncclSend", api.send) &&
      find(library, "ncclRecv", api.receive) && find(library, "ncclGroupStart", api.group_start) &&
      find(library, "ncclGroupEnd", api.group_end) &&
      find(library, "ncclGetErrorString", api.error_text);
  if (is_whole) return api;
  if (library != nullptr) reason = std::string(kName) + " is older than 2.7, or another library";
  return Error{ErrorCode::kUnavailable,
               "NCCL cannot be loaded (" + reason +
                   "): install it (libnccl2, or PyPI's nvidia-nccl-cu13, -cu12 for drivers before "
                   "r580, with its folder in LD_LIBRARY_PATH), or give --communicator local"};
}

}  // namespace

Result<const NcclApi*> load_nccl() {
  static const Result<NcclApi> api = read_library();
  if (!api) return api.error();
  return &*api;
}

}  // namespace lmtp::model
