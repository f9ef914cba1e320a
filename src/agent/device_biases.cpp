#include <algorithm>
#include <cstring>

#include "device_sampling.h"
#include "kernels/device_api.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 256;

}  // namespace

// Ids ascend; those outside the vocabulary are passed over.
std::int64_t DeviceBiases::num_ids(const protocol::LogitBias& bias) const {
  return std::lower_bound(bias.ids.begin(), bias.ids.end(), vocab_size_) - bias.ids.begin();
}

std::size_t DeviceBiases::num_bytes(const protocol::LogitBias& bias) const {
  const auto bytes =
      static_cast<std::size_t>(num_ids(bias)) * (sizeof(std::int32_t) + sizeof(float));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool DeviceBiases::holds(const std::shared_ptr<const protocol::LogitBias>& bias) const {
  const auto entry = entries_.find(bias.get());
  return entry != entries_.end() && entry->second.bias.lock() == bias;
}

void DeviceBiases::place(std::span<const std::shared_ptr<const protocol::LogitBias>> biases) {
  std::size_t all_bytes = 0;
  std::size_t missing_bytes = 0;
  for (const auto& bias : biases) {
    all_bytes += num_bytes(*bias);
    missing_bytes += holds(bias) ? 0 : num_bytes(*bias);
  }
  if (missing_bytes == 0) {
    return;
  }
  if (used_bytes_ + missing_bytes > memory_.num_bytes()) {
    entries_.clear();
    used_bytes_ = 0;
    missing_bytes = all_bytes;
    if (all_bytes > memory_.num_bytes()) {
      grow(memory_, std::max(2 * all_bytes, kMemoryBytes), stream_.backend(),
           kernels::Memory::allocate);
    }
  }
  grow(pinned_, missing_bytes, stream_.backend(), kernels::Memory::allocate_pinned);
  const std::size_t first = used_bytes_;
  auto* to = static_cast<std::byte*>(pinned_.data());
  for (const auto& bias : biases) {
    if (holds(bias)) {
      continue;
    }
    const auto count = static_cast<std::size_t>(num_ids(*bias));
    std::byte* at = to + (used_bytes_ - first);
    std::memcpy(at, bias->ids.data(), count * sizeof(std::int32_t));
    std::memcpy(at + count * sizeof(std::int32_t), bias->values.data(), count * sizeof(float));
    entries_[bias.get()] = {.bias = bias, .offset = used_bytes_};
    used_bytes_ += num_bytes(*bias);
  }
  stream_.device_api()->copy_to_device(
      stream_.handle(), static_cast<std::byte*>(memory_.data()) + first, to, used_bytes_ - first);
}

DeviceBiases::Place DeviceBiases::of(const protocol::LogitBias& bias) const {
  const std::int64_t count = num_ids(bias);
  if (count == 0) {
    return {};
  }
  const auto entry = entries_.find(&bias);
  LMTP_CHECK(entry != entries_.end());
  const auto* ids = reinterpret_cast<const std::int32_t*>(
      static_cast<const std::byte*>(memory_.data()) + entry->second.offset);
  return {ids, reinterpret_cast<const float*>(ids + count), count};
}

}  // namespace lmtp::agent
