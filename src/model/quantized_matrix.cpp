#include "quantized_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "checkpoint_files.h"
#include "e2m1.h"

namespace lmtp::model {
namespace {

// Where a word of AWQ's has its output 0, 1, ...: in units of 4 bits.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

std::optional<kernels::ElementType> float_type(const std::string& name) {
  if (name == "F32") return kernels::ElementType::kF32;
  if (name == "F16") return kernels::ElementType::kF16;
  if (name == "BF16") return kernels::ElementType::kBF16;
  return std::nullopt;
}

float e4m3(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  const float value = (code & 0x7F) == 0x7F ? std::numeric_limits<float>::quiet_NaN() : size;
  return code >= 0x80 ? -value : value;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made{};
    for (int code = 0; code < 256; ++code) {
      made[static_cast<std::size_t>(code)] = e4m3(static_cast<std::uint8_t>(code));
    }
    return made;
  }();
  return values;
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return static_cast<std::size_t>(count);
}

// All elements of a tensor whose shape and type were checked.
template <typename T>
Result<std::vector<T>> read_all(const StoredTensor& tensor) {
  std::vector<T> elements(count_of(tensor.shape));
  const auto read = tensor.read(0, elements.size() * sizeof(T), elements.data());
  if (!read.ok()) return read.error();
  return elements;
}

// Code `index` of those that lie in words one after the other, as a zero point or code of 8 bits is
// read: signed.
int unpacked(std::uint32_t word, int place, int num_bits) {
  const auto bits = static_cast<int>((word >> (place * num_bits)) & ((1U << num_bits) - 1));
  return num_bits == 8 ? bits - 128 : bits;
}

}  // namespace

Result<void> QuantizedMatrix::prepare() {
  std::call_once(prepared_, [&] { state_ = load(); });
  return state_;
}

Result<void> QuantizedMatrix::load() {
  if (auto done = check_shape(); !done.ok()) return done;
  if (auto done = load_scales(); !done.ok()) return done;
  if (auto done = load_zeros(); !done.ok()) return done;
  const auto is_base = [&](float zero) { return zero == static_cast<float>(base_); };
  if (std::ranges::all_of(zero_values_, is_base)) zero_values_.clear();
  if (auto done = load_order(); !done.ok()) return done;
  return check_scales();
}

Result<void> QuantizedMatrix::check_shape() {
  if (shape_.read == nullptr) return {};
  std::array<std::int64_t, 2> sizes{};
  std::array<std::int32_t, 2> narrow{};
  const bool is_narrow = shape_.type == "I32";
  auto read = is_narrow ? shape_.read(0, sizeof(narrow), narrow.data())
                        : shape_.read(0, sizeof(sizes), sizes.data());
  if (!read.ok()) return read;
  if (is_narrow) sizes = {narrow[0], narrow[1]};
  if (sizes[0] == n_ && sizes[1] == k_) return {};
  return tensor_error(shape_, "it says " + shape_text({sizes[0], sizes[1]}) +
                                  ", and config.json asks for " + shape_text({n_, k_}));
}

Result<float> QuantizedMatrix::read_global() const {
  float global = 1.0F;
  if (global_.read == nullptr) return global;
  if (auto read = global_.read(0, sizeof(global), &global); !read.ok()) return read.error();
  if (std::isfinite(global) && global > 0.0F) return global;
  return tensor_error(global_, "it is no finite number above 0");
}

Result<std::vector<float>> QuantizedMatrix::read_scales() const {
  const std::size_t count = count_of(scales_.shape);
  std::vector<float> values(count);
  if (const auto type = float_type(scales_.type)) {
    std::vector<unsigned char> bytes(count *
                                     static_cast<std::size_t>(kernels::element_size(*type)));
    if (auto read = scales_.read(0, bytes.size(), bytes.data()); !read.ok()) return read.error();
    kernels::convert_to_f32(bytes.data(), *type, static_cast<std::int64_t>(count), values.data());
    return values;
  }
  const auto codes = read_all<std::uint8_t>(scales_);
  if (!codes.ok()) return codes.error();
  const auto global = read_global();
  if (!global.ok()) return global.error();
  const bool is_e8m0 = scales_.type == "U8";
  if (is_e8m0 && std::ranges::any_of(*codes, [](int code) { return code > kE8M0Max; })) {
    return tensor_error(scales_, "a scale is no finite number, or too large for its codes");
  }
  std::ranges::transform(*codes, values.begin(), [&](std::uint8_t code) {
    if (is_e8m0) return std::ldexp(1.0F, code - 127);
    return divides_by_global_ ? e4m3_values()[code] / *global : e4m3_values()[code] * *global;
  });
  constexpr float kLargestCode = 6;
  if (!std::ranges::all_of(values, [](float one) { return std::isfinite(kLargestCode * one); })) {
    return tensor_error(scales_, "a scale is no finite number, or too large for its codes");
  }
  return values;
}

