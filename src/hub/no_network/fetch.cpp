// In the place of fetch.cpp and web_address.cpp, for programs that are carried to a machine without
// a network (cmake/LmtpStandalone.cmake): with these nothing of libcurl is linked.
#include "lmtp/hub/fetch.h"

#include "web_address.h"

namespace lmtp::hub {

// Local files only.
Result<ModelSource> fetch_model(std::string_view model, const FetchOptions& options) {
  auto local = resolve_model(model, options.purpose);
  if (local) return local;
  return Error{local.error().code,
               local.error().message + "; and this program was linked without the network"};
}

Result<std::string> origin_of(const std::string&) {
  return Error{ErrorCode::kUnavailable, "this program was linked without the network"};
}

}  // namespace lmtp::hub
