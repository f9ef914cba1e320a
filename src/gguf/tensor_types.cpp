// ggml's types of tensors (ggml.h), with the sizes of their blocks (ggml-common.h) where these are
// read.
#include <algorithm>
#include <iterator>

#include "tensor_types.h"

namespace lmtp::gguf {
namespace {

constexpr TensorType kTypes[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {9, "Q8_1"},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {15, "Q8_K"},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S"},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {30, "BF16", 1, 2},
    {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4"},
    {41, "Q1_0"},
    {42, "Q2_0"},
};

}  // namespace

const TensorType* find_tensor_type(std::uint32_t id) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [id](const TensorType& type) { return type.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string type_refusal(std::uint32_t id) {
  const TensorType* type = find_tensor_type(id);
  const std::string own = type != nullptr
                              ? std::string(type->name) + ", which is not read"
                              : "number " + std::to_string(id) + ", which is not known here";
  return ": its type is " + own + "; " + kReadTypes +
         " are read: a file of these is needed, such as one called Q8_0 or Q4_K_M, which "
         "llama.cpp's convert_hf_to_gguf.py and llama-quantize make of the original weights; made "
         "of this file (llama-quantize --allow-requantize) it would lose still more";
}

}  // namespace lmtp::gguf
