#include "lmtp/model/weights.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lmtp/base/check.h"
#include "read_weight.h"

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

// Elements [first, first + count) of a dimension.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Elements of a tensor before those of the part.
std::int64_t first_of(const TensorSpec& spec, const WeightPart& part) {
  return part.num_slices == 0 ? 0 : spec.num_elements() / part.num_slices * part.slice;
}

// Ranks that have the same share of a section.
int copies_of(const WeightPart& part, std::size_t section) {
  return part.copies.empty() ? 1 : part.copies[section];
}

// The tensor's outputs that a rank has.
std::vector<Range> outputs_of(const WeightStack& stack, const WeightPart& part, Shard shard) {
  if (stack.num_rows > 0) return {{stack.first_row, part.n()}};
  const Shard divided = stack.split == Split::kOutputs ? shard : Shard{};
  std::vector<Range> ranges;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < part.sections.size(); ++i) {
    const std::int64_t size = part.sections[i];
    const int copies = copies_of(part, i);
    ranges.push_back({first + divided.rank / copies * size, size});
    first += divided.count / copies * size;
  }
  return ranges;
}

// The outputs of the whole tensor.
std::int64_t outputs_of_all(const WeightStack& stack, const WeightPart& part, Shard shard) {
  if (stack.num_rows > 0) return stack.num_rows;
  if (stack.split != Split::kOutputs) return part.n();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < part.sections.size(); ++i) {
    sum += shard.count / copies_of(part, i) * part.sections[i];
  }
  return sum;
}

// The same numbers, in float32.
SourceTensor as_f32(SourceTensor tensor) {
  if (tensor.type == kernels::ElementType::kF32) return tensor;
  return {.type = kernels::ElementType::kF32,
          .read = [read = std::move(tensor.read), type = tensor.type](
                      std::uint64_t first, std::size_t count, void* to) -> Result<void> {
            const auto size = static_cast<std::size_t>(kernels::element_size(type));
            std::vector<unsigned char> bytes(count / sizeof(float) * size);
            auto done = read(first / sizeof(float) * size, bytes.size(), bytes.data());
            if (!done.ok()) return done;
            kernels::convert_to_f32(bytes.data(), type,
                                    static_cast<std::int64_t>(count / sizeof(float)),
                                    static_cast<float*>(to));
            return {};
          }};
}

// The codes of a stack, output by output.
class StackedCodes : public kernels::CodeRows {
 public:
  struct Output {
    CodedMatrix* matrix = nullptr;
    std::int64_t row = 0;
  };
  StackedCodes(std::vector<Output> outputs, const CodedWeight& weight)
      : outputs_(std::move(outputs)),
        k_(weight.k),
        num_groups_(kernels::num_groups(weight.grouping, weight.k)) {}

  bool rows(std::int64_t first, std::int64_t count, int /*worker*/,
            const kernels::CodePiece& to) override {
    const auto at = [&](std::int64_t i) { return outputs_[static_cast<std::size_t>(first + i)]; };
    for (std::int64_t i = 0; i < count;) {
      std::int64_t next = i + 1;
      while (next < count && at(next).matrix == at(i).matrix &&
             at(next).row == at(i).row + next - i) {
        ++next;
      }
      const auto read = at(i).matrix->rows(
          at(i).row, next - i,
          {.codes = to.codes + i * k_,
           .scales = to.scales + i * num_groups_,
           .offsets = to.offsets == nullptr ? nullptr : to.offsets + i * num_groups_});
      error_.note(read);
      if (!read.ok()) return false;
      i = next;
    }
    return true;
  }

  // REQUIRES: all workers have finished.
  Result<void> result() const { return error_.result(); }

 private:
  const std::vector<Output> outputs_;
  const std::int64_t k_;
  const std::int64_t num_groups_;
  FirstError error_;
};

bool has_slices(const WeightStack& stack) {
  return std::ranges::any_of(stack.parts, [](const WeightPart& p) { return p.num_slices > 0; });
}

