// What a model's folder says of embeddings: docs/http.md. The files are sentence-transformers'.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lmtp/base/ids.h"
#include "lmtp/base/pooling.h"
#include "lmtp/base/result.h"

namespace lmtp::text {

// A model that says whether a document answers a query, by its next token: Qwen3-Reranker.
struct JudgeTokens {
  TokenId yes = -1;  // -1: the token of "yes", as that of "no"
  TokenId no = -1;
};

// Immutable once read; any thread.
struct EmbeddingConfig {
  Pooling pooling = Pooling::kLast;
  bool normalizes = true;   // to length 1
  bool is_trained = false;  // false: no file says anything, and these are the defaults
  int max_tokens = 0;       // of an input; 0: what the model takes
  std::map<std::string, std::string> prompts = {};  // in front of a text, by name
  std::string default_prompt = {};                  // the name of one; empty: none
  std::optional<JudgeTokens> judge = {};            // how it ranks, if not by embeddings
};

// A model's, or why it makes no embeddings.
using LoadedEmbeddings = Result<std::shared_ptr<const EmbeddingConfig>>;

// What the folder's modules.json and the files that it names say; the defaults where there is none,
// as for a GGUF file. A folder whose name has "Qwen3-Reranker" in it is of such a model. The error
// names the file and what is not supported there.
LoadedEmbeddings read_embedding_config(const std::string& folder);

// The defaults.
std::shared_ptr<const EmbeddingConfig> default_embeddings();

}  // namespace lmtp::text
