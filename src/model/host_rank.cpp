#include "host_rank.h"

#include <cstddef>
#include <cstdint>

#include "kernels/device_api.h"

namespace lmtp::model {
namespace {

// Row by row, or all at once.
template <typename Copy>
void copy_rows(kernels::Matrix<float> y, kernels::Matrix<float> staged, const Copy& copy_row) {
  const bool is_whole = y.stride == y.columns;
  const std::int64_t at_once = is_whole ? y.rows : 1;
  const auto size = static_cast<std::size_t>(at_once * y.columns) * sizeof(float);
  for (std::int64_t row = 0; row < y.rows; row += at_once) {
    copy_row(y.row(row), staged.row(row), size);
  }
}

}  // namespace

void HostRank::sum(kernels::Stream& stream, kernels::Matrix<float> y) {
  on_host(stream, y, [this](kernels::Matrix<float> own) { sum_on_host(own); });
}

void HostRank::gather(kernels::Stream& stream, kernels::Matrix<float> y) {
  on_host(stream, y, [this](kernels::Matrix<float> own) { gather_on_host(own); });
}

template <typename Combine>
void HostRank::on_host(kernels::Stream& stream, kernels::Matrix<float> y, const Combine& combine) {
  const kernels::DeviceApi* device = stream.device_api();
  if (device == nullptr) return combine(y);
  const auto num_bytes = static_cast<std::size_t>(y.rows * y.columns) * sizeof(float);
  if (staged_.num_bytes() < num_bytes) {
    stream.synchronize();
    staged_ = kernels::Memory::allocate_pinned(stream.backend(), num_bytes);
  }
  const auto staged = kernels::make_matrix(staged_.floats(), y.rows, y.columns);
  copy_rows(y, staged, [&](float* from, float* to, std::size_t size) {
    device->copy_to_host(stream.handle(), to, from, size);
  });
  stream.synchronize();
  combine(staged);
  copy_rows(y, staged, [&](float* to, float* from, std::size_t size) {
    device->copy_to_device(stream.handle(), to, from, size);
  });
}

}  // namespace lmtp::model
