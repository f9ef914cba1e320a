// Prompts whose answer is to be filled in between two texts.
#pragma once

#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/model_factory.h"

namespace lmtp::server {

// In the form that models with fill-in-the-middle tokens were trained on, by the tokens that the
// tokenizer has: Qwen's and CodeGemma's, StarCoder's, DeepSeek's, GLM's, or Codestral's. The error,
// about "suffix", is of a model that has none of these. Any thread; a long text takes long.
Result<std::vector<TokenId>> encode_fill_in(const registry::LoadedTokenizer& loaded,
                                            const std::string& before, const std::string& after,
                                            bool adds_bos);

}  // namespace lmtp::server
