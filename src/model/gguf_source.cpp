// The tensors of a GGUF file, under transformers' names and in its order of rows: as float32, and
// matrices of codes as these.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_files.h"
#include "gguf_codes.h"
#include "gguf_names.h"
#include "kernels/experts.h"
#include "lmtp/gguf/gguf_file.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// What is computed at a time: it stays in a core's own cache.
constexpr std::int64_t kElementsAtATime = 8192;

// A tensor of the file, with the change that is undone while it is read.
struct GgufTensor {
  const gguf::Tensor* stored = nullptr;
  GgufChange change = GgufChange::kNone;
  std::int64_t head_dim = 0;
  // kByPart's.
  std::int64_t num_heads = 0;
  std::int64_t num_groups = 0;
  // Which of a tensor of all experts.
  std::int64_t expert = -1;

  std::vector<std::int64_t> shape() const {
    return {stored->shape.begin() + (expert < 0 ? 0 : 1), stored->shape.end()};
  }
  // Elements of the file's tensor before this one's.
  std::int64_t first_element() const {
    return expert <= 0 ? 0 : stored->num_elements() / stored->shape.front() * expert;
  }
  std::int64_t row_elements() const { return stored->shape.size() > 1 ? stored->shape.back() : 1; }
  // Where the row of transformers' checkpoint lies in the file.
  std::int64_t stored_row(std::int64_t row) const {
    const std::int64_t in_head = row % head_dim;
    if (change == GgufChange::kInterleaved) {
      const std::int64_t half = head_dim / 2;
      return row - in_head + in_head % half * 2 + in_head / half;
    }
    const std::int64_t queries = num_heads / num_groups;  // of a group, then a key and a value
    const std::int64_t group = row / head_dim / (queries + 2);
    const std::int64_t at = row / head_dim % (queries + 2);
    const std::int64_t head =
        at < queries ? group * queries + at : num_heads + (at - queries) * num_groups + group;
    return head * head_dim + in_head;
  }
  // Whether has_other_rows() can be undone.
  bool has_whole_heads() const {
    if (head_dim < 2 || head_dim % 2 != 0) return false;
    if (change != GgufChange::kByPart) return stored->shape.front() % head_dim == 0;
    return num_groups > 0 && num_heads % num_groups == 0 &&
           stored->shape.front() == (num_heads + 2 * num_groups) * head_dim;
  }
  bool has_other_rows() const {
    return change == GgufChange::kInterleaved || change == GgufChange::kByPart;
  }
};

Error scale_error(const std::string& path, const GgufTensor& tensor) {
  return Error{ErrorCode::kInvalid, path + ": tensor '" + tensor.stored->name +
                                        "': a scale of its blocks is no finite number: the file "
                                        "is corrupt"};
}

// A matrix as the codes that its blocks are.
class GgufMatrix : public CodedMatrix {
 public:
  GgufMatrix(const WeightsFile& file, const GgufTensor& tensor, const kernels::Grouping& grouping)
      : file_(file), tensor_(tensor), grouping_(grouping) {}

  // A store packs outputs first alone.
  Result<std::optional<CodedWeight>> packing() override {
    if (tensor_.change == GgufChange::kTransposed) return std::optional<CodedWeight>();
    return std::optional(CodedWeight{.type = kernels::WeightType::kWidened,
                                     .grouping = grouping_,
                                     .n = tensor_.shape().front(),
                                     .k = tensor_.stored->shape.back()});
  }

  Result<void> rows(std::int64_t first, std::int64_t count, const kernels::CodePiece& to) override {
    const gguf::TensorType& type = *tensor_.stored->type;
    const std::int64_t k = tensor_.stored->shape.back();
    const std::int64_t num_groups = kernels::num_groups(grouping_, k);
    const auto row_bytes = static_cast<std::size_t>(k / type.block_elements * type.block_bytes);
    const bool has_other_rows = tensor_.has_other_rows();
    std::vector<std::byte> blocks(row_bytes * static_cast<std::size_t>(has_other_rows ? 1 : count));
    first += tensor_.first_element() / k;
    for (std::int64_t i = 0; i < count; ++i) {
      if (has_other_rows || i == 0) {
        const std::int64_t row = has_other_rows ? tensor_.stored_row(first + i) : first;
        auto read = file_.read(tensor_.stored->begin + static_cast<std::uint64_t>(row) * row_bytes,
                               blocks.size(), blocks.data());
        if (!read) return read;
      }
      const std::size_t at = has_other_rows ? 0 : static_cast<std::size_t>(i) * row_bytes;
      const bool all_finite =
          unpack_row(*tensor_.stored, grouping_, blocks.data() + at,
                     {.codes = to.codes + i * k,
                      .scales = to.scales + i * num_groups,
                      .offsets = to.offsets == nullptr ? nullptr : to.offsets + i * num_groups});
      if (!all_finite) return scale_error(file_.path(), tensor_);
    }
    return {};
  }

