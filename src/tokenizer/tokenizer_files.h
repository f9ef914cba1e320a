// Each reads one form of tokenizer files into parts, all but the tokens that other files add.
#pragma once

#include <string>
#include <string_view>

#include "folder_config.h"
#include "lmtp/base/result.h"
#include "pipeline.h"

namespace lmtp::tokenizer {

// tokenizer.json, what Hugging Face `tokenizers` writes.
Result<TokenizerParts> read_tokenizer_json(const std::string& path, const FolderConfig& config);

// vocab.json and merges.txt, in GPT-2's or Qwen2's way.
Result<TokenizerParts> read_vocab_and_merges(const std::string& folder, const FolderConfig& config);

// tokenizer.model, made into what transformers makes of it for Llama or Gemma.
Result<TokenizerParts> read_sentencepiece(const std::string& path, const FolderConfig& config);

// tekken.json, Mistral's; made into what transformers 5 makes of it, with BOS in front of a text as
// mistral-common puts it there.
Result<TokenizerParts> read_tekken(const std::string& path);

// tiktoken's lines of tokens and ranks, as transformers reads them: the pattern is always that of
// Llama 3, special tokens are those of tokenizer_config.json.
Result<TokenizerParts> read_tiktoken(const std::string& path, const FolderConfig& config);
bool looks_like_tiktoken(std::string_view text);

// transformers 5 takes of the tokenizer.json of Llama's class no more than model, tokens and
// post-processor: normalizer, pre-tokenizer and decoder are the class's own.
void remake_llama_parts(const FolderConfig& config, TokenizerParts& parts);

}  // namespace lmtp::tokenizer
