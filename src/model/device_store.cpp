#include <algorithm>
#include <array>
#include <atomic>
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

using kernels::WeightType;

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
        slots_{StagingSlot(stream, kSlotBytes), StagingSlot(stream, kSlotBytes)} {}

  const kernels::Backend& backend() const override { return stream_.backend(); }

  Result<PackedWeight> pack(const StoredWeight& source) override {
    const auto num_bytes =
        static_cast<std::size_t>(source.n * source.k * kernels::element_size(source.type));
    const auto uploaded = upload(stage(num_bytes), num_bytes,
                                 [&](std::size_t first, std::size_t count, std::byte* to) {
                                   return read_weight(stream_.pool(), source, first, count, to);
                                 });
    if (!uploaded.ok()) return uploaded.error();
    return pack_staged({.type = source.type, .order = source.order, .n = source.n, .k = source.k},
                       source.is_table);
  }

  // Not of float32, for checks, whose products have no narrow operands; nor with inputs in an order
  // of their own.
  std::optional<PackedWeight> pack_codes(const CodedWeight& source,
                                         kernels::CodeRows& rows) override {
    const bool is_int8 = source.type == WeightType::kInt8;
    if (!source.inputs.empty() || (type_ == WeightType::kF32 && !is_int8)) return std::nullopt;
    kernels::Grouping grouping = source.grouping;
    if (type_ == WeightType::kF16) grouping.widened_to = kernels::ElementType::kF16;
    const auto memory =
        allocate(kernels::packed_bytes(backend(), source.type, source.n, source.k, grouping));
    const kernels::PackTarget target = {
        .panels = memory.get(), .type = source.type, .grouping = grouping};
    const CodeSizes sizes(grouping, source.k);
    const std::int64_t rows_each =
        std::max<std::int64_t>(static_cast<std::int64_t>(kSlotBytes - 16) / sizes.bytes_of_row /
                                   kernels::kPanelColumns,
                               1) *
        kernels::kPanelColumns;
    std::byte* const staged = stage(sizes.bytes(std::min(rows_each, source.n)));
    for (std::int64_t first = 0; first < source.n; first += rows_each) {
      const std::int64_t count = std::min(rows_each, source.n - first);
      if (!upload_codes(rows, first, count, sizes, staged)) break;
      kernels::pack_codes(stream_,
                          {.codes = reinterpret_cast<const std::uint8_t*>(staged),
                           .scales = sizes.scales(staged, count),
                           .offsets = sizes.offsets(staged, count),
                           .first = first,
                           .count = count,
                           .n = source.n,
                           .k = source.k},
                          target);
      stream_.synchronize();  // what is staged has been read
    }
    return PackedWeight{
        .panels = memory, .scales = {}, .sums = {}, .type = source.type, .grouping = grouping};
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
    return pack_staged({.type = type, .order = source.order, .n = source.n, .k = source.k},
                       source.is_table);
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
  PackedWeight pack_staged(kernels::SourceWeight source, bool is_table) {
    // As on the host: a head in 4 bits would cost more than it saves.
    const WeightType type = type_ == WeightType::kInt4 && is_table ? WeightType::kInt8 : type_;
    const auto memory = allocate(kernels::packed_bytes(backend(), type, source.n, source.k));
    source.data = staging_.data();
    kernels::pack(stream_, source, {.panels = memory.get(), .type = type});
    return {.panels = memory, .scales = {}, .sums = {}, .type = type, .grouping = {}};
  }

  // Where the codes, scales and offsets of some rows are, one behind the other.
  struct CodeSizes {
    CodeSizes(const kernels::Grouping& grouping, std::int64_t inputs)
        : k(inputs),
          groups(kernels::num_groups(grouping, inputs)),
          has_offsets(grouping.has_offsets),
          bytes_of_row(k + groups * 4 * (has_offsets ? 2 : 1)) {}

    std::int64_t scales_at(std::int64_t count) const { return (count * k + 15) / 16 * 16; }
    std::size_t bytes(std::int64_t count) const {
      return static_cast<std::size_t>(scales_at(count) + count * (bytes_of_row - k));
    }
    float* scales(std::byte* begin, std::int64_t count) const {
      return reinterpret_cast<float*>(begin + scales_at(count));
    }
    float* offsets(std::byte* begin, std::int64_t count) const {
      return has_offsets ? scales(begin, count) + count * groups : nullptr;
    }

    std::int64_t k;
    std::int64_t groups;
    bool has_offsets;
    std::int64_t bytes_of_row;
  };

  // False: the rows cannot be read.
  bool upload_codes(kernels::CodeRows& rows, std::int64_t first, std::int64_t count,
                    const CodeSizes& sizes, std::byte* to) {
    StagingSlot& slot = slots_.front();
    const std::size_t num_bytes = sizes.bytes(count);
    if (codes_.num_bytes() < num_bytes && num_bytes > kSlotBytes) {
      codes_ = {};
      codes_ = kernels::Memory::allocate_pinned(backend(), num_bytes);
    }
    auto* const begin =
        static_cast<std::byte*>(num_bytes > kSlotBytes ? codes_.data() : slot.memory.data());
    constexpr std::int64_t kRowsOfTask = kernels::kPanelColumns;
    std::atomic<bool> all = true;
    stream_.pool().parallel_for(
        static_cast<int>((count + kRowsOfTask - 1) / kRowsOfTask), [&](int task, int worker) {
          const std::int64_t row = task * kRowsOfTask;
          float* const offsets = sizes.offsets(begin, count);
          const kernels::CodePiece piece = {
              .codes = reinterpret_cast<std::uint8_t*>(begin + row * sizes.k),
              .scales = sizes.scales(begin, count) + row * sizes.groups,
              .offsets = offsets == nullptr ? nullptr : offsets + row * sizes.groups};
          if (!rows.rows(first + row, std::min(kRowsOfTask, count - row), worker, piece)) {
            all = false;
          }
        });
    if (!all) return false;
    slot.api.copy_to_device(slot.handle, to, begin, num_bytes);
    slot.api.synchronize(slot.handle);
    return true;
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
    add_bytes(num_bytes);
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
  kernels::Memory codes_;    // pinned, of rows that a slot is too small for
  kernels::Memory staging_;  // a matrix in the format of its source
  kernels::Memory piece_;    // allocations come from this one
  std::size_t used_bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_device_store(kernels::Stream& stream, kernels::WeightType type) {
  return std::make_unique<DeviceStore>(stream, type);
}

}  // namespace lmtp::model