 private:
  const WeightsFile& file_;
  const GgufTensor& tensor_;
  const kernels::Grouping grouping_;
};

class GgufSource : public TensorSource {
 public:
  GgufSource(gguf::GgufFile header, std::unique_ptr<WeightsFile> file, const GgufFamily& family)
      : header_(std::move(header)), file_(std::move(file)) {
    const std::int64_t head_dim = gguf_head_dim(header_, family);
    const std::int64_t num_heads = gguf_size(header_, family, "attention.head_count");
    const std::int64_t own_groups = gguf_size(header_, family, "attention.head_count_kv");
    const std::int64_t num_groups = own_groups > 0 ? own_groups : num_heads;
    for (const gguf::Tensor& tensor : header_.tensors()) {
      if (is_rotary_table(tensor.name)) continue;
      const GgufTensorName name = translate_name(family, tensor.name);
      const GgufTensor one{&tensor, name.change, head_dim, num_heads, num_groups};
      if (name.change == GgufChange::kExperts) {
        add_experts(name.ours, one, gguf_size(header_, family, "expert_count"));
      } else {
        add(name.ours, one);
      }
    }
    if (family.keys.xielu) read_xielu(family);
  }

  std::string origin() const override { return header_.origin(); }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(name);
    for (const auto& [name, number] : numbers_) result.push_back(name);
    std::ranges::sort(result);
    return result;
  }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    if (const auto number = numbers_.find(spec.name); number != numbers_.end()) {
      return SourceTensor{.read = [value = number->second](std::uint64_t, std::size_t count,
                                                           void* to) -> Result<void> {
        std::memcpy(to, &value, std::min(count, sizeof(value)));
        return {};
      }};
    }
    const auto found = tensors_.find(spec.name);
    if (!twice_.empty()) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + twice_ +
                                            "' is there twice, under llama.cpp's name and its own"};
    }
    if (found == tensors_.end()) {
      return Error{ErrorCode::kInvalid, origin() + ": tensor '" + spec.name +
                                            "' is missing, or what llama.cpp calls it; the names "
                                            "there are like " +
                                            list_names(names())};
    }
    const GgufTensor& tensor = found->second;
    std::vector<std::int64_t> shape = spec.shape;
    if (tensor.change == GgufChange::kTransposed) std::ranges::reverse(shape);
    // The converter leaves out that there is one output.
    if (shape.size() == 2 && shape.front() == 1 && tensor.shape().size() == 1) {
      shape.erase(shape.begin());
    }
    if (tensor.shape() != shape) {
      return broken(tensor, "its shape is " + shape_text(tensor.shape()) +
                                (tensor.expert < 0 ? "" : " of each expert") +
                                ", and the file's metadata ask for " + shape_text(shape));
    }
    if (tensor.has_other_rows() && !tensor.has_whole_heads()) {
      return broken(tensor, "its rows are not those of whole heads");
    }
    SourceTensor result;
    result.type = kernels::ElementType::kF32;
    result.outputs_first = tensor.change == GgufChange::kTransposed;
    result.read = [this, &tensor](std::uint64_t first, std::size_t count, void* to) {
      return read(tensor, static_cast<std::int64_t>(first / sizeof(float)),
                  static_cast<std::int64_t>(count / sizeof(float)), static_cast<std::byte*>(to));
    };
    return result;
  }

  Result<std::shared_ptr<CodedMatrix>> coded(const TensorSpec& spec) override {
    if (const auto checked = tensor(spec); !checked) return checked.error();
    const GgufTensor& tensor = tensors_.at(spec.name);
    const auto grouping = gguf_grouping(header_, *tensor.stored);
    if (!grouping || tensor.shape().size() != 2) return std::shared_ptr<CodedMatrix>();
    return std::shared_ptr<CodedMatrix>(std::make_shared<GgufMatrix>(*file_, tensor, *grouping));
  }

  Result<void> check_unchanged() const override { return file_->check_unchanged(); }

  // Without a reader.
  std::optional<StoredTensor> stored(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    return StoredTensor{.name = name,
                        .path = header_.origin(),
                        .type = std::string(found->second.stored->type->name),
                        .shape = found->second.shape(),
                        .read = {}};
  }

 private:
  void add(const std::string& name, const GgufTensor& tensor) {
    if (!tensors_.emplace(name, tensor).second && twice_.empty()) twice_ = name;
  }

  // One of another number of experts stays one tensor, which nobody asks for, and so do more than
  // any model has.
  void add_experts(const std::string& name, GgufTensor tensor, std::int64_t num_experts) {
    constexpr std::size_t kNamesMax = 1 << 19;  // of 65,536 experts, three weights and three biases
    const std::size_t star = name.find('*');
    const std::vector<std::int64_t>& shape = tensor.stored->shape;
    if (shape.size() < 2 || shape.front() != num_experts || num_experts > kernels::kExpertsMax ||
        tensors_.size() >= kNamesMax) {
      return add(name, tensor);
    }
    for (tensor.expert = 0; tensor.expert < num_experts; ++tensor.expert) {
      add(name.substr(0, star) + std::to_string(tensor.expert) + name.substr(star + 1), tensor);
    }
  }

  // The numbers of each layer, which the file has as metadata.
  void read_xielu(const GgufFamily& family) {
    for (const char* key : {"alpha_p", "alpha_n", "beta", "eps"}) {
      std::optional<Error> mistyped;  // and so missing
      const auto values = header_.numbers(std::string("xielu.") + key, mistyped);
      for (std::size_t layer = 0; values && layer < values->size() && layer < kNumLayersMax;
           ++layer) {
        numbers_.emplace(std::string(family.layers) + std::to_string(layer) + ".mlp.act_fn." + key,
                         static_cast<float>((*values)[layer]));
      }
    }
  }

  Error broken(const GgufTensor& tensor, const std::string& what) const {
    return Error{ErrorCode::kInvalid, origin() + ": tensor '" + tensor.stored->name + "': " + what};
  }

  // Elements [first, first + count) in transformers' order.
  Result<void> read(const GgufTensor& tensor, std::int64_t first, std::int64_t count,
                    std::byte* to) const {
    const std::int64_t width = tensor.row_elements();
    first += tensor.first_element();
    for (const std::int64_t end = first + count; first < end;) {
      std::int64_t from = first;
      std::int64_t part = std::min(end - first, kElementsAtATime);
      if (tensor.has_other_rows()) {
        from = tensor.stored_row(first / width) * width + first % width;
        part = std::min(part, width - first % width);
      }
      if (auto done = read_part(tensor, from, part, to); !done) return done;
      first += part;
      to += part * static_cast<std::int64_t>(sizeof(float));
    }
    return {};
  }

  // The same in the file's order. REQUIRES: count <= kElementsAtATime.
  Result<void> read_part(const GgufTensor& tensor, std::int64_t first, std::int64_t count,
                         std::byte* to) const {
    const gguf::TensorType& type = *tensor.stored->type;
    const std::int64_t begin = first / type.block_elements;
    const std::int64_t num_blocks =
        (first + count + type.block_elements - 1) / type.block_elements - begin;
    std::vector<std::byte> blocks(static_cast<std::size_t>(num_blocks * type.block_bytes));
    std::vector<float> values(static_cast<std::size_t>(num_blocks * type.block_elements));
    auto done =
        file_->read(tensor.stored->begin + static_cast<std::uint64_t>(begin * type.block_bytes),
                    blocks.size(), blocks.data());
    if (!done) return done;
    if (!gguf::dequantize(type, blocks.data(), num_blocks, values.data())) {
      return scale_error(origin(), tensor);
    }
    if (tensor.change == GgufChange::kOneAdded) {
      for (float& value : values) value -= 1.0F;
    }
    std::memcpy(to, values.data() + (first - begin * type.block_elements),
                static_cast<std::size_t>(count) * sizeof(float));
    return {};
  }

  const gguf::GgufFile header_;
  const std::unique_ptr<WeightsFile> file_;
  std::map<std::string, GgufTensor> tensors_;
  std::map<std::string, float> numbers_;
  std::string twice_;  // a name of two tensors
};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_gguf(const std::string& path) {
  auto header = gguf::GgufFile::open(path);
  if (!header) return header.error();
  auto file = WeightsFile::open(path);
  if (!file) return file.error();
  if ((*file)->size() != header->file_bytes()) {
    return Error{ErrorCode::kUnavailable, path + ": was written to while it was opened"};
  }
  const auto family = find_gguf_family(*header);
  if (!family) return family.error();
  return std::unique_ptr<TensorSource>(
      std::make_unique<GgufSource>(std::move(*header), std::move(*file), **family));
}

}  // namespace lmtp::model
