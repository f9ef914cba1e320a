#include "lmtp/model/weights.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::model {
namespace {

// elements[order[i]] for every i.
template <typename T>
std::vector<T> reordered(const std::vector<T>& elements, const std::vector<std::int64_t>& order) {
  LMTP_CHECK(order.size() == elements.size(), order.size(), elements.size());
  std::vector<T> result;
  result.reserve(order.size());
  for (const std::int64_t at : order) result.push_back(elements[static_cast<std::size_t>(at)]);
  return result;
}

// Merges runs that are adjacent in their tensor.
std::vector<StoredWeight::Run> joined(const std::vector<StoredWeight::Run>& runs) {
  std::vector<StoredWeight::Run> result;
  for (const StoredWeight::Run& run : runs) {
    if (!result.empty() && result.back().read == run.read &&
        result.back().first + result.back().num_bytes == run.first) {
      result.back().num_bytes += run.num_bytes;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

std::uint64_t num_bytes(const TensorSpec& spec, kernels::ElementType type) {
  return static_cast<std::uint64_t>(spec.num_elements() * kernels::element_size(type));
}

}  // namespace

std::int64_t TensorSpec::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

WeightLoader::WeightLoader(TensorSource& source, WeightStore& store, std::int64_t expected_elements,
                           std::function<bool(int)> progress)
    : source_(source),
      store_(store),
      expected_elements_(expected_elements),
      progress_(std::move(progress)) {}

bool WeightLoader::find_prefix(const std::string& name, const std::string& fallback) {
  std::vector<std::string> found;
  for (const std::string& candidate : source_.names()) {
    if (candidate == name || candidate.ends_with("." + name)) {
      found.push_back(candidate.substr(0, candidate.size() - name.size()));
    }
  }
  const bool is_there = !found.empty();
  if (found.size() > 1) {
    // Names of a larger model's language model.
    std::erase_if(found, [&](const std::string& prefix) {
      return prefix != fallback && prefix.find("language_model.") == std::string::npos;
    });
  }
  const bool has_fallback = std::find(found.begin(), found.end(), fallback) != found.end();
  prefix_ = found.size() == 1 && !has_fallback ? found.front() : fallback;
  return is_there;
}

std::optional<SourceTensor> WeightLoader::fetch(const TensorSpec& spec) {
  if (error_.has_value()) return std::nullopt;
  const Result<SourceTensor> tensor = source_.tensor(spec);
  if (!tensor.ok()) {
    error_ = tensor.error();
    return std::nullopt;
  }
  if (tensor->read == nullptr) return std::nullopt;  // a source that only records requests
  return *tensor;
}

void WeightLoader::count(const TensorSpec& spec) {
  num_elements_ += spec.num_elements();
  if (!progress_ || expected_elements_ <= 0) return;
  const auto percent =
      static_cast<int>(std::min<std::int64_t>(100, num_elements_ * 100 / expected_elements_));
  if (percent != percent_) {
    percent_ = percent;
    if (!progress_(percent)) {
      error_ = Error{ErrorCode::kCancelled, "the loading was given up"};
    }
  }
}

std::optional<PackedWeight> WeightLoader::packed_random(const std::vector<TensorSpec>& specs,
                                                        kernels::WeightOrder order, std::int64_t n,
                                                        std::int64_t k) {
  RandomWeight source{.parts = {}, .order = order, .n = n, .k = k};
  for (const TensorSpec& spec : specs) {
    const auto tensor = source_.random(spec);
    if (error_.has_value() || !tensor.has_value()) return std::nullopt;
    source.parts.push_back({*tensor, spec.num_elements()});
  }
  std::optional<PackedWeight> weight = store_.pack_random(source);
  if (weight.has_value()) {
    for (const TensorSpec& spec : specs) count(spec);
  }
  return weight;
}

PackedWeight WeightLoader::packed(const std::string& name, kernels::WeightOrder order,
                                  std::int64_t n, std::int64_t k, TensorInit init) {
  const bool outputs_first = order == kernels::WeightOrder::kOutputsByInputs;
  const TensorSpec spec{prefix_ + name, outputs_first ? std::vector{n, k} : std::vector{k, n},
                        init};
  if (auto weight = packed_random({spec}, order, n, k)) return std::move(*weight);
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) return {};
  return pack({.runs = {{&tensor->read, 0, num_bytes(spec, tensor->type)}},
               .type = tensor->type,
               .order = order,
               .n = n,
               .k = k},
              {spec});
}

PackedWeight WeightLoader::packed_stack(const std::vector<WeightPart>& parts, std::int64_t k,
                                        TensorInit init, const std::vector<std::int64_t>& order) {
  std::vector<TensorSpec> specs;
  std::int64_t n = 0;
  for (const WeightPart& part : parts) {
    specs.push_back({prefix_ + part.name, {part.n, k}, init});
    n += part.n;
  }
  if (order.empty()) {
    if (auto weight = packed_random(specs, kernels::WeightOrder::kOutputsByInputs, n, k)) {
      return std::move(*weight);
    }
  }
  std::vector<SourceTensor> tensors;
  for (const TensorSpec& spec : specs) {
    auto tensor = fetch(spec);
    if (!tensor.has_value()) continue;
    if (!tensors.empty() && tensor->type != tensors.front().type) {
      error_ = Error{ErrorCode::kInvalid, "tensor '" + spec.name + "' is of another type than '" +
                                              specs.front().name + "', and they are used as one"};
      return {};
    }
    tensors.push_back(std::move(*tensor));
  }
  if (error_.has_value() || tensors.empty()) return {};
  const kernels::ElementType type = tensors.front().type;
  const auto row_bytes = static_cast<std::uint64_t>(k * kernels::element_size(type));
  std::vector<StoredWeight::Run> rows;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::int64_t row = 0; row < parts[i].n; ++row) {
      rows.push_back({&tensors[i].read, static_cast<std::uint64_t>(row) * row_bytes, row_bytes});
    }
  }
  if (!order.empty()) rows = reordered(rows, order);
  return pack({.runs = joined(rows), .type = type, .n = n, .k = k}, specs);
}

