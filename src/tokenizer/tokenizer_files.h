// Reads the tokenizer files of a Hugging Face folder into a ByteBpeModel.
#pragma once

#include <string>

#include "byte_bpe.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

// What this version can read, for error messages.
inline constexpr const char* kSupportedKinds =
    "supported: byte-level BPE (GPT-2 style) as tokenizer.json, or as vocab.json and merges.txt";

// Each gives all but bos and eos.
Result<ByteBpeModel> read_tokenizer_json(const std::string& folder);
Result<ByteBpeModel> read_vocab_and_merges(const std::string& folder);

// Sets bos and eos from tokenizer_config.json, special_tokens_map.json or config.json; the first
// that names one decides. Missing files are no error, broken ones are.
Result<void> read_special_ids(const std::string& folder, ByteBpeModel& model);

}  // namespace lmtp::tokenizer
