// A matrix whose file has codes, scales and zero points instead of numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/model/quantization.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

// "FILE: tensor 'x': ...".
Error tensor_error(const StoredTensor& tensor, const std::string& what);

// An element is scale * (code - zero point). A code is one byte: 0 to 15 where it has 4 bits (a
// number, or an e2m1), else a signed number or an e4m3. Of an output the inputs of one group share
// scale and zero point. Any thread; the source must outlive it.
class QuantizedMatrix : public CodedMatrix {
 public:
  // The matrix [n, k] of `module`. No data are read: the error names a tensor that is missing or of
  // the wrong shape or type.
  static Result<std::shared_ptr<QuantizedMatrix>> describe(const TensorSource& file,
                                                           const Quantization& quantization,
                                                           const QuantScheme& scheme,
                                                           const std::string& module,
                                                           std::int64_t n, std::int64_t k);

  // Reads scales, zero points and the order of the inputs, once. The error names a tensor with
  // numbers that no quantised matrix has.
  Result<void> prepare();

  Result<std::optional<CodedWeight>> packing() override;
  Result<void> rows(std::int64_t first, std::int64_t count, const kernels::CodePiece& to) override;

  // Elements [first, first + count), output by output.
  Result<void> read(std::int64_t first, std::int64_t count, float* to);

 private:
  enum class Layout {
    kBytes,  // weight [n, k]
    kPairs,  // weight or weight_packed [n, k / 2]: two e2m1 a byte, the lower half first
    kWords,  // weight_packed [n, words]: the codes of an output, lowest bits first
    kGptq,   // qweight [words, n]: of several inputs a word
    kAwq,    // qweight [k, n / 8]: outputs 0 2 4 6 1 3 5 7 a word
  };

  static constexpr int kWordBits = 32;
  static std::int64_t quotient(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  QuantizedMatrix(std::string module, std::int64_t n, std::int64_t k)
      : module_(std::move(module)), n_(n), k_(k) {}

  Result<void> find_tensors(const TensorSource& file, const Quantization& quantization,
                            const QuantScheme& scheme);
  Result<void> find_scales(const TensorSource& file, const Quantization& quantization,
                           const QuantScheme& scheme);
  Result<void> find_zeros(const TensorSource& file, const QuantScheme& scheme);
  Result<void> find_packed_by_columns(const TensorSource& file, const Quantization& quantization);
  Result<void> find_order(const TensorSource& file, const char* leaf);

  Result<void> load();
  Result<void> load_scales();
  Result<std::vector<float>> read_scales() const;
  Result<float> read_global() const;
  Result<void> load_zeros();
  Result<void> load_order();
  Result<void> check_shape();
  Result<void> check_scales();
  Result<void> load_words();
  // The codes of outputs [first, first + count): [count, k].
  Result<void> read_codes(std::int64_t first, std::int64_t count, std::uint8_t* to);
  // The inputs, group by group; empty: these are of other sizes.
  std::vector<std::int32_t> grouped_inputs() const;
  void unpack_columns(std::int64_t first, std::int64_t count, std::uint8_t* to) const;
  void widen(std::int64_t row, const std::uint8_t* codes, float* to) const;

  std::int64_t num_groups() const { return (k_ + group_ - 1) / group_; }
  std::int64_t num_scales() const { return (n_ + outputs_per_scale_ - 1) / outputs_per_scale_; }
  std::int64_t scale_at(std::int64_t row, std::int64_t input) const;
  float offset_at(std::size_t at) const;  // kernels/grouping.h's, of that scale

  const std::string module_;
  const std::int64_t n_;
  const std::int64_t k_;
  Layout layout_ = Layout::kBytes;
  int num_bits_ = 8;       // of a code in the file
  bool is_float_ = false;  // e4m3, e2m1
  bool rounds_inputs_ = false;
  bool is_ordered_ = false;  // config.json says that groups may be in no order
  int base_ = 0;             // the zero point where none is stored
  int zeros_plus_ = 0;       // what stored zero points are less
  std::int64_t group_ = 0;
  std::int64_t outputs_per_scale_ = 1;
  StoredTensor codes_;
  StoredTensor scales_;
  StoredTensor global_;            // divides or multiplies all scales; without a reader: 1
  bool divides_by_global_ = true;  // else it multiplies
  StoredTensor zeros_;             // without a reader: absent, as the next two
  StoredTensor order_;
  StoredTensor shape_;

  std::once_flag prepared_;
  std::once_flag words_loaded_;
  Result<void> state_;
  Result<void> words_state_;
  std::vector<float> scale_values_;         // [num_scales, num_groups]
  std::vector<float> zero_values_;          // [num_scales, num_groups]; empty: all are base_
  std::vector<std::int32_t> input_groups_;  // [k]; empty: in order
  std::vector<std::int32_t> inputs_;        // grouped_inputs() of these
  std::vector<std::uint32_t> words_;        // qweight
};

}  // namespace lmtp::model
