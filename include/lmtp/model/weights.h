// Where a model's tensors come from, and how they become packed weights, held once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/random.h"
#include "lmtp/base/model_source.h"
#include "lmtp/base/result.h"
#include "lmtp/model/weight_store.h"

namespace lmtp::model {

// How a tensor of a random model begins.
struct TensorInit {
  float mean = 0.0F;
  float deviation = 0.0F;  // 0: every element is the mean
};

// A tensor as a model asks for it.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorInit init;

  std::int64_t num_elements() const;
};

// One tensor. `read` is null where the source only wants to know what is asked for.
struct SourceTensor {
  kernels::ElementType type = kernels::ElementType::kF32;
  TensorReader read;  // valid while the source lives
};

// Owner: whoever loads. One thread.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Where the tensors come from, for errors.
  virtual std::string origin() const { return {}; }
  // All that there are, ascending; none where a tensor of any name can be had.
  virtual std::vector<std::string> names() const { return {}; }
  // The error names the tensor, and the shape or type that is wrong with it.
  virtual Result<SourceTensor> tensor(const TensorSpec& spec) = 0;
  // How the tensor's elements are made, where they are random: then who packs it may make them, and
  // does not ask for its data.
  virtual std::optional<kernels::RandomTensor> random(const TensorSpec&) const {
    return std::nullopt;
  }
  // When everything has been read: the error says what changed meanwhile.
  virtual Result<void> check_unchanged() const { return {}; }
};

// The weights of a folder: model.safetensors, or model.safetensors.index.json and what it names;
// where there is neither, pytorch_model.bin or its index. The files stay open, and what they say
// of themselves is checked against their size.
Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder);

// The same for safetensors files that are still to come: these are their beginnings, which tell
// their tensors. Nothing can be read.
Result<std::unique_ptr<TensorSource>> open_headers(const std::string& folder,
                                                   const std::vector<WeightHeader>& headers);

// Random tensors: a function of (seed, name, index) alone, rounded to `type`, which is kF32 or
// kBF16.
std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::ElementType type);

// The random tensor of that name: the same for the same seed. `type` is kF32 or kBF16.
kernels::RandomTensor random_tensor(std::uint64_t seed, const TensorSpec& spec,
                                    kernels::ElementType type);

// One of the matrices [n, k], or vectors [n], that are put on top of one another.
struct WeightPart {
  std::string name;
  std::int64_t n = 0;
};

// Turns tensors into weights. The first failure is kept, and what is loaded after it is undefined:
// a model loads everything and then looks at error(). Owner: whoever loads; one thread.
class WeightLoader {
 public:
  // `progress` is told percents of expected_elements; where it returns false, loading ends with an
  // error. `source` and `store` must outlive the loader.
  WeightLoader(TensorSource& source, WeightStore& store, std::int64_t expected_elements,
               std::function<bool(int percent)> progress);
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  // Names are looked up with what the source has in front of this one, whatever was wrapped around
  // the model that was saved; with `usual` where it has none, or several and that among them.
  // False: nothing is called so.
  bool find_prefix(const std::string& name, const std::string& usual);

  // A matrix product's weight.
  PackedWeight packed(const std::string& name, kernels::WeightOrder order, std::int64_t n,
                      std::int64_t k, TensorInit init);
  // The rows of several [n, k] matrices, packed as one. Where `order` is not empty, row i is row
  // order[i] of the stack.
  PackedWeight packed_stack(const std::vector<WeightPart>& parts, std::int64_t k, TensorInit init,
                            const std::vector<std::int64_t>& order = {});
  // The elements of several vectors in the same way.
  PlainWeight plain_stack(const std::vector<WeightPart>& parts, TensorInit init,
                          const std::vector<std::int64_t>& order = {});
  // Any other tensor; `shift` is added to its elements.
  PlainWeight plain(const std::string& name, std::vector<std::int64_t> shape, TensorInit init,
                    float shift = 0.0F);

  WeightStore& store() { return store_; }

  std::int64_t num_elements() const { return num_elements_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<SourceTensor> fetch(const TensorSpec& spec);
  // The tensors behind one another, where they are random and the store makes them itself.
  std::optional<PackedWeight> packed_random(const std::vector<TensorSpec>& specs,
                                            kernels::WeightOrder order, std::int64_t n,
                                            std::int64_t k);
  // Packs a weight that these tensors are.
  PackedWeight pack(const StoredWeight& source, const std::vector<TensorSpec>& specs);
  // Appends the tensor's elements.
  void read(const TensorSpec& spec, std::vector<float>& to);
  void count(const TensorSpec& spec);

  TensorSource& source_;
  WeightStore& store_;
  std::int64_t expected_elements_;
  std::function<bool(int)> progress_;
  std::string prefix_;
  std::int64_t num_elements_ = 0;
  int percent_ = -1;
  std::optional<Error> error_;
};

}  // namespace lmtp::model
