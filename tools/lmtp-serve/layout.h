// What the servers of --layout are started with.
#pragma once

#include <string>
#include <vector>

#include "children.h"
#include "lmtp/base/result.h"
#include "serve_options.h"

namespace lmtp::tools {

// A new folder among the temporary ones, which no other user may enter; removed with the object.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make();
  ~PrivateFolder();
  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path);
  std::string path_;  // empty: moved from
};

// One for each of options.num_children, with a Unix socket in `folder` and its share of the devices
// or of the processors. An error says how many of these there are, where they are too few; may take
// a second on devices.
Result<std::vector<ChildPlan>> plan_children(const ServeOptions& options,
                                             const std::string& folder);

}  // namespace lmtp::tools
