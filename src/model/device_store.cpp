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

namespace lmtp::model {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{32} << 20;
constexpr std::size_t kPieceBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 256;
// Of a copy that one thread makes at a time.
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

struct Run {
  const std::byte* data = nullptr;
  std::size_t num_bytes = 0;
};

// A part of the ring: pinned memory and the stream in which it is copied, so that one slot is
// filled while another is under way.
struct Slot {
  Slot(kernels::Stream& stream, std::size_t num_bytes)
      : api(*stream.device_api()),
        memory(kernels::Memory::allocate_pinned(stream.backend(), num_bytes)),
        handle(api.create_stream()) {}
  ~Slot() { api.release(kernels::DeviceApi::Thing::kStream, handle); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  const kernels::DeviceApi& api;
  kernels::Memory memory;
  void* handle;
};

class DeviceStore : public WeightStore {
 public:
  DeviceStore(kernels::Stream& stream, kernels::WeightType type)
      : stream_(stream), type_(type), slots_{Slot(stream, kSlotBytes), Slot(stream, kSlotBytes)} {
    LMTP_CHECK(type != kernels::WeightType::kInt8);
  }

  const kernels::Backend& backend() const override { return stream_.backend(); }

  PackedWeight pack(const kernels::SourceWeight& source) override {
    const auto num_bytes =
        static_cast<std::size_t>(source.n * source.k * kernels::element_size(source.type));
    return pack_runs(source, {{static_cast<const std::byte*>(source.data), num_bytes}}, num_bytes);
  }

  PackedWeight pack(const kernels::SourceRows& source) override {
    const auto row_bytes = static_cast<std::size_t>(source.k * kernels::element_size(source.type));
    std::vector<Run> runs;
    for (std::int64_t i = 0; i < source.n; ++i) {
      const auto* row = static_cast<const std::byte*>(source.rows[i]);
      if (!runs.empty() && runs.back().data + runs.back().num_bytes == row) {
        runs.back().num_bytes += row_bytes;
      } else {
        runs.push_back({row, row_bytes});
      }
    }
    return pack_runs({.type = source.type, .n = source.n, .k = source.k}, runs,
                     row_bytes * static_cast<std::size_t>(source.n));
  }

  std::optional<PackedWeight> pack_random(const RandomWeight& source) override {
    LMTP_CHECK(!source.parts.empty());
    const kernels::ElementType type = source.parts.front().tensor.type;
    const std::int64_t size = kernels::element_size(type);
    std::byte* to = stage(static_cast<std::size_t>(source.n * source.k * size));
    for (const RandomWeight::Part& part : source.parts) {
      kernels::fill_random_on_device(stream_,
                                     {.tensor = part.tensor, .count = part.num_elements, .to = to});
      to += part.num_elements * size;
    }
    return pack_staged({.type = type, .order = source.order, .n = source.n, .k = source.k});
  }

  PlainWeight keep(std::span<const float> values) override {
    if (values.empty()) {
      return {};
    }
    const auto memory = allocate(values.size_bytes());
    upload({{reinterpret_cast<const std::byte*>(values.data()), values.size_bytes()}},
           memory.get());
    return {{memory, reinterpret_cast<const float*>(memory.get())},
            static_cast<std::int64_t>(values.size())};
  }

 private:
  // The runs, behind one another, are the matrix that `source` describes.
  PackedWeight pack_runs(const kernels::SourceWeight& source, const std::vector<Run>& runs,
                         std::size_t num_bytes) {
    upload(runs, stage(num_bytes));
    return pack_staged(source);
  }

  // Room for a matrix as its source holds it.
  std::byte* stage(std::size_t num_bytes) {
    stream_.synchronize();  // the matrix before this one has been packed
    if (staging_.num_bytes() < num_bytes) {
      staging_ = {};
      staging_ = kernels::Memory::allocate(backend(), num_bytes);
    }
    return static_cast<std::byte*>(staging_.data());
  }

  // What lies there is the matrix that `source` describes.
  PackedWeight pack_staged(kernels::SourceWeight source) {
    const auto memory = allocate(kernels::packed_bytes(backend(), type_, source.n, source.k));
    source.data = staging_.data();
    kernels::pack_on_device(stream_, source, {.panels = memory.get(), .type = type_});
    return {.panels = memory, .scales = {}, .sums = {}, .type = type_};
  }

  // Copies the runs behind one another to the device, and returns when they are there.
  void upload(const std::vector<Run>& runs, std::byte* to) {
    std::size_t index = 0;
    std::vector<Run> parts;  // of the slot that is filled
    std::size_t filled = 0;
    for (Run run : runs) {
      while (run.num_bytes > 0) {
        const std::size_t count = std::min({run.num_bytes, kSlotBytes - filled, kCopyBytes});
        parts.push_back({run.data, count});
        run.data += count;
        run.num_bytes -= count;
        filled += count;
        if (filled == kSlotBytes) {
          send(slots_[index++ % slots_.size()], parts, filled, to);
          to += filled;
          parts.clear();
          filled = 0;
        }
      }
    }
    send(slots_[index % slots_.size()], parts, filled, to);
    for (const Slot& slot : slots_) {
      slot.api.synchronize(slot.handle);
    }
  }

  void send(Slot& slot, const std::vector<Run>& parts, std::size_t num_bytes, std::byte* to) {
    slot.api.synchronize(slot.handle);  // what it held before has been copied
    std::vector<std::size_t> offsets;
    std::size_t offset = 0;
    for (const Run& part : parts) {
      offsets.push_back(offset);
      offset += part.num_bytes;
    }
    auto* filled = static_cast<std::byte*>(slot.memory.data());
    stream_.pool().parallel_for(static_cast<int>(parts.size()), [&](int task, int) {
      const auto at = static_cast<std::size_t>(task);
      std::memcpy(filled + offsets[at], parts[at].data, parts[at].num_bytes);
    });
    if (num_bytes > 0) {
      slot.api.copy_to_device(slot.handle, to, filled, num_bytes);
    }
  }

  // A part of a large piece of the device's memory: allocating there takes long.
  std::shared_ptr<std::byte> allocate(std::size_t num_bytes) {
    num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (num_bytes > piece_.num_bytes() - used_bytes_) {
      if (num_bytes >= kPieceBytes / 4) {
        const auto own = kernels::Memory::allocate(backend(), num_bytes).shared();
        return {own, static_cast<std::byte*>(own.get())};
      }
      piece_ = kernels::Memory::allocate(backend(), kPieceBytes);
      used_bytes_ = 0;
    }
    auto* data = static_cast<std::byte*>(piece_.data()) + used_bytes_;
    used_bytes_ += num_bytes;
    return {piece_.shared(), data};
  }

  kernels::Stream& stream_;
  const kernels::WeightType type_;
  std::array<Slot, 2> slots_;
  kernels::Memory staging_;  // a matrix as its source holds it
  kernels::Memory piece_;    // what is given out now
  std::size_t used_bytes_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_device_store(kernels::Stream& stream, kernels::WeightType type) {
  return std::make_unique<DeviceStore>(stream, type);
}

}  // namespace lmtp::model
