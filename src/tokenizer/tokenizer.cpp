#include "lmtp/tokenizer/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "folder_config.h"
#include "json_file.h"
#include "json_parts.h"
#include "lmtp/base/model_source.h"
#include "pipeline.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space

// Classes for which tokenizer_config.json, not tokenizer.json, decides about BOS.
struct BosRule {
  std::string_view tokenizer_class;
  bool by_default;
};
constexpr BosRule kBosRules[] = {
    {"LlamaTokenizer", true}, {"GemmaTokenizer", true}, {"GPTNeoXTokenizer", false}};

// tiktoken.model or NAME.tiktoken; empty where neither is there.
std::string find_tiktoken(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool fits = name == "tiktoken.model" || name.ends_with(".tiktoken");
    if (fits && (found.empty() || entry.path() < found)) found = entry.path();
  }
  return found;
}

Result<TokenizerParts> read_parts(const std::string& folder, const FolderConfig& config,
                                  PlainSpecials& plain) {
  const std::string json = folder + "/tokenizer.json";
  const std::string sentencepiece = folder + "/tokenizer.model";
  const bool has_json = file_exists(json);
  const bool has_sentencepiece = file_exists(sentencepiece);
  const bool is_llama = config.tokenizer_class == "LlamaTokenizer";
  // If add_prefix_space is set, transformers 4 converts Llama's tokenizer again from the slow one.
  const bool anew = is_llama && config.add_prefix_space && has_sentencepiece && !config.from_v5;
  if (has_json && !anew) {
    auto parts = read_tokenizer_json(json, config);
    if (parts && is_llama && config.from_v5 && !parts->byte_level) {
      remake_llama_parts(config, *parts);
    }
    return parts;
  }
  plain.as_tokens = true;
  if (has_sentencepiece) return read_sentencepiece(sentencepiece, config);
  if (file_exists(folder + "/vocab.json") && file_exists(folder + "/merges.txt")) {
    plain.normalized = config.tokenizer_class == "GPT2Tokenizer";
    return read_vocab_and_merges(folder, config);
  }
  if (file_exists(folder + "/tekken.json")) return read_tekken(folder + "/tekken.json");
  if (const std::string path = find_tiktoken(folder); !path.empty()) {
    return read_tiktoken(path, config);
  }
  return unsupported(folder +
                     ": neither tokenizer.json nor tokenizer.model nor vocab.json with merges.txt "
                     "nor tekken.json nor a file of tiktoken's is there");
}

void apply_bos_rule(const FolderConfig& config, bool from_vocab_files, TokenizerParts& parts) {
  const auto set = [&](bool adds) {
    parts.prefix.clear();
    parts.suffix.clear();
    if (adds && parts.bos_id >= 0) parts.prefix.push_back(parts.bos_id);
    if (config.add_eos.value_or(false) && parts.eos_id >= 0) parts.suffix = {parts.eos_id};
  };
  if (config.from_v5) {  // the post-processor decides, unless the files set add_bos or add_eos
    if (config.add_bos || config.add_eos) set(config.add_bos.value_or(false));
    return;
  }
  for (const BosRule& rule : kBosRules) {
    if (rule.tokenizer_class != config.tokenizer_class) continue;
    set(config.add_bos.value_or(rule.by_default));
  }
  if (from_vocab_files && !parts.from_ranks && config.tokenizer_class == "GPT2Tokenizer") {
    set(config.add_bos.value_or(false));
  }
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts) {
  // Without a pre-tokenizer a text would be one word, too long for the cache.
  if (!parts.byte_level && parts.model->never_crosses(kSpaceMark)) {
    parts.pre_tokenizer.split_at_marks(kSpaceMark);
  }
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace

Result<std::map<std::string, std::string>> named_special_tokens(const std::string& folder) {
  if (is_gguf(folder)) return gguf_special_tokens(folder);
  const auto config = read_folder_config(folder);
  if (!config) return config.error();
  std::map<std::string, std::string> named;
  for (const SpecialToken& special : config->specials) {
    if (special.role.ends_with("_token")) named.try_emplace(special.role, special.token.content);
  }
  return named;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder) {
  std::error_code error;
  if (is_gguf(folder)) {
    auto parts = read_gguf_tokenizer(folder);
    if (!parts) return parts.error();
    return make_tokenizer(std::move(*parts));
  }
  if (!std::filesystem::is_directory(folder, error)) {
    return Error{ErrorCode::kNotFound, folder + ": not a folder"};
  }
  auto config = read_folder_config(folder);
  if (!config) return config.error();
  PlainSpecials plain;
  auto parts = read_parts(folder, *config, plain);
  if (!parts) return parts.error();
  if (parts->from_ranks) {  // Llama 3 has no <s>, although its class has this default
    std::erase_if(config->specials, [&](const SpecialToken& special) {
      return special.by_class && parts->added.find(special.token.content, *parts->model) < 0;
    });
  }
  apply_folder_config(*config, plain, *parts);
  apply_bos_rule(*config, plain.as_tokens, *parts);
  return make_tokenizer(std::move(*parts));
}

}  // namespace lmtp::tokenizer