Result<void> QuantizedMatrix::load_scales() {
  auto read = read_scales();
  if (!read.ok()) return read.error();
  std::vector<float>& values = *read;
  const std::size_t count = values.size();
  if (layout_ != Layout::kGptq && layout_ != Layout::kAwq) {
    scale_values_ = std::move(values);
    return {};
  }
  scale_values_.resize(count);
  for (std::int64_t group = 0; group < num_groups(); ++group) {
    for (std::int64_t row = 0; row < n_; ++row) {
      scale_values_[static_cast<std::size_t>(row * num_groups() + group)] =
          values[static_cast<std::size_t>(group * n_ + row)];
    }
  }
  return {};
}

Result<void> QuantizedMatrix::load_zeros() {
  if (zeros_.read == nullptr) return {};
  zero_values_.resize(scale_values_.size());
  if (zeros_.type == "I8") {
    const auto values = read_all<std::int8_t>(zeros_);
    if (!values.ok()) return values.error();
    for (std::size_t i = 0; i < zero_values_.size(); ++i) {
      zero_values_[i] = static_cast<float>((*values)[i] + base_);
    }
    return {};
  }
  const auto words = read_all<std::uint32_t>(zeros_);
  if (!words.ok()) return words.error();
  const int per_word = kWordBits / num_bits_;
  const bool by_columns = layout_ != Layout::kWords;
  const std::int64_t row_words = quotient(n_, per_word);  // of qzeros
  for (std::int64_t row = 0; row < num_scales(); ++row) {
    const auto place = static_cast<int>(row % per_word);
    for (std::int64_t group = 0; group < num_groups(); ++group) {
      const std::int64_t at =
          by_columns ? group * row_words + row / per_word : row / per_word * num_groups() + group;
      const int shift =
          layout_ == Layout::kAwq ? kAwqPlaces[static_cast<std::size_t>(place)] : place;
      zero_values_[static_cast<std::size_t>(row * num_groups() + group)] = static_cast<float>(
          unpacked((*words)[static_cast<std::size_t>(at)], shift, num_bits_) + zeros_plus_);
    }
  }
  return {};
}

Result<void> QuantizedMatrix::load_order() {
  if (order_.read == nullptr) return {};
  auto groups = read_all<std::int32_t>(order_);
  if (!groups.ok()) return groups.error();
  bool in_order = true;
  for (std::int64_t input = 0; input < k_; ++input) {
    const std::int32_t group = (*groups)[static_cast<std::size_t>(input)];
    if (group < 0 || group >= num_groups()) {
      return tensor_error(order_, "input " + std::to_string(input) + " is in group " +
                                      std::to_string(group) + ", and there are " +
                                      std::to_string(num_groups()));
    }
    in_order = in_order && group == input / group_;
  }
  if (!in_order) {
    input_groups_ = std::move(*groups);
    inputs_ = grouped_inputs();
  }
  return {};
}

std::vector<std::int32_t> QuantizedMatrix::grouped_inputs() const {
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(k_));
  std::iota(inputs.begin(), inputs.end(), 0);
  const auto group_of = [&](std::int32_t input) {
    return input_groups_[static_cast<std::size_t>(input)];
  };
  std::ranges::stable_sort(inputs, {}, group_of);
  for (std::int64_t i = 0; i < k_; ++i) {
    if (group_of(inputs[static_cast<std::size_t>(i)]) != i / group_) return {};
  }
  return inputs;
}

