#include "lmtp/model/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"
#include "weight_arena.h"

namespace lmtp::model {
namespace {

// elements[order[i]] for every i.
template <typename T>
std::vector<T> reordered(const std::vector<T>& elements, const std::vector<std::int64_t>& order) {
  LMTP_CHECK(order.size() == elements.size(), order.size(), elements.size());
  std::vector<T> result;
  result.reserve(order.size());
  for (const std::int64_t at : order) {
    result.push_back(elements[static_cast<std::size_t>(at)]);
  }
  return result;
}

// Where a packed weight is to be written.
kernels::PackTarget target_of(PackedWeight& weight) {
  kernels::PackTarget target{.panels = weight.panels.data_ptr(), .type = weight.type};
  if (weight.type == kernels::WeightType::kInt8) {
    target.scales = weight.scales.data_ptr<float>();
    target.sums = weight.sums.data_ptr<std::int32_t>();
  }
  return target;
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
                           kernels::WeightType type, std::int64_t expected_elements,
                           std::function<bool(int)> progress)
    : source_(source),
      pool_(pool),
      type_(type),
      expected_elements_(expected_elements),
      progress_(std::move(progress)),
      arena_(std::make_unique<WeightArena>()) {}

WeightLoader::~WeightLoader() = default;

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

PackedWeight WeightLoader::allocate(std::int64_t n, std::int64_t k) {
  const std::int64_t columns = kernels::padded_columns(n);
  PackedWeight weight;
  weight.type = type_;
  weight.panels =
      arena_->allocate({columns / kernels::kPanelColumns,
                        kernels::packed_size(n, k, type_) / columns, kernels::kPanelColumns},
                       at::kFloat);
  if (type_ == kernels::WeightType::kInt8) {
    weight.scales = at::empty({columns}, at::kFloat);
    weight.sums = at::empty({columns}, at::kInt);
  }
  return weight;
}

PackedWeight WeightLoader::packed(const std::string& name, kernels::WeightOrder order,
                                  std::int64_t n, std::int64_t k, TensorInit init) {
  const bool outputs_first = order == kernels::WeightOrder::kOutputsByInputs;
  const TensorSpec spec{prefix_ + name, outputs_first ? std::vector{n, k} : std::vector{k, n},
                        init};
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) {
    return {};
  }
  PackedWeight weight = allocate(n, k);
  kernels::pack_linear(pool_,
                       {.data = tensor->data, .type = tensor->type, .order = order, .n = n, .k = k},
                       target_of(weight));
  count(spec);
  return weight;
}

PackedWeight WeightLoader::packed_stack(const std::vector<WeightPart>& parts, std::int64_t k,
                                        TensorInit init, const std::vector<std::int64_t>& order) {
  std::vector<TensorSpec> specs;
  std::vector<const void*> rows;
  kernels::ElementType type = kernels::ElementType::kF32;
  for (const WeightPart& part : parts) {
    specs.push_back({prefix_ + part.name, {part.n, k}, init});
    const auto tensor = fetch(specs.back());
    if (!tensor.has_value()) {
      continue;
    }
    if (!rows.empty() && tensor->type != type) {
      error_ = Error{"tensor '" + specs.back().name + "' is of another type than '" +
                     specs.front().name + "', and they are used as one"};
      return {};
    }
    type = tensor->type;
    const auto* data = static_cast<const unsigned char*>(tensor->data);
    for (std::int64_t row = 0; row < part.n; ++row) {
      rows.push_back(data + row * k * kernels::element_size(type));
    }
  }
  if (error_.has_value() || rows.empty()) {
    return {};
  }
  if (!order.empty()) {
    rows = reordered(rows, order);
  }
  const auto n = static_cast<std::int64_t>(rows.size());
  PackedWeight weight = allocate(n, k);
  kernels::pack_rows(pool_, {.rows = rows.data(), .type = type, .n = n, .k = k}, target_of(weight));
  for (const TensorSpec& spec : specs) {
    count(spec);
  }
  return weight;
}

at::Tensor WeightLoader::plain_stack(const std::vector<WeightPart>& parts, TensorInit init,
                                     const std::vector<std::int64_t>& order) {
  std::vector<float> values;
  for (const WeightPart& part : parts) {
    const at::Tensor vector = plain(part.name, {part.n}, init);
    if (vector.defined()) {
      values.insert(values.end(), vector.const_data_ptr<float>(),
                    vector.const_data_ptr<float>() + part.n);
    }
  }
  if (error_.has_value() || values.empty()) {
    return {};
  }
  if (!order.empty()) {
    values = reordered(values, order);
  }
  at::Tensor result = at::empty({static_cast<std::int64_t>(values.size())}, at::kFloat);
  std::copy(values.begin(), values.end(), result.data_ptr<float>());
  return result;
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
