#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/device_api.h"
#include "kernels/memory.h"
#include "kernels/random.h"
#include "lmtp/base/check.h"
#include "lmtp/model/weight_store.h"
#include "read_weight.h"

namespace lmtp::model {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{32} << 20;
constexpr std::size_t kDevicePieceBytes = std::size_t{64} << 20;
constexpr std::size_t kDeviceAlignment = 256;

// A part of the upload ring: pinned memory and a stream for its copy, so that one slot is filled
// while another is being copied.
struct StagingSlot {
  StagingSlot(kernels::Stream& stream, std::size_t num_bytes)
      : api(*stream.device_api()),
        memory(kernels::Memory::allocate_pinned(stream.backend(), num_bytes)),
        handle(api.create_stream()) {}
  ~StagingSlot() { api.release(kernels::DeviceApi::HandleKind::kStream, handle); }
  StagingSlot(const StagingSlot&) = delete;
  StagingSlot& operator=(const StagingSlot&) = delete;

  const kernels::DeviceApi& api;
  kernels::Memory memory;
  void* handle;
};

class DeviceStore : public WeightStore {
 public:
  DeviceStore(kernels::Stream& stream, kernels::WeightType type)
      : stream_(stream),
        type_(type),
        slots_{StagingSlot(stream, kSlotBytes), StagingSlot(stream, kSlotBytes)} {
    LMTP_CHECK(kernels::is_for_device(type));
  }

  const kernels::Backend& backend() const override { return stream_.backend(); }

  Result<PackedWeight> pack(const StoredWeight& source) override {
    const auto num_bytes =
        static_cast<std::size_t>(source.n * source.k * kernels::element_size(source.type));
    const auto uploaded = upload(stage(num_bytes), num_bytes,
                                 [&](std::size_t first, std::size_t count, std::byte* to) {
                                   return read_weight(stream_.pool(), source, first, count, to);
                                 });
    if (!uploaded.ok()) return uploaded.error();
    return pack_staged({.type = source.type, .order = source.order, .n = source.n, .k = source.k});
  }

  std::optional<PackedWeight> pack_random(const RandomWeight& source) override {
    LMTP_CHECK(!source.parts.empty());
    const kernels::ElementType type = source.parts.front().tensor.type;
    const std::int64_t size = kernels::element_size(type);
    std::byte* to = stage(static_cast<std::size_t>(source.n * source.k * size));
    for (const RandomWeight::Part& part : source.parts) {
      kernels::fill_random(stream_, {.tensor = part.tensor, .count = part.num_elements, .to = to});
      to += part.num_elements * size;
    }
    return pack_staged({.type = type, .order = source.order, .n = source.n, .k = source.k});
  }

  PlainWeight keep(std::span<const float> values) override {
    if (values.empty()) return {};
    const auto memory = allocate(values.size_bytes());
    const auto uploaded =
        upload(memory.get(), values.size_bytes(),
               [&](std::size_t first, std::size_t count, std::byte* to) {
                 std::memcpy(to, reinterpret_cast<const std::byte*>(values.data()) + first, count);
                 return Result<void>();
               });
    LMTP_CHECK(uploaded.ok());
    return {{memory, reinterpret_cast<const float*>(memory.get())},
            static_cast<std::int64_t>(values.size())};
  }

 private:
  // Device memory for a matrix in the format of its source.
  std::byte* stage(std::size_t num_bytes) {
    stream_.synchronize();  // the matrix before this one has been packed
    if (staging_.num_bytes() < num_bytes) {
      staging_ = {};
      staging_ = kernels::Memory::allocate(backend(), num_bytes);
    }
    return static_cast<std::byte*>(staging_.data());
  }

  // Packs the staged matrix, which `source` describes.
  PackedWeight pack_staged(kernels::SourceWeight source) {
    const auto memory = allocate(kernels::packed_bytes(backend(), type_, source.n, source.k));
    source.data = staging_.data();
    kernels::pack(stream_, source, {.panels = memory.get(), .type = type_});
    return {.panels = memory, .scales = {}, .sums = {}, .type = type_, .grouping = {}};
  }

  // Copies num_bytes to the device; returns when that is done. fill(first, count, to) supplies the
  // bytes.
  template <typename Fill>
  Result<void> upload(std::byte* to, std::size_t num_bytes, const Fill& fill) {
    Result<void> filled;
    std::size_t index = 0;
    for (std::size_t first = 0; first < num_bytes && filled.ok(); first += kSlotBytes) {
      const std::size_t count = std::min(kSlotBytes, num_bytes - first);
      StagingSlot& slot = slots_[index++ % slots_.size()];
      slot.api.synchronize(slot.handle);  // its previous copy has finished
      auto* pinned = static_cast<std::byte*>(slot.memory.data());
      filled = fill(first, count, pinned);
      if (filled.ok()) slot.api.copy_to_device(slot.handle, to + first, pinned, count);
    }
    for (const StagingSlot& slot : slots_) slot.api.synchronize(slot.handle);
    return filled;
  }

  // Allocates from a large piece of device memory, since device allocations are slow.
  std::shared_ptr<std::byte> allocate(std::size_t num_bytes) {
    num_bytes = (num_bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
    if (num_bytes > piece_.num_bytes() - used_bytes_) {
      if (num_bytes >= kDevicePieceBytes / 4) {
        const auto own = kernels::Memory::allocate(backend(), num_bytes).shared();
        return {own, static_cast<std::byte*>(own.get())};
      }
      piece_ = kernels::Memory::allocate(backend(), kDevicePieceBytes);
      used_bytes_ = 0;
    }
    auto* data = static_cast<std::byte*>(piece_.data()) + used_bytes_;
    used_bytes_ += num_bytes;
    return {piece_.shared(), data};
  }

  kernels::Stream& stream_;
  const kernels::WeightType type_;
  std::array<StagingSlot, 2> slots_;
  kernels::Memory staging_;  // a matrix in the format of its source
  kernels::Memory piece_;    // allocations come from this one
  std::size_t used_bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_device_store(kernels::Stream& stream, kernels::WeightType type) {
  return std::make_unique<DeviceStore>(stream, type);
}

}  // namespace lmtp::model
