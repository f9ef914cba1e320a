// The configuration files beside a tokenizer: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, config.json. Read as by transformers 4.57, or, if transformers 5 wrote them,
// as by that.
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

// A special token and its role (bos_token, ...), given as text or with flags.
struct SpecialToken {
  std::string role;
  AddedToken token;
  bool has_flags = false;
  bool by_class = false;  // default of the tokenizer's class; no file names it
};

struct FolderConfig {
  bool present = false;  // whether transformers could determine the class
  // GPT2Tokenizer, LlamaTokenizer, ...: without "Fast" at the end; empty if no file says it.
  std::string tokenizer_class;
  // transformers 5 wrote tokenizer_config.json: its rules apply instead of those of 4.57.
  bool from_v5 = false;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_prefix_space;
  bool add_prefix_space_is_null = false;  // as opposed to missing
  std::optional<bool> legacy;
  std::vector<AddedToken> added;  // by id
  // `added` comes from the files of old versions: tokenizer.json has further added tokens.
  bool added_is_old_style = false;
  std::vector<SpecialToken> specials;
  // config.json gives ids instead of texts.
  TokenId config_bos_id = -1;
  TokenId config_eos_id = -1;
};

// Missing files are no error, broken ones are.
Result<FolderConfig> read_folder_config(const std::string& folder);

// The text of a role (bos_token, ...); empty if there is none.
std::string_view special_content(const FolderConfig& config, std::string_view role);

// How transformers treats special tokens that are given as text without flags.
struct PlainSpecials {
  // True: adds all as tokens with these flags (if it converts the tokenizer from a slow one's
  // files). False: adds only those that the tokenizer does not know yet.
  bool as_tokens = false;
  bool normalized = false;
};

// Adds the tokens of the configuration files to the tokenizer's, and finds BOS and EOS: by role,
// else by config.json's ids; else BOS is the token that the tokenizer puts in front of a text.
void apply_folder_config(const FolderConfig& config, PlainSpecials plain, TokenizerParts& parts);

}  // namespace lmtp::tokenizer
