// The view of a checkpoint whose experts are MXFP4, as gpt-oss is published: tensors of all experts
// under their usual names. Layout: https://github.com/huggingface/transformers,
// integrations/mxfp4.py; numbers: OCP Microscaling Formats 1.0.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "checkpoint_files.h"
#include "e2m1.h"
#include "lmtp/model/weights.h"
#include "quantized_matrix.h"
#include "source_view.h"

namespace lmtp::model {
namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr std::int64_t kGroup = 32;  // inputs that share a scale

// The matrices of all experts, one below the other: [experts * outputs, inputs].
class Fp4Matrices : public CodedMatrix {
 public:
  Fp4Matrices(StoredTensor blocks, StoredTensor scales, std::int64_t n, std::int64_t k)
      : blocks_(std::move(blocks)), scales_(std::move(scales)), n_(n), k_(k) {}

  Result<std::optional<CodedWeight>> packing() override {
    return std::optional(
        CodedWeight{.type = kernels::WeightType::kWidened,
                    .grouping = {.codes = kernels::CodeType::kE2M1, .group = kGroup},
                    .n = n_,
                    .k = k_});
  }

  Result<void> rows(std::int64_t first, std::int64_t count, const kernels::CodePiece& to) override {
    const auto num_bytes = static_cast<std::size_t>(count * k_ / 2);
    const auto num_scales = static_cast<std::size_t>(count * k_ / kGroup);
    auto read =
        blocks_.read(static_cast<std::uint64_t>(first * k_ / 2), num_bytes, to.codes + num_bytes);
    if (!read.ok()) return read;
    split_pairs(to.codes, 2 * num_bytes);
    std::vector<std::uint8_t> exponents(num_scales);
    read =
        scales_.read(static_cast<std::uint64_t>(first * k_ / kGroup), num_scales, exponents.data());
    if (!read.ok()) return read;
    for (std::size_t i = 0; i < num_scales; ++i) {
      if (exponents[i] > kE8M0Max) {
        return tensor_error(scales_, "a scale is no finite number, or too large for its codes");
      }
      to.scales[i] = std::ldexp(1.0F, exponents[i] - 127);
    }
    return {};
  }

  // Elements [first, first + count), row by row.
  Result<void> read(std::int64_t first, std::int64_t count, float* to) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(k_));
    std::vector<float> scales(static_cast<std::size_t>(k_ / kGroup));
    for (const std::int64_t end = first + count; first < end;) {
      auto read = rows(first / k_, 1, {.codes = codes.data(), .scales = scales.data()});
      if (!read.ok()) return read;
      const std::int64_t row_end = std::min((first / k_ + 1) * k_, end);
      for (; first < row_end; ++first, ++to) {
        const auto input = static_cast<std::size_t>(first % k_);
        *to = e2m1(codes[input]) * scales[input / kGroup];
      }
    }
    return {};
  }

 private:
  const StoredTensor blocks_;  // [experts, outputs, groups, 16] of two codes, the lower one first
  const StoredTensor scales_;  // [experts, outputs, groups]: exponents of 2, 127 more
  const std::int64_t n_;
  const std::int64_t k_;
};

class Fp4Source : public SourceView {
 public:
  explicit Fp4Source(std::unique_ptr<TensorSource> file) : SourceView(std::move(file)) {
    std::set<std::string> names;
    for (const std::string& name : file_->names()) {
      if (!name.ends_with(kBlocks)) continue;
      names.insert(name.substr(0, name.size() - kBlocks.size()));
    }
    matrices_ = names;
    for (const std::string& name : file_->names()) {
      const auto is_of_matrix = [&](std::string_view leaf) {
        return name.ends_with(leaf) &&
               matrices_.contains(name.substr(0, name.size() - leaf.size()));
      };
      if (!is_of_matrix(kBlocks) && !is_of_matrix(kScales)) names.insert(name);
    }
    names_.assign(names.begin(), names.end());
  }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    if (!matrices_.contains(spec.name)) return file_->tensor(spec);
    auto matrices = matrices_of(spec);
    if (!matrices.ok()) return matrices.error();
    return SourceTensor{
        .type = kernels::ElementType::kF32,
        .read =
            [matrices = std::move(*matrices)](std::uint64_t first, std::size_t count, void* to) {
              return matrices->read(static_cast<std::int64_t>(first / sizeof(float)),
                                    static_cast<std::int64_t>(count / sizeof(float)),
                                    static_cast<float*>(to));
            },
        .outputs_first = true};
  }

  Result<std::shared_ptr<CodedMatrix>> coded(const TensorSpec& spec) override {
    if (!matrices_.contains(spec.name)) return std::shared_ptr<CodedMatrix>();
    auto matrices = matrices_of(spec);
    if (!matrices.ok()) return matrices.error();
    return std::shared_ptr<CodedMatrix>(std::move(*matrices));
  }

 private:
  // What is asked for as [experts, inputs, outputs].
  Result<std::shared_ptr<Fp4Matrices>> matrices_of(const TensorSpec& spec) const {
    const auto blocks = file_->stored(spec.name + std::string(kBlocks));
    const auto scales = file_->stored(spec.name + std::string(kScales));
    if (file_->stored(spec.name).has_value()) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + spec.name + "' is there beside " +
                                            std::string(kBlocks) + "; one of them is expected"};
    }
    if (!scales.has_value()) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + spec.name + std::string(kScales) +
                                            "' is missing beside " + std::string(kBlocks)};
    }
    if (spec.shape.size() != 3 || spec.shape[1] % kGroup != 0) {
      return tensor_error(*blocks,
                          "MXFP4 has experts in groups of 32 inputs, and config.json asks "
                          "for " +
                              shape_text(spec.shape));
    }
    const std::int64_t groups = spec.shape[1] / kGroup;
    const std::vector<std::int64_t> grouped = {spec.shape[0], spec.shape[2], groups};
    for (const StoredTensor* tensor : {&*blocks, &*scales}) {
      std::vector<std::int64_t> wanted = grouped;
      if (tensor == &*blocks) wanted.push_back(kGroup / 2);
      if (tensor->type == "U8" && tensor->shape == wanted) continue;
      return tensor_error(*tensor, "it is " + shape_text(tensor->shape) + " of " + tensor->type +
                                       "; expected is " + shape_text(wanted) + " of U8");
    }
    return std::make_shared<Fp4Matrices>(*blocks, *scales, spec.shape[0] * spec.shape[2],
                                         spec.shape[1]);
  }

  std::set<std::string> matrices_;  // names of those that are quantised
};

}  // namespace

std::unique_ptr<TensorSource> fp4_source(std::unique_ptr<TensorSource> file) {
  return std::make_unique<Fp4Source>(std::move(file));
}

}  // namespace lmtp::model
