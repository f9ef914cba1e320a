// Sources of a model's tensors, and the loader that packs them.
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
#include "lmtp/model/quantization.h"
#include "lmtp/model/shard.h"
#include "lmtp/model/weight_store.h"

namespace lmtp::model {

// The distribution of a tensor of a random model.
struct TensorInit {
  float mean = 0.0F;
  float deviation = 0.0F;  // 0: every element is the mean
};

// A tensor that a model requests.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorInit init;

  std::int64_t num_elements() const;
};

// One tensor. `read` is null if the source only records requests.
struct SourceTensor {
  kernels::ElementType type = kernels::ElementType::kF32;
  TensorReader read;  // valid while the source lives
  // A matrix that is asked for as [inputs, outputs] lies there as [outputs, inputs].
  bool outputs_first = false;
};

// A tensor as its file has it, of whatever type and shape.
struct StoredTensor {
  std::string name;
  std::string path;  // of the file, for errors
  std::string type;  // safetensors' name: "I8"
  std::vector<std::int64_t> shape;
  TensorReader read;  // valid while the source lives
};

// A matrix [n, k] that its file has as codes: kernels/grouping.h. Any thread, several at a time;
// valid while the source lives.
class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;
  // How its codes can be packed as they are; empty: they cannot. The error is the file's.
  virtual Result<std::optional<CodedWeight>> packing() = 0;
  // Outputs [first, first + count), as kernels::CodeRows::rows. The error is the file's, or names
  // numbers that no quantised matrix has. REQUIRES: packing() has said how.
  virtual Result<void> rows(std::int64_t first, std::int64_t count,
                            const kernels::CodePiece& to) = 0;
};

// Owner: the caller that loads the model; one thread.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // The folder or files, for errors.
  virtual std::string origin() const { return {}; }
  // All tensors' names, ascending; empty if the source has a tensor of any name.
  virtual std::vector<std::string> names() const { return {}; }
  // The error names the tensor and its wrong shape or type.
  virtual Result<SourceTensor> tensor(const TensorSpec& spec) = 0;
  // Empty: there is none of that name, or the source has no files.
  virtual std::optional<StoredTensor> stored(const std::string& /*name*/) const {
    return std::nullopt;
  }
  // The codes of a matrix of which tensor() gives the numbers; null: its file has these.
  virtual Result<std::shared_ptr<CodedMatrix>> coded(const TensorSpec& /*spec*/) {
    return std::shared_ptr<CodedMatrix>();
  }
  // To be called once all tensors have been asked for, before any is read: the error names one
  // whose numbers no checkpoint has.
  virtual Result<void> check_values() { return {}; }
  // If the tensor is random: how its elements are generated, so that a store may do that itself
  // instead of reading them.
  virtual std::optional<kernels::RandomTensor> random(const TensorSpec&) const {
    return std::nullopt;
  }
  // To be called after everything has been read: the error says which file changed meanwhile.
  virtual Result<void> check_unchanged() const { return {}; }
};

// The weights of a folder: model.safetensors, or model.safetensors.index.json and what it names;
// if there is neither, pytorch_model.bin or its index. Or those of a GGUF file, widened to float32.
// The files stay open; their headers are checked against their sizes.
Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder);

// The same from the headers alone of safetensors files that are not downloaded yet. No data can be
// read.
Result<std::unique_ptr<TensorSource>> open_headers(const std::string& folder,
                                                   const std::vector<WeightHeader>& headers);

// `file` as a source of the matrices that it has in quantised form, as if it had their numbers in
// float32; `file` itself where nothing is quantised, and a GGUF file, which does so by itself.
std::unique_ptr<TensorSource> dequantized(std::unique_ptr<TensorSource> file,
                                          const Quantization& quantization);

// Random tensors: a function of (seed, name, index) alone, rounded to `type`, which is kF32 or
// kBF16.
std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::ElementType type);

// The random tensor of that name and seed. `type` is kF32 or kBF16.
kernels::RandomTensor random_tensor(std::uint64_t seed, const TensorSpec& spec,
                                    kernels::ElementType type);

// A tensor that is one of several in a stack: a matrix [n, k] or a vector [n].
struct WeightPart {
  std::string name;
  // Its outputs on this rank, section by section. Each section is divided among the ranks by
  // itself: queries, keys and values, where a checkpoint has them in one tensor.
  std::vector<std::int64_t> sections;
  // By section: ranks one after another that have the same share of it, since there are fewer KV
  // heads than ranks. Empty: all ranks have different ones.
  std::vector<int> copies = {};
  // Of a tensor [num_slices, ...] of all experts: which one's; 0: the tensor is this part's alone.
  std::int64_t num_slices = 0;
  std::int64_t slice = 0;

  std::int64_t n() const;  // sum of the sections
};