PackedWeight WeightLoader::pack(const StoredWeight& source, const std::vector<TensorSpec>& specs) {
  auto weight = store_.pack(source);
  if (!weight.ok()) {
    error_ = weight.error();
    return {};
  }
  for (const TensorSpec& spec : specs) count(spec);
  return std::move(*weight);
}

void WeightLoader::read(const TensorSpec& spec, std::vector<float>& to) {
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) return;
  constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 20;
  const std::int64_t size = kernels::element_size(tensor->type);
  const std::int64_t total = spec.num_elements();
  const std::size_t behind = to.size();
  to.resize(behind + static_cast<std::size_t>(total));
  std::vector<unsigned char> bytes(
      static_cast<std::size_t>(std::min(kElementsAtATime, total) * size));
  for (std::int64_t first = 0; first < total; first += kElementsAtATime) {
    const std::int64_t elements = std::min(kElementsAtATime, total - first);
    const auto done = tensor->read(static_cast<std::uint64_t>(first * size),
                                   static_cast<std::size_t>(elements * size), bytes.data());
    if (!done.ok()) {
      error_ = done.error();
      return;
    }
    kernels::convert_to_f32(bytes.data(), tensor->type, elements,
                            to.data() + behind + static_cast<std::size_t>(first));
  }
  count(spec);
}

PlainWeight WeightLoader::plain_stack(const std::vector<WeightPart>& parts, TensorInit init,
                                      const std::vector<std::int64_t>& order) {
  std::vector<float> values;
  for (const WeightPart& part : parts) {
    read({prefix_ + part.name, {part.n}, init}, values);
  }
  if (error_.has_value() || values.empty()) return {};
  return store_.keep(order.empty() ? values : reordered(values, order));
}

PlainWeight WeightLoader::plain(const std::string& name, std::vector<std::int64_t> shape,
                                TensorInit init, float shift) {
  std::vector<float> values;
  read({prefix_ + name, std::move(shape), init}, values);
  if (error_.has_value() || values.empty()) return {};
  for (float& value : values) value += shift;
  return store_.keep(values);
}

}  // namespace lmtp::model
