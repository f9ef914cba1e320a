#include "lmtp/registry/loaded_texts.h"

#include <algorithm>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/text/answer_end.h"
#include "lmtp/text/find_reply_layout.h"

namespace lmtp::registry {
namespace {

LoadedTokenizer load_tokenizer(const ServedModel& served) {
  if (!served.load_tokenizer) return Error{ErrorCode::kNotFound, "it has none"};
  return guarded([&] { return served.load_tokenizer(); });
}

text::LoadedChatTemplate load_chat_template(const ServedModel& served,
                                            const LoadedTokenizer& tokenizer) {
  if (!tokenizer) {
    return Error{ErrorCode::kNotFound,
                 "this model has no tokenizer here (" + tokenizer.error().message + ")"};
  }
  if (!served.load_chat_template) {
    return Error{ErrorCode::kNotFound, "this model has no chat template"};
  }
  return guarded([&] { return served.load_chat_template(*tokenizer); });
}

std::optional<std::string> vocabulary_note(const tokenizer::Tokenizer& tokenizer, int vocab_size) {
  if (tokenizer.vocab_size() <= vocab_size) return std::nullopt;
  return "the tokenizer has " + std::to_string(tokenizer.vocab_size()) +
         " ids, the model's vocabulary " + std::to_string(vocab_size) + ": those from " +
         std::to_string(vocab_size) +
         " on are never generated, and a prompt that has one of them is refused";
}

}  // namespace

LoadedTexts load_texts(const ServedModel& served, constraint::CompilerOptions options) {
  LoadedTexts texts;
  texts.tokenizer = load_tokenizer(served);
  texts.chat_template = load_chat_template(served, texts.tokenizer);
  if (!texts.chat_template && texts.chat_template.error().code != ErrorCode::kNotFound) {
    log::warning(quoted_name(served.description.name) +
                 " answers no chats: " + texts.chat_template.error().message);
  }
  texts.reply_layout = std::make_shared<const text::ReplyLayout>(
      text::find_reply_layout(texts.chat_template, served.tool_call_format));
  if (texts.tokenizer && served.load_decisions) {
    texts.decisions = guarded([&] { return served.load_decisions(*texts.tokenizer); });
    if (!texts.decisions) {
      log::warning(quoted_name(served.description.name) +
                   " answers no decisions: " + texts.decisions.error().message);
    }
  }
  if (served.load_embeddings) {
    texts.embeddings = guarded([&] { return served.load_embeddings(); });
    if (!texts.embeddings) {
      log::warning(quoted_name(served.description.name) +
                   " gives no embeddings: " + texts.embeddings.error().message);
    }
  }
  if (texts.tokenizer) {
    const engine::ModelLimits& limits = served.limits;
    texts.answer_end_ids = text::answer_end_ids(**texts.tokenizer, texts.chat_template);
    std::erase_if(texts.answer_end_ids, [&](TokenId id) {
      return id >= limits.vocab_size ||
             std::ranges::find(limits.eos_ids, id) != limits.eos_ids.end();
    });
    texts.note = vocabulary_note(**texts.tokenizer, served.limits.vocab_size);
    if (texts.note) log::warning(served.description.name + ": " + *texts.note);
    texts.grammars = std::make_shared<constraint::GrammarCompiler>(
        *texts.tokenizer, served.limits.vocab_size, served.limits.eos_ids, options);
    if (served.load_controllers) {
      texts.controllers = guarded([&] { return served.load_controllers(*texts.tokenizer); });
      if (!texts.controllers) {
        log::warning(quoted_name(served.description.name) +
                     " runs no controllers: " + texts.controllers.error().message);
      }
    }
  }
  return texts;
}

}  // namespace lmtp::registry
