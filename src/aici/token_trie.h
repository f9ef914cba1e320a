// The vocabulary as controllers read it: the bytes of a trie in the layout of AICI's toktrie.
#pragma once

#include <string>

#include "lmtp/base/ids.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::aici {

// Ids beyond the tokenizer, special tokens and tokens of more than 254 bytes have no bytes. Of
// tokens with the same bytes the trie has the lowest.
std::string make_token_trie(const tokenizer::Tokenizer& tokenizer, int vocab_size, TokenId eos_id);

}  // namespace lmtp::aici
