// The parts of tokenizer.json that are not its model.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "decoder.h"
#include "lmtp/base/result.h"
#include "normalizer.h"
#include "pre_tokenizer.h"

namespace lmtp::tokenizer {

// The supported formats, for error messages.
inline constexpr const char* kSupportedKinds =
    "supported: BPE, Unigram and WordLevel as tokenizer.json; GPT-2's and Qwen2's vocab.json and "
    "merges.txt; Llama's and Gemma's tokenizer.model (sentencepiece); tekken.json; tiktoken's "
    "files";

Error unsupported(const std::string& what);

// Each reads the part of its name; a null or missing part gives no steps. The error names what is
// not supported.
Result<std::vector<NormalizerStep>> read_normalizer(const simdjson::dom::object& root);

struct PreTokenizerParts {
  std::vector<PreTokenizerStep> steps;
  bool byte_level_alone = false;  // ByteLevel is the only step
};
Result<PreTokenizerParts> read_pre_tokenizer(const simdjson::dom::object& root);

// If the file has none, a space goes between two tokens.
Result<std::vector<DecoderStep>> read_decoder(const simdjson::dom::object& root);

// The special tokens that the post-processor puts in front of a single text, and after it, with
// their ids if it gives them (else -1).
struct TemplateToken {
  std::string content;
  std::int64_t id = -1;
};
struct TemplateTokens {
  std::vector<TemplateToken> prefix;
  std::vector<TemplateToken> suffix;
};
TemplateTokens read_template(const simdjson::dom::object& root);

// The step that puts a space in front of a text, as ByteLevel's add_prefix_space does.
PreTokenizerStep prefix_space_step();

}  // namespace lmtp::tokenizer
