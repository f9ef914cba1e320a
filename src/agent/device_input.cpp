#include "device_input.h"

#include <cstring>
#include <vector>

namespace lmtp::agent {
namespace {

constexpr std::size_t kAlignment = 16;

// Lays arrays behind one another in host memory, and says where each is going to be.
class Packer {
 public:
  Packer(std::byte* host, std::byte* device) : host_(host), device_(device) {}

  template <typename T>
  T* add(const std::vector<T>& elements) {
    const std::size_t num_bytes = elements.size() * sizeof(T);
    if (num_bytes > 0) {
      std::memcpy(host_ + used_, elements.data(), num_bytes);
    }
    auto* at = reinterpret_cast<T*>(device_ + used_);
    used_ += (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* host_;
  std::byte* device_;
  std::size_t used_ = 0;
};

template <typename... Vectors>
std::size_t packed_size(const Vectors&... vectors) {
  return (0 + ... + (vectors.size() * sizeof(vectors[0]) + kAlignment));
}

}  // namespace

model::InputArrays DeviceInput::upload(const model::ModelInput& input, const DrawnTokens& drawn) {
  memory_.reserve(packed_size(input.ids, input.positions, input.slots, input.cu_seqlens,
                              input.first_positions, input.block_offsets, input.logit_rows,
                              input.copies, input.block_tables, drawn.rows));
  Packer packer(memory_.host(), memory_.device());
  model::InputArrays arrays = model::arrays_of(input);
  std::int32_t* ids = packer.add(input.ids);
  arrays.ids = ids;
  arrays.positions = packer.add(input.positions);
  arrays.slots = packer.add(input.slots);
  arrays.cu_seqlens = packer.add(input.cu_seqlens);
  arrays.first_positions = packer.add(input.first_positions);
  arrays.block_offsets = packer.add(input.block_offsets);
  arrays.logit_rows = packer.add(input.logit_rows);
  // Those whose length is another in every step come last, so that the others keep their places.
  arrays.block_tables = packer.add(input.block_tables);
  arrays.copies = packer.add(input.copies);
  const std::int32_t* rows = packer.add(drawn.rows);
  memory_.send(packer.used());
  if (!drawn.rows.empty()) {
    kernels::take_tokens(stream_, {.records = drawn.records,
                                   .rows = rows,
                                   .ids = ids,
                                   .count = static_cast<std::int64_t>(drawn.rows.size())});
  }
  return arrays;
}

}  // namespace lmtp::agent
