// vocab.json and merges.txt: GPT-2's own files, in the form Hugging Face keeps them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe.h"
#include "json_file.h"
#include "json_parts.h"
#include "known_patterns.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::string_view kGpt2Class = "GPT2Tokenizer";
constexpr std::string_view kQwen2Class = "Qwen2Tokenizer";

Result<void> read_vocab_json(const std::string& path, BpeBuilder& builder) {
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  const std::size_t num_tokens = root->size();
  builder.reserve(num_tokens + 1, num_tokens * 8, num_tokens);
  for (const auto [spelling, value] : *root) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid,
                   path + ": the id of '" + std::string(spelling) + "' is not a number"};
    }
    if (auto added = builder.add_token(spelling, id); !added) {
      return Error{added.error().code, path + ": " + added.error().message};
    }
  }
  return {};
}

// transformers skips the first line of GPT-2's file, and a last line without a line end; of Qwen2's
// file it skips only a first line "#version:".
Result<void> read_merges_txt(const std::string& path, bool is_gpt2, BpeBuilder& builder) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  if (!simdjson::validate_utf8(text->data(), text->size())) {
    return Error{ErrorCode::kInvalid, path + ": not UTF-8"};
  }
  std::size_t line_number = 0;
  for (std::size_t pos = 0; pos < text->size();) {
    const std::size_t end = text->find('\n', pos);
    if (is_gpt2 && end == std::string::npos) break;
    std::string_view line = std::string_view(*text).substr(pos, end - pos);
    pos = std::min(end, text->size() - 1) + 1;
    ++line_number;
    if (line_number == 1 && (is_gpt2 || line.starts_with("#version:"))) continue;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    if (auto added = builder.add_merge(line); !added) {
      return Error{added.error().code,
                   path + ", line " + std::to_string(line_number) + ": " + added.error().message};
    }
  }
  return {};
}

Result<std::vector<PreTokenizerStep>> pre_tokenizer_steps(bool is_gpt2,
                                                          const FolderConfig& config) {
  std::vector<PreTokenizerStep> steps;
  if (!is_gpt2) {
    auto pattern = SplitPattern::regex(kQwen2Pattern);
    if (!pattern) return pattern.error();
    PreTokenizerStep split;
    split.kind = PreTokenizerStep::Kind::kSplit;
    split.pattern = std::move(*pattern);
    steps.push_back(std::move(split));
  }
  if (config.add_prefix_space.value_or(false)) steps.push_back(prefix_space_step());
  if (is_gpt2) steps.emplace_back();
  return steps;
}

}  // namespace

Result<TokenizerParts> read_vocab_and_merges(const std::string& folder,
                                             const FolderConfig& config) {
  const bool is_gpt2 = config.tokenizer_class == kGpt2Class;
  if (!is_gpt2 && config.tokenizer_class != kQwen2Class) {
    return unsupported(folder + ": vocab.json and merges.txt of a " + config.tokenizer_class);
  }
  Bpe::Options options;
  options.byte_level = true;
  BpeBuilder builder(std::move(options));
  if (auto read = read_vocab_json(folder + "/vocab.json", builder); !read) return read.error();
  if (auto read = read_merges_txt(folder + "/merges.txt", is_gpt2, builder); !read) {
    return read.error();
  }
  TokenizerParts parts;
  parts.model = builder.take();
  parts.byte_level = true;
  if (!is_gpt2) {
    NormalizerStep step;
    step.kind = NormalizerStep::Kind::kForm;
    step.form = std::make_shared<const UnicodeFormer>(UnicodeForm::kNfc);
    parts.normalizer = Normalizer({std::move(step)});
  }
  auto steps = pre_tokenizer_steps(is_gpt2, config);
  if (!steps) return steps.error();
  parts.pre_tokenizer = PreTokenizer(std::move(*steps));
  return parts;
}

}  // namespace lmtp::tokenizer