// How both can be packed as one; empty: they cannot.
std::optional<CodedWeight> common_packing(const CodedWeight& a, const CodedWeight& b) {
  CodedWeight both = a;
  if (a.type != b.type || a.grouping.codes != b.grouping.codes ||
      a.grouping.group != b.grouping.group || a.inputs != b.inputs) {
    return std::nullopt;
  }
  if (a.grouping.scales != b.grouping.scales) both.grouping.scales = kernels::ElementType::kF32;
  both.grouping.has_offsets = a.grouping.has_offsets || b.grouping.has_offsets;
  return both;
}

}  // namespace

std::int64_t TensorSpec::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::int64_t WeightPart::n() const {
  return std::accumulate(sections.begin(), sections.end(), std::int64_t{0});
}

std::int64_t WeightStack::n() const {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.n();
  return sum;
}

WeightLoader::WeightLoader(TensorSource& source, WeightStore& store, std::int64_t expected_elements,
                           std::function<bool(int)> progress, Shard shard)
    : source_(source),
      store_(store),
      expected_elements_(expected_elements),
      progress_(std::move(progress)),
      shard_(shard) {
  LMTP_CHECK(shard.rank >= 0 && shard.rank < shard.count, shard.rank, shard.count);
}

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

int WeightLoader::add_linear(const WeightStack& stack) {
  linears_.push_back(stack);
  for (WeightPart& part : linears_.back().parts) part.name.insert(0, prefix_);
  divide(stack, ".weight");
  return static_cast<int>(linears_.size()) - 1;
}

