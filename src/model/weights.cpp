#include "lmtp/model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace lmtp::model {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Memory for weights that are streamed through at every step, in huge pages where there are any:
// through small ones, time goes into looking up addresses. What does not fill a huge page comes
// from the ordinary allocator.
at::Tensor allocate_streamed(at::IntArrayRef shape) {
  std::size_t num_bytes = sizeof(float);
  for (const std::int64_t size : shape) {
    num_bytes *= static_cast<std::size_t>(size);
  }
  if (num_bytes < kHugePageBytes) {
    return at::empty(shape, at::kFloat);
  }
  const std::size_t rounded = (num_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* memory = std::aligned_alloc(kHugePageBytes, rounded);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  // A wish: where it is refused, everything works as before. The last page is left out where it
  // would be half empty.
  (void)madvise(memory, num_bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return at::from_blob(
      memory, shape, [](void* data) { std::free(data); }, at::kFloat);
}

}  // namespace

std::int64_t TensorSpec::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  return count;
}

WeightLoader::WeightLoader(TensorSource& source, kernels::WorkerPool& pool,
                           std::int64_t expected_elements, std::function<bool(int)> progress)
    : source_(source),
      pool_(pool),
      expected_elements_(expected_elements),
      progress_(std::move(progress)) {}

std::optional<SourceTensor> WeightLoader::fetch(const TensorSpec& spec) {
  if (error_.has_value()) {
    return std::nullopt;
  }
  const Result<SourceTensor> tensor = source_.tensor(spec);
  if (!tensor.ok()) {
    error_ = tensor.error();
    return std::nullopt;
  }
  if (tensor->data == nullptr) {
    return std::nullopt;  // a source that only wants to know what is asked for
  }
  return *tensor;
}

void WeightLoader::count(const TensorSpec& spec) {
  source_.release(spec);
  num_elements_ += spec.num_elements();
  if (!progress_ || expected_elements_ <= 0) {
    return;
  }
  const auto percent =
      static_cast<int>(std::min<std::int64_t>(100, num_elements_ * 100 / expected_elements_));
  if (percent != percent_) {
    percent_ = percent;
    if (!progress_(percent)) {
      error_ = Error{"the loading was given up"};
    }
  }
}

at::Tensor WeightLoader::packed(const std::string& name, kernels::WeightOrder order, std::int64_t n,
                                std::int64_t k, TensorInit init) {
  const bool outputs_first = order == kernels::WeightOrder::kOutputsByInputs;
  const TensorSpec spec{prefix_ + name, outputs_first ? std::vector{n, k} : std::vector{k, n},
                        init};
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) {
    return {};
  }
  at::Tensor panels = allocate_streamed(
      {kernels::packed_size(n, k) / (k * kernels::kPanelColumns), k, kernels::kPanelColumns});
  kernels::pack_linear_f32(
      pool_, {.data = tensor->data, .type = tensor->type, .order = order, .n = n, .k = k},
      panels.data_ptr<float>());
  count(spec);
  return panels;
}

at::Tensor WeightLoader::plain(const std::string& name, std::vector<std::int64_t> shape,
                               TensorInit init) {
  const TensorSpec spec{prefix_ + name, std::move(shape), init};
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) {
    return {};
  }
  at::Tensor result = at::empty(spec.shape, at::kFloat);
  kernels::convert_to_f32(tensor->data, tensor->type, spec.num_elements(),
                          result.data_ptr<float>());
  count(spec);
  return result;
}

}  // namespace lmtp::model