// A weight of a linear layer, or its bias, as a model requests it. Sizes are those of this rank:
// split along the outputs, or the inputs, the tensors have Shard::count times as many (of sections
// that several ranks have, less).
struct WeightStack {
  std::vector<WeightPart> parts;
  std::int64_t k = 0;  // of matrices
  TensorInit init = {};
  Split split = Split::kNone;
  // An embedding or an output head, which is int8 where other weights are int4.
  bool is_table = false;
  // Of matrices. REQUIRES: kInputsByOutputs: one part, and no permutation.
  kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs;
  // Of a table whose rows are divided, not by `split`: this rank's are [first_row, first_row + n())
  // of so many; 0: it is whole, or divided by `split`.
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  // If not empty, output i is output permutation[i] of the stack (of this rank's outputs).
  std::vector<std::int64_t> permutation = {};
  float scale = 1.0F;  // of what the layer gives: not in the weights
  // A router, whose numbers --dtype does not round: they are kept as the file has them, in f32, and
  // so are its products.
  bool is_router = false;
  bool in_order = false;  // codes whose inputs are in an order of their own are packed as numbers

  std::int64_t n() const;
};

// Turns tensors into weights. Keeps the first error; weights loaded after it are undefined. A model
// loads everything and then checks error(). Owner: the caller that loads the model; one thread.
class WeightLoader {
 public:
  // `progress` gets percents of expected_elements; if it returns false, loading ends with an error.
  // `source` and `store` must outlive the loader. `shard`: the rank that it loads for, which reads
  // its share alone of what is split.
  WeightLoader(TensorSource& source, WeightStore& store, std::int64_t expected_elements,
               std::function<bool(int percent)> progress, Shard shard = {});
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  // Finds the prefix (of a wrapper around the saved model) that the source has in front of `name`,
  // for all later look-ups; `fallback` if there is none, or if there are several and it is among
  // them. False: no tensor's name ends so.
  bool find_prefix(const std::string& name, const std::string& fallback);

  // Matrices [n, k], packed as one.
  PackedWeight packed(const WeightStack& stack);
  // Vectors [n], which are split by kOutputs alone.
  PlainWeight plain(const WeightStack& stack);
  // Any other tensor; `shift` is added to its elements.
  PlainWeight plain(const std::string& name, std::vector<std::int64_t> shape, TensorInit init,
                    float shift = 0.0F);
  // Whether the source has a file with that tensor.
  bool has(const std::string& name) const { return stored(name).has_value(); }
  std::optional<StoredTensor> stored(const std::string& name) const {
    return source_.stored(prefix_ + name);
  }
  // Its elements, in host memory; empty after an error, and if the source only records requests.
  std::vector<float> numbers(const std::string& name, std::vector<std::int64_t> shape,
                             TensorInit init);

  // Counts a linear layer of the model's layers, which adapters may add to; returns its number.
  int add_linear(const WeightStack& stack);
  // By number; the parts' names are those that the source has, without .weight.
  const std::vector<WeightStack>& linears() const { return linears_; }
  // Counts an expert's matrix, which no adapter adds to.
  void add_expert(const WeightStack& stack) { divide(stack, ""); }
  // All matrices of layers, with the names of their tensors.
  const std::vector<WeightStack>& divided() const { return divided_; }

  WeightStore& store() { return store_; }

  Shard shard() const { return shard_; }
  // Those of the tensors, whatever this rank's share of them is.
  std::int64_t num_elements() const { return num_elements_; }
  // Matrices of codes that were packed as numbers.
  int num_widened() const { return num_widened_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  // What the source is asked for, for a part of a stack.
  TensorSpec spec_of(const WeightStack& stack, const WeightPart& part) const;
  std::optional<SourceTensor> fetch(const TensorSpec& spec);
  // All of these, in one type; empty after an error, and if the source only records requests.
  std::vector<SourceTensor> fetch_all(const std::vector<TensorSpec>& specs);
  // The concatenated tensors, if they are random and the store generates them.
  std::optional<PackedWeight> packed_random(const WeightStack& stack,
                                            const std::vector<TensorSpec>& specs);
  // The stack, if all of it are codes that the store packs as they are.
  std::optional<PackedWeight> packed_codes(const WeightStack& stack,
                                           const std::vector<TensorSpec>& specs);
  // Where this rank's share of the stack lies.
  std::vector<StoredWeight::Run> runs_of(const WeightStack& stack,
                                         const std::vector<SourceTensor>& tensors) const;
  // Appends the tensor's elements [first, first + count).
  void read(const SourceTensor& tensor, std::int64_t first, std::int64_t count,
            std::vector<float>& to);
  void count(const TensorSpec& spec, const WeightPart& part);
  void count(std::int64_t num_elements);
  void divide(const WeightStack& stack, const char* leaf);

  TensorSource& source_;
  WeightStore& store_;
  std::int64_t expected_elements_;
  std::function<bool(int)> progress_;
  const Shard shard_;
  std::string prefix_;
  std::vector<WeightStack> linears_;
  std::vector<WeightStack> divided_;
  std::int64_t num_elements_ = 0;
  int num_widened_ = 0;
  int percent_ = -1;
  std::optional<Error> error_;
};

}  // namespace lmtp::model