void WeightLoader::divide(const WeightStack& stack, const char* leaf) {
  divided_.push_back(stack);
  for (WeightPart& part : divided_.back().parts) part.name = prefix_ + part.name + leaf;
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

void WeightLoader::count(const TensorSpec& spec, const WeightPart& part) {
  count(spec.num_elements() / std::max<std::int64_t>(part.num_slices, 1));
}

void WeightLoader::count(std::int64_t num_elements) {
  num_elements_ += num_elements;
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

TensorSpec WeightLoader::spec_of(const WeightStack& stack, const WeightPart& part) const {
  const std::int64_t n = outputs_of_all(stack, part, shard_);
  std::vector<std::int64_t> shape;
  if (part.num_slices > 0) shape.push_back(part.num_slices);
  shape.push_back(n);
  if (stack.k > 0) {
    const std::int64_t k = stack.k * (stack.split == Split::kInputs ? shard_.count : 1);
    const bool outputs_first = stack.order == kernels::WeightOrder::kOutputsByInputs;
    shape.insert(outputs_first ? shape.end() : shape.end() - 1, k);
  }
  return {prefix_ + part.name, std::move(shape), stack.init};
}

std::vector<SourceTensor> WeightLoader::fetch_all(const std::vector<TensorSpec>& specs) {
  std::vector<SourceTensor> tensors;
  for (const TensorSpec& spec : specs) {
    auto tensor = fetch(spec);
    if (!tensor.has_value()) continue;
    tensors.push_back(std::move(*tensor));
  }
  if (error_.has_value()) tensors.clear();
  const auto is_other = [&](const SourceTensor& tensor) {
    return tensor.type != tensors.front().type;
  };
  if (std::ranges::any_of(tensors, is_other)) {
    for (SourceTensor& tensor : tensors) tensor = as_f32(std::move(tensor));
  }
  return tensors;
}

std::optional<PackedWeight> WeightLoader::packed_random(const WeightStack& stack,
                                                        const std::vector<TensorSpec>& specs) {
  const bool is_whole = (stack.split == Split::kNone && stack.num_rows == 0) || shard_.count == 1;
  if (!is_whole || !stack.permutation.empty() || stack.is_router || has_slices(stack)) {
    return std::nullopt;
  }
  RandomWeight source{
      .parts = {}, .order = stack.order, .n = stack.n(), .k = stack.k, .is_table = stack.is_table};
  for (const TensorSpec& spec : specs) {
    const auto tensor = source_.random(spec);
    if (error_.has_value() || !tensor.has_value()) return std::nullopt;
    source.parts.push_back({*tensor, spec.num_elements()});
  }
  return store_.pack_random(source);
}

std::optional<PackedWeight> WeightLoader::packed_codes(const WeightStack& stack,
                                                       const std::vector<TensorSpec>& specs) {
  std::vector<std::shared_ptr<CodedMatrix>> matrices;  // live until all is packed
  std::vector<StackedCodes::Output> outputs;
  std::optional<CodedWeight> weight;
  if (stack.is_router) return std::nullopt;
  // A rank's share of the inputs may begin within a group. Codes of experts are outputs first,
  // however numbers are asked for.
  bool fits = (stack.order == kernels::WeightOrder::kOutputsByInputs || has_slices(stack)) &&
              (stack.split != Split::kInputs || shard_.count == 1);
  int num_coded = 0;
  for (std::size_t i = 0; i < specs.size() && !error_.has_value(); ++i) {
    const auto matrix = source_.coded(specs[i]);
    const auto packing = matrix.ok() && *matrix != nullptr
                             ? (*matrix)->packing()
                             : Result<std::optional<CodedWeight>>(std::nullopt);
    if (!matrix.ok() || !packing.ok()) {
      error_ = matrix.ok() ? packing.error() : matrix.error();
      break;
    }
    if (*matrix != nullptr) ++num_coded;
    fits = fits && packing->has_value() && (*packing)->k == stack.k;
    if (!fits) continue;
    weight = weight.has_value() ? common_packing(*weight, **packing) : *packing;
    fits = weight.has_value() && (weight->inputs.empty() || !stack.in_order);
    const WeightPart& part = stack.parts[i];
    const std::int64_t base = part.slice * outputs_of_all(stack, part, shard_);
    for (const Range& range : outputs_of(stack, part, shard_)) {
      for (std::int64_t row = base + range.first; row < base + range.first + range.count; ++row) {
        outputs.push_back({matrix->get(), row});
      }
    }
    matrices.push_back(*matrix);
  }
  if (error_.has_value() || num_coded == 0) return std::nullopt;
  num_widened_ += num_coded;
  if (!fits) return std::nullopt;
  if (!stack.permutation.empty()) outputs = reordered(outputs, stack.permutation);
  weight->n = stack.n();
  weight->k = stack.k;
  StackedCodes codes(std::move(outputs), *weight);
  auto packed = store_.pack_codes(*weight, codes);
  if (!packed.has_value()) return std::nullopt;
  num_widened_ -= num_coded;
  if (const auto read = codes.result(); !read.ok()) error_ = read.error();
  return packed;
}

std::vector<StoredWeight::Run> WeightLoader::runs_of(
    const WeightStack& stack, const std::vector<SourceTensor>& tensors) const {
  const Shard inputs = stack.split == Split::kInputs ? shard_ : Shard{};
  const std::int64_t first_input = inputs.rank * stack.k;
  std::vector<StoredWeight::Run> runs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t size = kernels::element_size(tensors[i].type);
    const auto add = [&](std::int64_t first, std::int64_t count) {
      runs.push_back({&tensors[i].read, static_cast<std::uint64_t>(first * size),
                      static_cast<std::uint64_t>(count * size)});
    };
    const std::vector<Range> outputs = outputs_of(stack, stack.parts[i], shard_);
    const TensorSpec spec = spec_of(stack, stack.parts[i]);
    const std::int64_t row_size = spec.shape.back();
    const std::int64_t base = first_of(spec, stack.parts[i]);
    if (stack.order == kernels::WeightOrder::kOutputsByInputs) {
      for (const Range& range : outputs) {
        for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
          add(base + row * row_size + first_input, stack.k);
        }
      }
    } else {
      for (std::int64_t row = first_input; row < first_input + stack.k; ++row) {
        for (const Range& range : outputs) add(base + row * row_size + range.first, range.count);
      }
    }
  }
  return runs;
}

