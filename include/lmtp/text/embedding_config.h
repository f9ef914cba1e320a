// What a model's folder says of embeddings: docs/http.md. The files are sentence-transformers'.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lmtp/base/pooling.h"
#include "lmtp/base/result.h"

namespace lmtp::text {

// Immutable once read; any thread.
struct EmbeddingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalizes = true;   // to length 1
  bool is_trained = false;  // false: no file says anything, and these are the defaults
  std::map<std::string, std::string> prompts = {};  // in front of a text, by name
  std::string default_prompt = {};                  // the name of one; empty: none
};

// A model's, or why it makes no embeddings.
using LoadedEmbeddings = Result<std::shared_ptr<const EmbeddingConfig>>;

// The defaults.
std::shared_ptr<const EmbeddingConfig> default_embeddings();

}  // namespace lmtp::text
