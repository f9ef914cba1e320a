#include <algorithm>
#include <cstring>

#include "device_sampling.h"
#include "kernels/device_api.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kPinnedBytes = std::size_t{8} << 20;
constexpr std::size_t kAlignment = 256;

std::size_t bytes_of_ids(std::int64_t num_ids) {
  const auto bytes = static_cast<std::size_t>(num_ids) * (sizeof(std::int32_t) + sizeof(float));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceBiases::DeviceBiases(kernels::Stream& stream, int vocab_size, int rows_max)
    : stream_(stream),
      vocab_size_(vocab_size),
      memory_(kernels::Memory::allocate(stream.backend(),
                                        static_cast<std::size_t>(num_bytes(vocab_size, rows_max)))),
      pinned_(kernels::Memory::allocate_pinned(
          stream.backend(),
          std::min(memory_.num_bytes(), std::max(bytes_of_ids(vocab_size), kPinnedBytes)))) {}

std::int64_t DeviceBiases::num_bytes(int vocab_size, int rows_max) {
  return static_cast<std::int64_t>(bytes_of_ids(vocab_size)) * rows_max;
}

// Ids ascend; those outside the vocabulary are ignored.
std::int64_t DeviceBiases::num_ids(const LogitBias& bias) const {
  return std::lower_bound(bias.ids.begin(), bias.ids.end(), vocab_size_) - bias.ids.begin();
}

std::size_t DeviceBiases::bytes_of(const LogitBias& bias) const {
  return bytes_of_ids(num_ids(bias));
}

bool DeviceBiases::holds(const std::shared_ptr<const LogitBias>& bias) const {
  const auto entry = entries_.find(bias.get());
  return entry != entries_.end() && entry->second.bias.lock() == bias;
}

void DeviceBiases::upload(std::span<const std::shared_ptr<const LogitBias>> biases) {
  std::size_t all_bytes = 0;
  std::size_t missing_bytes = 0;
  for (const auto& bias : biases) {
    all_bytes += bytes_of(*bias);
    missing_bytes += holds(bias) ? 0 : bytes_of(*bias);
  }
  if (used_bytes_ + missing_bytes > memory_.num_bytes()) {
    LMTP_CHECK(all_bytes <= memory_.num_bytes(), all_bytes, memory_.num_bytes(), biases.size());
    entries_.clear();
    used_bytes_ = 0;
  }
  std::size_t first = used_bytes_;  // where the contents of pinned_ go
  const auto send = [&] {
    stream_.device_api()->copy_to_device(stream_.handle(),
                                         static_cast<std::byte*>(memory_.data()) + first,
                                         pinned_.data(), used_bytes_ - first);
    first = used_bytes_;
  };
  for (const auto& bias : biases) {
    const std::size_t bytes = bytes_of(*bias);
    if (bytes == 0 || holds(bias)) continue;
    if (used_bytes_ - first + bytes > pinned_.num_bytes()) {
      send();
      stream_.synchronize();
    }
    const auto count = static_cast<std::size_t>(num_ids(*bias));
    std::byte* at = static_cast<std::byte*>(pinned_.data()) + (used_bytes_ - first);
    std::memcpy(at, bias->ids.data(), count * sizeof(std::int32_t));
    std::memcpy(at + count * sizeof(std::int32_t), bias->values.data(), count * sizeof(float));
    entries_[bias.get()] = {.bias = bias, .offset = used_bytes_};
    used_bytes_ += bytes;
  }
  if (used_bytes_ > first) send();
}

DeviceBiases::Location DeviceBiases::at(const LogitBias& bias) const {
  const std::int64_t count = num_ids(bias);
  if (count == 0) return {};
  const auto entry = entries_.find(&bias);
  LMTP_CHECK(entry != entries_.end());
  const auto* ids = reinterpret_cast<const std::int32_t*>(
      static_cast<const std::byte*>(memory_.data()) + entry->second.offset);
  return {ids, reinterpret_cast<const float*>(ids + count), count};
}

}  // namespace lmtp::agent
