// liblmtp_torch.so: the only library that links libtorch. No exception leaves it.
#include "entry_point.h"
#include "gloo_group.h"

namespace lmtp::libtorch {
namespace {

class TorchLibrary : public Library {
 public:
  Result<std::unique_ptr<GlooGroup>> make_gloo_group(
      int num_ranks, std::chrono::milliseconds timeout) const override {
    return connect_gloo(num_ranks, timeout);
  }
};

}  // namespace
}  // namespace lmtp::libtorch

const lmtp::libtorch::Build* lmtp_libtorch_build() {
  static constexpr lmtp::libtorch::Build kBuild = lmtp::libtorch::this_build();
  return &kBuild;
}

const lmtp::libtorch::Library* lmtp_libtorch() {
  static const lmtp::libtorch::TorchLibrary library;
  return &library;
}