PackedWeight WeightLoader::packed(const WeightStack& stack) {
  LMTP_CHECK(stack.order == kernels::WeightOrder::kOutputsByInputs ||
                 (stack.parts.size() == 1 && stack.permutation.empty()),
             stack.parts.size());
  std::vector<TensorSpec> specs;
  for (const WeightPart& part : stack.parts) specs.push_back(spec_of(stack, part));
  auto weight = packed_random(stack, specs);
  if (!weight.has_value()) weight = packed_codes(stack, specs);
  if (error_.has_value()) return {};
  if (!weight.has_value()) {
    const std::vector<SourceTensor> tensors = fetch_all(specs);
    if (tensors.empty()) return {};
    WeightStack stored = stack;
    if (tensors.front().outputs_first) stored.order = kernels::WeightOrder::kOutputsByInputs;
    std::vector<StoredWeight::Run> runs = runs_of(stored, tensors);
    if (!stack.permutation.empty()) runs = reordered(runs, stack.permutation);
    auto packed = store_.pack({.runs = joined(runs),
                               .type = tensors.front().type,
                               .order = stored.order,
                               .n = stack.n(),
                               .k = stack.k,
                               .is_table = stack.is_table,
                               .is_router = stack.is_router});
    if (!packed.ok()) {
      error_ = packed.error();
      return {};
    }
    weight = std::move(*packed);
  }
  for (std::size_t i = 0; i < specs.size(); ++i) count(specs[i], stack.parts[i]);
  return std::move(*weight);
}

void WeightLoader::read(const SourceTensor& tensor, std::int64_t first, std::int64_t count,
                        std::vector<float>& to) {
  constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 20;
  const std::int64_t size = kernels::element_size(tensor.type);
  std::vector<unsigned char> bytes(
      static_cast<std::size_t>(std::min(kElementsAtATime, count) * size));
  for (const std::int64_t end = first + count; first < end; first += kElementsAtATime) {
    const std::int64_t elements = std::min(kElementsAtATime, end - first);
    const auto done = tensor.read(static_cast<std::uint64_t>(first * size),
                                  static_cast<std::size_t>(elements * size), bytes.data());
    if (!done.ok()) {
      error_ = done.error();
      return;
    }
    const std::size_t behind = to.size();
    to.resize(behind + static_cast<std::size_t>(elements));
    kernels::convert_to_f32(bytes.data(), tensor.type, elements, to.data() + behind);
  }
}

PlainWeight WeightLoader::plain(const WeightStack& stack) {
  std::vector<float> values;
  for (const WeightPart& part : stack.parts) {
    const TensorSpec spec = spec_of(stack, part);
    const auto tensor = fetch(spec);
    if (!tensor.has_value()) continue;
    for (const Range& range : outputs_of(stack, part, shard_)) {
      read(*tensor, first_of(spec, part) + range.first, range.count, values);
    }
    if (!error_.has_value()) count(spec, part);
  }
  if (error_.has_value() || values.empty()) return {};
  return store_.keep(stack.permutation.empty() ? values : reordered(values, stack.permutation));
}

std::vector<float> WeightLoader::numbers(const std::string& name, std::vector<std::int64_t> shape,
                                         TensorInit init) {
  const TensorSpec spec{prefix_ + name, std::move(shape), init};
  const auto tensor = fetch(spec);
  if (!tensor.has_value()) return {};
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(spec.num_elements()));
  read(*tensor, 0, spec.num_elements(), values);
  if (error_.has_value()) return {};
  count(spec.num_elements());
  return values;
}

PlainWeight WeightLoader::plain(const std::string& name, std::vector<std::int64_t> shape,
                                TensorInit init, float shift) {
  std::vector<float> values = numbers(name, std::move(shape), init);
  if (error_.has_value() || values.empty()) return {};
  for (float& value : values) value += shift;
  return store_.keep(values);
}

}  // namespace lmtp::model
