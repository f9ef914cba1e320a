// GGUF, the files of llama.cpp: metadata by key, and tensors, in one file. Versions 2 and 3, little
// endian. https://github.com/ggml-org/ggml, docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::gguf {

// How ggml keeps a tensor's elements: in blocks of so many, along the innermost dimension.
struct TensorType {
  std::uint32_t id = 0;
  std::string_view name;            // ggml's: "Q4_K"
  std::int64_t block_elements = 0;  // 0: a name alone, such are not read
  std::int64_t block_bytes = 0;
};

// nullptr: ggml has no such type.
const TensorType* find_tensor_type(std::uint32_t id);

struct Tensor {
  std::string name;
  const TensorType* type = nullptr;  // which can_dequantize()
  std::vector<std::int64_t> shape;   // the innermost dimension last, as in torch; all above 0
  std::uint64_t begin = 0;           // of its bytes in the file
  std::uint64_t num_bytes = 0;

  std::int64_t num_elements() const;
};

// Limits far beyond any model, so that a corrupt file does not cause huge allocations.
inline constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kTensorsMax = 1 << 20;
inline constexpr std::uint64_t kKeysMax = 1 << 16;

// The header of a file: its metadata, and where its tensors lie. It is checked as a whole: every
// tensor has a type that is read, lies within the file, at a multiple of the file's alignment, and
// overlaps no other.
// Immutable; any thread.
class GgufFile {
 public:
  // Reads bytes [first, first + count) of the file; false if it has not got them.
  using ReadAt = std::function<bool(std::uint64_t first, std::size_t count, char* to)>;

  // The error names the file and what is wrong with it.
  static Result<GgufFile> open(const std::string& path);
  // `origin` names the file in errors.
  static Result<GgufFile> parse(const std::string& origin, std::uint64_t file_bytes,
                                const ReadAt& read);

  const std::string& origin() const { return origin_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

  bool has(std::string_view key) const { return entries_.contains(key); }
  // Ascending.
  std::vector<std::string_view> keys() const;

  // The value of a key; empty if it is absent, or if it has another type, which goes into `error`
  // unless an error is there already. Whole numbers of any width are integers, and numbers too;
  // a float that is whole is an integer; 0 and 1 are booleans. Views live as long as the file.
  std::optional<std::int64_t> integer(std::string_view key, std::optional<Error>& error) const;
  std::optional<double> number(std::string_view key, std::optional<Error>& error) const;
  std::optional<bool> boolean(std::string_view key, std::optional<Error>& error) const;
  std::optional<std::string_view> text(std::string_view key, std::optional<Error>& error) const;
  // Arrays: of texts; of numbers or booleans.
  std::optional<std::vector<std::string_view>> texts(std::string_view key,
                                                     std::optional<Error>& error) const;
  std::optional<std::vector<double>> numbers(std::string_view key,
                                             std::optional<Error>& error) const;

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find_tensor(std::string_view name) const;

 private:
  // Where a value lies in header_.
  struct Entry {
    std::uint32_t type = 0;  // of the elements, if it is an array
    bool is_array = false;
    std::uint64_t count = 1;
    std::size_t at = 0;
  };
  class Parser;

  // nullptr: the key is absent.
  const Entry* find(std::string_view key) const;
  // Puts into `error` that the key has another type than `needed`.
  std::nullopt_t mistyped(std::string_view key, const char* needed,
                          std::optional<Error>& error) const;
  // The number at header_[at]; empty if `type` is none of a number's.
  std::optional<double> number_at(std::uint32_t type, std::size_t at) const;

  std::string origin_;
  std::uint64_t file_bytes_ = 0;
  std::string header_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensors_by_name_;
};

// Whether dequantize() knows it: those of kReadTypes.
bool can_dequantize(const TensorType& type);

// Their names, for errors.
inline constexpr const char* kReadTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, "
    "IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS and MXFP4";

// Computes num_blocks blocks' elements, as ggml does in float32. False: a block's scale is no
// finite number. REQUIRES: can_dequantize(type).
bool dequantize(const TensorType& type, const void* blocks, std::int64_t num_blocks, float* to);

}  // namespace lmtp::gguf