// Where a scale is 0, quantisers have had nothing but zeros.
Result<void> QuantizedMatrix::check_scales() {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(k_));
  std::vector<float> values(static_cast<std::size_t>(k_));
  for (std::int64_t i = 0; i < num_scales(); ++i) {
    const std::int64_t groups = num_groups();
    const float* const scales = scale_values_.data() + i * groups;
    if (!std::all_of(scales, scales + groups, [](float scale) { return std::isfinite(scale); })) {
      return tensor_error(scales_, "a scale of output " + std::to_string(i * outputs_per_scale_) +
                                       " is not a finite number");
    }
    // That of an NVFP4 may be too small for its own type.
    const bool may_be_zero = layout_ == Layout::kPairs;
    if (may_be_zero || std::find(scales, scales + groups, 0.0F) == scales + groups) continue;
    const std::vector<float> kept(scales, scales + groups);
    // As if all others were 0, and these 1.
    std::transform(kept.begin(), kept.end(), scale_values_.begin() + i * groups,
                   [](float scale) { return scale == 0.0F ? 1.0F : 0.0F; });
    bool all_zero = true;
    const std::int64_t end = std::min((i + 1) * outputs_per_scale_, n_);
    for (std::int64_t row = i * outputs_per_scale_; row < end && all_zero; ++row) {
      if (auto read = read_codes(row, 1, codes.data()); !read.ok()) return read;
      widen(row, codes.data(), values.data());
      all_zero = std::ranges::all_of(values, [](float value) { return value == 0.0F; });
    }
    std::ranges::copy(kept, scale_values_.begin() + i * groups);
    if (!all_zero) {
      return tensor_error(scales_, "a scale of output " + std::to_string(i * outputs_per_scale_) +
                                       " is 0, and the codes that it is for are not");
    }
  }
  return {};
}

Result<void> QuantizedMatrix::load_words() {
  auto words = read_all<std::uint32_t>(codes_);
  if (!words.ok()) return words.error();
  words_ = std::move(*words);
  return {};
}

void QuantizedMatrix::unpack_columns(std::int64_t first, std::int64_t count,
                                     std::uint8_t* to) const {
  const int per_word = kWordBits / num_bits_;
  const bool is_gptq = layout_ == Layout::kGptq;
  const std::int64_t row_words = is_gptq ? n_ : quotient(n_, per_word);
  for (std::int64_t input = 0; input < k_; ++input) {
    const std::uint32_t* const words =
        words_.data() + (is_gptq ? input / per_word : input) * row_words;
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::uint32_t word = words[is_gptq ? row : row / per_word];
      const int place = is_gptq ? static_cast<int>(input % per_word)
                                : kAwqPlaces[static_cast<std::size_t>(row % per_word)];
      to[(row - first) * k_ + input] = static_cast<std::uint8_t>(unpacked(word, place, num_bits_));
    }
  }
}

Result<void> QuantizedMatrix::read_codes(std::int64_t first, std::int64_t count, std::uint8_t* to) {
  if (layout_ == Layout::kBytes) {
    auto read = codes_.read(static_cast<std::uint64_t>(first * k_),
                            static_cast<std::size_t>(count * k_), to);
    if (!read.ok() || !is_float_) return read;
    if (std::any_of(to, to + count * k_, [](std::uint8_t code) { return (code & 0x7F) == 0x7F; })) {
      return tensor_error(codes_, "a weight is not a finite number");
    }
    return {};
  }
  if (layout_ == Layout::kPairs) {
    const std::int64_t row_bytes = quotient(k_, 2);
    for (std::int64_t row = 0; row < count; ++row, to += k_) {
      auto read = codes_.read(static_cast<std::uint64_t>((first + row) * row_bytes),
                              static_cast<std::size_t>(row_bytes), to + k_ / 2);
      if (!read.ok()) return read;
      split_pairs(to, static_cast<std::size_t>(k_));
    }
    return {};
  }
  if (layout_ != Layout::kWords) {
    std::call_once(words_loaded_, [&] { words_state_ = load_words(); });
    if (!words_state_.ok()) return words_state_;
    unpack_columns(first, count, to);
    return {};
  }
  const std::int64_t row_words = quotient(k_ * num_bits_, kWordBits);
  const int per_word = kWordBits / num_bits_;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(count * row_words));
  auto read = codes_.read(static_cast<std::uint64_t>(first * row_words) * sizeof(std::uint32_t),
                          words.size() * sizeof(std::uint32_t), words.data());
  if (!read.ok()) return read;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t input = 0; input < k_; ++input) {
      const std::uint32_t word =
          words[static_cast<std::size_t>(row * row_words + input / per_word)];
      to[row * k_ + input] =
          static_cast<std::uint8_t>(unpacked(word, static_cast<int>(input % per_word), num_bits_));
    }
  }
  return {};
}

std::int64_t QuantizedMatrix::scale_at(std::int64_t row, std::int64_t input) const {
  const std::int64_t group =
      input_groups_.empty() ? input / group_ : input_groups_[static_cast<std::size_t>(input)];
  return row / outputs_per_scale_ * num_groups() + group;
}

