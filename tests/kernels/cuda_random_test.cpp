// Random elements made on a device: those of the host.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_under_test.h"
#include "kernels/random.h"
#include "kernels/stream.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::FillRandomArgs;
using kernels::RandomTensor;

// Value of bytes that must not be written.
constexpr unsigned char kUntouched = 0xA5;
constexpr std::size_t kSlackBytes = 16;

std::size_t num_bytes(const FillRandomArgs& args) {
  return static_cast<std::size_t>(args.count * kernels::element_size(args.tensor.type));
}

// The host's bytes, with untouched ones before and behind.
std::vector<unsigned char> made_by_host(FillRandomArgs args) {
  std::vector<unsigned char> bytes(num_bytes(args) + 2 * kSlackBytes, kUntouched);
  args.to = bytes.data() + kSlackBytes;
  kernels::fill_random(args);
  return bytes;
}

std::vector<unsigned char> made_by_device(kernels::Stream& stream, FillRandomArgs args) {
  std::vector<unsigned char> bytes(num_bytes(args) + 2 * kSlackBytes, kUntouched);
  const auto memory = kernels::Memory::allocate(stream.backend(), bytes.size());
  testing::copy_to_device(memory.data(), bytes.data(), bytes.size());
  args.to = static_cast<std::byte*>(memory.data()) + kSlackBytes;
  kernels::fill_random(stream, args);
  stream.synchronize();
  testing::copy_to_host(bytes.data(), memory.data(), bytes.size());
  return bytes;
}

TEST(CudaRandomTest, EveryElementHasTheBitsOfTheHost) {
  kernels::WorkerPool pool(1);
  kernels::Stream stream(testing::device_under_test(), pool);
  const std::vector<RandomTensor> tensors = {
      {.key = 0, .mean = 0.0F, .deviation = 0.02F},  // normal
      {.key = 0xFEDCBA9876543210, .mean = -0.7F, .deviation = 1.3F},
      {.key = 5, .mean = 1.0F, .deviation = 0.0F},   // ones
      {.key = 6, .mean = 0.0F, .deviation = 0.0F}};  // zeros
  for (RandomTensor tensor : tensors) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      tensor.type = type;
      for (const std::int64_t first : {0, 1, 777}) {
        for (const std::int64_t count : {0, 1, 255, 256, 1001}) {
          const FillRandomArgs args{.tensor = tensor, .first = first, .count = count};
          ASSERT_EQ(made_by_device(stream, args), made_by_host(args))
              << "key " << tensor.key << " size " << kernels::element_size(type) << " first "
              << first << " count " << count;
        }
      }
      const FillRandomArgs far{.tensor = tensor, .first = std::int64_t{1} << 40, .count = 300};
      ASSERT_EQ(made_by_device(stream, far), made_by_host(far));
    }
  }
}

}  // namespace
}  // namespace lmtp
