// liblmtp_torch.so: the only library that links libtorch. No exception leaves it.
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>

#include <cstring>
#include <exception>

#include "entry_point.h"
#include "gloo_group.h"

namespace lmtp::libtorch {
namespace {

// A failed read gives 0 bytes: exceptions and errors would have to pass through the C code of
// libtorch's zip reader.
class Adapter : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Adapter(ByteSource& source) : source_(source) {}

  std::size_t size() const override { return source_.size(); }

  std::size_t read(std::uint64_t first, void* to, std::size_t count,
                   const char* /*what*/) const override {
    if (!source_.read(first, count, to)) {
      std::memset(to, 0, count);
      return 0;
    }
    return count;
  }

 private:
  ByteSource& source_;
};

class TorchZip : public ZipArchive {
 public:
  explicit TorchZip(ByteSource& source) : reader_(std::make_shared<Adapter>(source)) {}

  Result<std::optional<Record>> find(const std::string& name) override {
    try {
      if (!reader_.hasRecord(name)) return std::optional<Record>();
      return std::optional<Record>(
          {.header = reader_.getRecordHeaderOffset(name), .size = reader_.getRecordSize(name)});
    } catch (const std::exception&) {
      // libtorch's own message does not help users.
      return Error{ErrorCode::kInvalid, kUnreadableZip};
    }
  }

 private:
  caffe2::serialize::PyTorchStreamReader reader_;
};

class TorchLibrary : public Library {
 public:
  Result<std::unique_ptr<ZipArchive>> open_zip(ByteSource& source) const override {
    try {
      return std::unique_ptr<ZipArchive>(std::make_unique<TorchZip>(source));
    } catch (const std::exception&) {
      return Error{ErrorCode::kInvalid, kUnreadableZip};
    }
  }

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