void QuantizedMatrix::widen(std::int64_t row, const std::uint8_t* codes, float* to) const {
  for (std::int64_t input = 0; input < k_; ++input) {
    const auto at = static_cast<std::size_t>(scale_at(row, input));
    const float code = is_float_ && num_bits_ == 4 ? e2m1(codes[input])
                       : is_float_                 ? e4m3_values()[codes[input]]
                       : num_bits_ == 4
                           ? static_cast<float>(codes[input])
                           : static_cast<float>(static_cast<std::int8_t>(codes[input]));
    // As kernels/grouping.h has it: rounded once.
    to[input] = zero_values_.empty() ? scale_values_[at] * (code - static_cast<float>(base_))
                                     : std::fma(scale_values_[at], code, offset_at(at));
  }
}

// Of the least kind that has all of it: a store may keep it as it is.
Result<std::optional<CodedWeight>> QuantizedMatrix::packing() {
  if (auto prepared = prepare(); !prepared.ok()) return prepared.error();
  const bool has_groups = num_groups() > 1;
  if ((!input_groups_.empty() && (!is_ordered_ || inputs_.empty())) ||
      (has_groups && group_ % kernels::kGroupMin != 0)) {
    return std::optional<CodedWeight>();
  }
  CodedWeight weight{.n = n_, .k = k_};
  weight.type = !rounds_inputs_  ? kernels::WeightType::kWidened
                : num_bits_ == 4 ? kernels::WeightType::kInt4
                                 : kernels::WeightType::kInt8;
  weight.grouping.codes = is_float_ && num_bits_ == 4 ? kernels::CodeType::kE2M1
                          : is_float_                 ? kernels::CodeType::kE4M3
                          : num_bits_ == 4            ? kernels::CodeType::kInt4
                                                      : kernels::CodeType::kInt8;
  const bool is_int4 = weight.type == kernels::WeightType::kInt4;
  weight.grouping.group = has_groups || is_int4 ? group_ : std::max(k_, kernels::kGroupMin);
  // Powers of two are exact in bfloat16.
  const auto of_fp4 =
      scales_.type == "U8" ? kernels::ElementType::kBF16 : kernels::ElementType::kF32;
  weight.grouping.scales = weight.type == kernels::WeightType::kInt8
                               ? kernels::ElementType::kF32
                               : float_type(scales_.type).value_or(of_fp4);
  weight.grouping.has_offsets = !zero_values_.empty();
  weight.inputs = inputs_;
  return std::optional<CodedWeight>(weight);
}

Result<void> QuantizedMatrix::rows(std::int64_t first, std::int64_t count,
                                   const kernels::CodePiece& to) {
  if (auto read = read_codes(first, count, to.codes); !read.ok()) return read;
  std::vector<std::uint8_t> codes(inputs_.empty() ? 0 : static_cast<std::size_t>(k_));
  for (std::int64_t row = 0; row < count; ++row) {
    std::copy_n(to.codes + row * k_, codes.size(), codes.begin());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      to.codes[row * k_ + static_cast<std::int64_t>(i)] =
          codes[static_cast<std::size_t>(inputs_[i])];
    }
    for (std::int64_t group = 0; group < num_groups(); ++group) {
      const auto at =
          static_cast<std::size_t>((first + row) / outputs_per_scale_ * num_groups() + group);
      to.scales[row * num_groups() + group] = scale_values_[at];
      if (to.offsets != nullptr) to.offsets[row * num_groups() + group] = offset_at(at);
    }
  }
  return {};
}

float QuantizedMatrix::offset_at(std::size_t at) const {
  const float zero = zero_values_.empty() ? static_cast<float>(base_) : zero_values_[at];
  return -scale_values_[at] * zero;
}

Result<void> QuantizedMatrix::read(std::int64_t first, std::int64_t count, float* to) {
  if (auto prepared = prepare(); !prepared.ok()) return prepared;
  constexpr std::int64_t kRowsAtATime = 32;
  std::vector<std::uint8_t> codes;
  std::vector<float> values(static_cast<std::size_t>(k_));
  for (const std::int64_t end = first + count; first < end;) {
    const std::int64_t first_row = first / k_;
    const std::int64_t end_row = std::min(first_row + kRowsAtATime, quotient(end, k_));
    codes.resize(static_cast<std::size_t>((end_row - first_row) * k_));
    if (auto done = read_codes(first_row, end_row - first_row, codes.data()); !done.ok()) {
      return done;
    }
    for (std::int64_t row = first_row; row < end_row; ++row) {
      const std::int64_t next = std::min((row + 1) * k_, end);
      widen(row, codes.data() + (row - first_row) * k_, values.data());
      to = std::copy(values.begin() + (first - row * k_), values.begin() + (next - row * k_), to);
      first = next;
    }
  }
  return {};
}

}  // namespace lmtp::model
