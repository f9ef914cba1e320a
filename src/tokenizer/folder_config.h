// What the files beside a tokenizer say of it: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, config.json. Read as transformers 4.57 reads them, or, where transformers 5
// wrote them, as that does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "pipeline.h"

namespace lmtp::tokenizer {

// A special token by its role (bos_token, ...), as text or with flags of its own.
struct SpecialToken {
  std::string role;
  AddedToken token;
  bool has_flags = false;
  bool by_class = false;  // no file names it
};

struct FolderConfig {
  bool present = false;  // whether transformers would know which class to load
  // GPT2Tokenizer, LlamaTokenizer, ...: without "Fast" at the end; empty where no file says it.
  std::string tokenizer_class;
  // transformers 5 wrote tokenizer_config.json, which reads its own folders by other rules.
  bool from_v5 = false;
  std::optional<bool> add_bos;
  bool has_add_eos = false;  // whether the files say anything of EOS behind a text
  std::optional<bool> add_prefix_space;
  bool add_prefix_space_is_null = false;  // as opposed to missing
  std::optional<bool> legacy;
  std::vector<AddedToken> added;  // by id
  // Those of `added` are not all that there is: tokenizer.json's come besides.
  bool added_is_old_style = false;
  std::vector<SpecialToken> specials;
  // config.json gives ids instead of texts.
  TokenId config_bos_id = -1;
  TokenId config_eos_id = -1;
};

// Missing files are no error, broken ones are.
Result<FolderConfig> read_folder_config(const std::string& folder);

// The text of a role (bos_token, ...); empty where there is none.
std::string_view special_content(const FolderConfig& config, std::string_view role);

// How transformers reads special tokens that are named by their text alone.
struct PlainSpecials {
  // As tokens with these flags, where it makes the tokenizer from files of old; else only those
  // that the tokenizer does not know yet are added.
  bool as_tokens = false;
  bool normalized = false;
};

// Adds what the files beside it name to the tokenizer's tokens, and finds bos and eos: those that
// are named, else those of config.json, else BOS is what the tokenizer puts in front of a text.
void apply_folder_config(const FolderConfig& config, PlainSpecials plain, TokenizerParts& parts);

}  // namespace lmtp::tokenizer
