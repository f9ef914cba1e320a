// Readers of the formats of tokenizer files. Tokens that configuration files add are not included.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "folder_config.h"
#include "lmtp/base/result.h"
#include "pipeline.h"
#include "sentencepiece_file.h"

namespace lmtp::tokenizer {

// tokenizer.json, what Hugging Face `tokenizers` writes.
Result<TokenizerParts> read_tokenizer_json(const std::string& path, const FolderConfig& config);

// vocab.json and merges.txt, of GPT-2's or Qwen2's class.
Result<TokenizerParts> read_vocab_and_merges(const std::string& folder, const FolderConfig& config);

// tokenizer.model, converted as by transformers for Llama or Gemma.
Result<TokenizerParts> read_sentencepiece(const std::string& path, const FolderConfig& config);

// The same of the file's content. `config` is of the class of Llama or of Gemma.
Result<TokenizerParts> make_sentencepiece_parts(const SentencePieceFile& file,
                                                const FolderConfig& config);

// tekken.json, Mistral's; converted as by transformers 5, with BOS in front of a text as in
// mistral-common.
Result<TokenizerParts> read_tekken(const std::string& path);

// tiktoken's lines of tokens and ranks, as transformers reads them: the pattern is always that of
// Llama 3, special tokens are those of tokenizer_config.json.
Result<TokenizerParts> read_tiktoken(const std::string& path, const FolderConfig& config);
bool looks_like_tiktoken(std::string_view text);

// For the class of Llama, transformers 5 uses only the model, tokens and post-processor of
// tokenizer.json: normalizer, pre-tokenizer and decoder are the class's own, set here.
void remake_llama_parts(const FolderConfig& config, TokenizerParts& parts);

// What a GGUF file's metadata describe, BOS and EOS included. The reference for ids is llama.cpp.
Result<TokenizerParts> read_gguf_tokenizer(const std::string& path);

// By role: bos_token, eos_token, unk_token, pad_token.
Result<std::map<std::string, std::string>> gguf_special_tokens(const std::string& path);

}  // namespace lmtp::tokenizer
