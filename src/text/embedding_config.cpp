#include "lmtp/text/embedding_config.h"

namespace lmtp::text {

std::shared_ptr<const EmbeddingConfig> default_embeddings() {
  static const auto kDefaults = std::make_shared<const EmbeddingConfig>();
  return kDefaults;
}

}  // namespace lmtp::text
