#include "shared_arrays.h"

#include <algorithm>
#include <cstring>

#include "kernels/device_api.h"
#include "kernels/sample.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kPinnedBytes = std::size_t{8} << 20;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMaskWordBits = 64;

constexpr std::size_t aligned(std::size_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t bias_bytes(int vocab_size) {
  return static_cast<std::size_t>(vocab_size) * (sizeof(TokenId) + sizeof(float));
}

std::size_t mask_bytes(int vocab_size) {
  return (static_cast<std::size_t>(vocab_size) + kMaskWordBits - 1) / kMaskWordBits *
         sizeof(std::uint64_t);
}

}  // namespace

SharedArray shared_array(const std::shared_ptr<const LogitBias>& bias, int vocab_size) {
  const auto end = std::lower_bound(bias->ids.begin(), bias->ids.end(), vocab_size);
  const auto count = static_cast<std::size_t>(end - bias->ids.begin());
  return {.owner = bias,
          .first = std::as_bytes(std::span(bias->ids).first(count)),
          .second = std::as_bytes(std::span(bias->values).first(count))};
}

// Words behind the vocabulary are left out.
SharedArray shared_array(const std::shared_ptr<const TokenMask>& mask, int vocab_size) {
  const std::span<const std::byte> words = std::as_bytes(std::span(mask->words));
  return {.owner = mask,
          .first = words.first(std::min(words.size(), mask_bytes(vocab_size))),
          .second = {}};
}

SharedArray shared_array(const std::shared_ptr<const std::vector<TokenId>>& ids) {
  return {.owner = ids, .first = std::as_bytes(std::span(*ids)), .second = {}};
}

SharedArrays::SharedArrays(kernels::Stream& stream, int vocab_size, int rows_max)
    : stream_(stream) {
  if (stream.device_api() == nullptr) return;
  memory_ = kernels::Memory::allocate(stream.backend(),
                                      static_cast<std::size_t>(num_bytes(vocab_size, rows_max)));
  pinned_ = kernels::Memory::allocate_pinned(
      stream.backend(),
      std::min(memory_.num_bytes(), std::max(aligned(bias_bytes(vocab_size)), kPinnedBytes)));
}

std::int64_t SharedArrays::num_bytes(int vocab_size, int rows_max) {
  return static_cast<std::int64_t>(aligned(bias_bytes(vocab_size)) +
                                   aligned(mask_bytes(vocab_size)) +
                                   aligned(kernels::kSampleTopMax * sizeof(TokenId))) *
         rows_max;
}

bool SharedArrays::upload(const std::vector<SharedArray>& arrays) {
  if (stream_.device_api() == nullptr) return false;
  std::size_t all_bytes = 0;
  std::size_t missing_bytes = 0;
  for (const SharedArray& array : arrays) {
    all_bytes += aligned(array.num_bytes());
    missing_bytes += holds(array) ? 0 : aligned(array.num_bytes());
  }
  if (missing_bytes == 0) return false;
  stream_.synchronize();  // pinned_ may still be read
  const bool is_full = used_bytes_ + missing_bytes > memory_.num_bytes();
  if (is_full) {
    LMTP_CHECK(all_bytes <= memory_.num_bytes(), all_bytes, memory_.num_bytes(), arrays.size());
    entries_.clear();
    used_bytes_ = 0;
  }
  try {
    upload_missing(arrays);
  } catch (...) {
    entries_.clear();  // of some the bytes may not have been sent
    used_bytes_ = 0;
    throw;
  }
  return is_full;
}

void SharedArrays::upload_missing(const std::vector<SharedArray>& arrays) {
  std::size_t first = used_bytes_;  // where the contents of pinned_ go
  const auto send = [&] {
    stream_.device_api()->copy_to_device(stream_.handle(),
                                         static_cast<std::byte*>(memory_.data()) + first,
                                         pinned_.data(), used_bytes_ - first);
    first = used_bytes_;
  };
  for (const SharedArray& array : arrays) {
    const std::size_t bytes = aligned(array.num_bytes());
    if (bytes == 0 || holds(array)) continue;
    if (used_bytes_ - first + bytes > pinned_.num_bytes()) {
      send();
      stream_.synchronize();
    }
    std::byte* at = static_cast<std::byte*>(pinned_.data()) + (used_bytes_ - first);
    std::ranges::copy(array.second, std::ranges::copy(array.first, at).out);
    entries_[array.owner.get()] = {.owner = array.owner, .offset = used_bytes_};
    used_bytes_ += bytes;
  }
  if (used_bytes_ > first) send();
}

SharedArrays::Location SharedArrays::at(const SharedArray& array) const {
  if (stream_.device_api() == nullptr) return {array.first.data(), array.second.data()};
  if (array.num_bytes() == 0) return {};
  const auto entry = entries_.find(array.owner.get());
  LMTP_CHECK(entry != entries_.end());
  const auto* first = static_cast<const std::byte*>(memory_.data()) + entry->second.offset;
  return {first, first + array.first.size()};
}

}  // namespace lmtp::agent
