// What a model's requests with text need, without its weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/registry/model_factory.h"
#include "lmtp/registry/models.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::registry {

struct LoadedTexts {
  LoadedTokenizer tokenizer = Error{ErrorCode::kUnavailable, "no memory"};
  text::LoadedChatTemplate chat_template = Error{ErrorCode::kUnavailable, "no memory"};
  std::shared_ptr<const text::ReplyLayout> reply_layout = text::no_reply_layout();  // never null
  text::LoadedDecisions decisions = text::default_decisions();
  text::LoadedEmbeddings embeddings = text::default_embeddings();
  std::shared_ptr<constraint::GrammarCompiler> grammars;  // null: no tokenizer
  LoadedControllers controllers = kNoControllers;
  std::vector<TokenId> answer_end_ids;  // as ReadyModel has them
  std::optional<std::string> note;      // what a user should know of a tokenizer with too many ids
};

// Reads them; what cannot be read is an error in its place. Seconds; any thread.
LoadedTexts load_texts(const ServedModel& served, constraint::CompilerOptions options = {});

}  // namespace lmtp::registry
