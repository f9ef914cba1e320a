// Whether a model's output head is its embedding, by what the weights hold.
#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint_files.h"

#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// Records what is requested, under the names that another source has. No data.
class NamingSource : public TensorSource {
 public:
  explicit NamingSource(const TensorSource& source) : source_(source) {}

  std::vector<std::string> names() const override { return source_.names(); }
  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    specs.push_back(spec);
    return SourceTensor{};
  }

  std::vector<TensorSpec> specs;

 private:
  const TensorSource& source_;
};

// Whether both have the same numbers in float32.
Result<bool> are_equal(const SourceTensor& a, const SourceTensor& b, std::int64_t num_elements) {
  constexpr std::int64_t kCompared = std::int64_t{1} << 18;
  const SourceTensor* tensors[] = {&a, &b};
  std::vector<unsigned char> bytes;
  std::vector<float> values[2];
  for (std::int64_t first = 0; first < num_elements; first += kCompared) {
    const std::int64_t count = std::min(kCompared, num_elements - first);
    for (int i = 0; i < 2; ++i) {
      const std::int64_t size = kernels::element_size(tensors[i]->type);
      bytes.resize(static_cast<std::size_t>(count * size));
      values[i].resize(static_cast<std::size_t>(count));
      const auto read =
          tensors[i]->read(static_cast<std::uint64_t>(first * size), bytes.size(), bytes.data());
      if (!read.ok()) return read.error();
      kernels::convert_to_f32(bytes.data(), tensors[i]->type, count, values[i].data());
    }
    if (values[0] != values[1]) return false;
  }
  return true;
}

}  // namespace

Result<void> settle_head(TensorSource& weights, bool can_read, ModelConfig& config) {
  if (!config.settles_head) return {};
  ModelConfig untied = config;
  untied.tied_embeddings = false;
  NamingSource naming(weights);
  if (const auto asked = request_tensors(untied, naming); !asked.ok()) return asked.error();
  const TensorSpec& embedding = naming.specs.front();
  const TensorSpec& head = naming.specs.back();
  const auto names = weights.names();
  const auto is_there = [&](const TensorSpec& spec) {
    return std::ranges::binary_search(names, spec.name) && !is_empty_tensor(weights, spec.name);
  };
  if (!is_there(head) || !is_there(embedding)) {
    if (!std::exchange(config.tied_embeddings, true)) {
      config.notes.push_back("there is no '" + head.name + "': the embedding is the output head, " +
                             "as tie_word_embeddings of the larger model says");
    }
    return {};
  }
  if (!config.tied_embeddings) return {};
  const auto from = weights.tensor(embedding);
  if (!from.ok()) return from.error();
  const auto to = weights.tensor(head);
  if (!to.ok()) {
    return Error{to.error().code, to.error().message + " (--tie-embeddings true leaves it out)"};
  }
  if (!can_read) return {};
  const auto equal = are_equal(*from, *to, head.num_elements());
  if (!equal.ok()) return equal.error();
  config.tied_embeddings = *equal;
  if (!*equal) {
    config.notes.push_back(
        "tie_word_embeddings is true, and the weights' '" + head.name +
        "' differs from the embedding: it is used, as by transformers 5; transformers 4 leaves it "
        "out (--tie-embeddings true)");
  }
  return {};
}

}  // namespace lmtp::model
