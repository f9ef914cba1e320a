// A tokenizer of files that a test spells.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"
#include "support/temp_folder.h"

namespace lmtp::testing {

using Files = std::vector<std::pair<const char*, std::string>>;  // names and texts

// Null, and a failure, where they are refused.
inline std::unique_ptr<tokenizer::Tokenizer> load_files(const Files& files) {
  const TempFolder folder;
  for (const auto& [name, text] : files) folder.write(name, text);
  auto loaded = tokenizer::load_tokenizer(folder.path());
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  return std::move(*loaded);
}

}  // namespace lmtp::testing
