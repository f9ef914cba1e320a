#include "resolve.h"

#include <algorithm>
#include <utility>

namespace lmtp::server {
namespace {

using protocol::BufferPart;
using protocol::PromptPart;

// Of ids and buffers; the text is not known yet.
std::size_t num_known_tokens(const std::vector<PromptPart>& parts,
                             const WaitingOperation& waiting) {
  std::size_t num_tokens = 0;
  std::size_t buffer = 0;
  for (const PromptPart& part : parts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&part)) {
      num_tokens += ids->size();
    } else if (const auto* named = std::get_if<BufferPart>(&part)) {
      num_tokens += named->upto.value_or(waiting.buffers[buffer]->size());
      ++buffer;
    }
  }
  return num_tokens;
}

struct TextPlace {
  bool begins = true;    // nothing comes before it
  bool adds_bos = true;  // as transformers' add_special_tokens
};

Result<std::vector<TokenId>> encode_text(const registry::LoadedTokenizer& loaded,
                                         std::string_view field, std::string_view text,
                                         TextPlace place) {
  if (!loaded) {
    return Error{ErrorCode::kInvalid, std::string(field) +
                                          ": is text, and this model has no tokenizer here (" +
                                          loaded.error().message + "); send token ids"};
  }
  const tokenizer::Tokenizer& tokenizer = **loaded;
  auto ids = place.begins ? tokenizer.encode(text) : tokenizer.encode_continuation(text);
  if (!ids) return Error{ErrorCode::kInvalid, std::string(field) + ": " + ids.error().message};
  if (place.adds_bos && tokenizer.adds_bos()) ids->insert(ids->begin(), tokenizer.bos_id());
  return ids;
}

// The parts' tokens, one behind the other.
Result<std::vector<TokenId>> join_parts(const protocol::StreamOptions& options,
                                        const WaitingOperation& waiting,
                                        const registry::ReadyModel& model) {
  const std::vector<PromptPart>& parts = options.prompt_parts;
  const auto max_tokens = static_cast<std::size_t>(model.limits.context_length);
  const std::size_t num_known = num_known_tokens(parts, waiting);
  if (num_known > max_tokens) {
    return Error{ErrorCode::kTooLong, "prompt: has " + std::to_string(num_known) +
                                          " tokens, allowed are at most " +
                                          std::to_string(max_tokens) + " (the context)"};
  }
  std::vector<TokenId> prompt;
  prompt.reserve(num_known);
  std::size_t buffer = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&parts[i])) {
      const auto encoded =
          encode_text(model.tokenizer, "prompt", *text,
                      {.begins = i == 0, .adds_bos = i == 0 && options.add_special_tokens});
      if (!encoded) return encoded.error();
      prompt.insert(prompt.end(), encoded->begin(), encoded->end());
    } else if (const auto* part = std::get_if<std::vector<TokenId>>(&parts[i])) {
      prompt.insert(prompt.end(), part->begin(), part->end());
    } else {
      const Buffers::Tokens& held = *waiting.buffers[buffer++];
      const std::size_t upto = std::get<BufferPart>(parts[i]).upto.value_or(held.size());
      prompt.insert(prompt.end(), held.begin(), held.begin() + static_cast<std::ptrdiff_t>(upto));
    }
  }
  return prompt;
}

template <typename Message>
Result<Resolved> resolve_prompt(Message& message, const WaitingOperation& waiting,
                                const registry::ReadyModel& model) {
  if (message.options.prompt_parts.empty()) return Resolved{std::move(message.prompt), {}};
  auto prompt = join_parts(message.options, waiting, model);
  if (!prompt) return prompt.error();
  return Resolved{std::move(*prompt), {}};
}

Result<Resolved> resolve_text(const std::string& text, TextPlace place,
                              const registry::ReadyModel& model) {
  auto tokens = encode_text(model.tokenizer, "text", text, place);
  if (!tokens) return tokens.error();
  return Resolved{std::move(*tokens), {}};
}

Result<Resolved> resolve_message(protocol::GenerateMessage& message,
                                 const WaitingOperation& waiting,
                                 const registry::ReadyModel& model) {
  return resolve_prompt(message, waiting, model);
}

Result<Resolved> resolve_message(protocol::ScoreMessage& message, const WaitingOperation& waiting,
                                 const registry::ReadyModel& model) {
  Result<Resolved> resolved = resolve_prompt(message, waiting, model);
  if (!resolved) return resolved;
  resolved->scored = std::move(message.scored);
  if (message.scored_text.empty()) return resolved;
  const bool begins = resolved->tokens.empty();
  auto scored =
      encode_text(model.tokenizer, "scored", message.scored_text,
                  {.begins = begins, .adds_bos = begins && message.options.add_special_tokens});
  if (!scored) return scored.error();
  resolved->scored = std::move(*scored);
  return resolved;
}

Result<Resolved> resolve_message(protocol::TokenizeMessage& message, const WaitingOperation&,
                                 const registry::ReadyModel& model) {
  return resolve_text(message.text, {.begins = true, .adds_bos = message.add_special_tokens},
                      model);
}

Result<Resolved> resolve_message(protocol::DetokenizeMessage&, const WaitingOperation&,
                                 const registry::ReadyModel&) {
  return Resolved{};
}

Result<Resolved> resolve_message(protocol::BufferMessage& message, const WaitingOperation& waiting,
                                 const registry::ReadyModel& model) {
  const auto* text = std::get_if<std::string>(&message.content);
  if (text == nullptr) {
    return Resolved{std::move(std::get<std::vector<TokenId>>(message.content)), {}};
  }
  const bool begins = waiting.begins_buffer;
  return resolve_text(
      *text, {.begins = begins, .adds_bos = message.add_special_tokens.value_or(begins)}, model);
}

}  // namespace

Error unknown_buffer(const std::string& name) {
  return {ErrorCode::kInvalid,
          "buffer: '" + name +
              "' is unknown; allowed is one that BUFFER or into has made on this connection"};
}

Error no_tokenizer(std::string_view option, const Error& reason) {
  return {ErrorCode::kInvalid, std::string(option) +
                                   ": needs a tokenizer, and this model has none here (" +
                                   reason.message + "); leave it out"};
}

Result<void> hold_buffers(const std::vector<PromptPart>& parts, const Buffers& buffers,
                          WaitingOperation& waiting) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto* part = std::get_if<BufferPart>(&parts[i]);
    if (part == nullptr) continue;
    auto held = buffers.find(part->name);
    if (held == nullptr) return unknown_buffer(part->name);
    if (part->upto && *part->upto > held->size()) {
      return Error{ErrorCode::kInvalid, "prompt[" + std::to_string(i) + "]: upto is " +
                                            std::to_string(*part->upto) + ", allowed are 0 to " +
                                            std::to_string(held->size()) + ", the tokens of '" +
                                            part->name + "'"};
    }
    waiting.buffers.push_back(std::move(held));
  }
  return {};
}

bool has_text(const std::vector<PromptPart>& parts) {
  return std::ranges::any_of(
      parts, [](const PromptPart& part) { return std::holds_alternative<std::string>(part); });
}

Result<Resolved> resolve(WaitingOperation& waiting, const registry::ReadyModel& model) {
  return std::visit([&](auto& message) { return resolve_message(message, waiting, model); },
                    waiting.operation);
}

std::size_t num_text_bytes(const Operation& operation) {
  const auto of_parts = [](const std::vector<PromptPart>& parts) {
    std::size_t num_bytes = 0;
    for (const PromptPart& part : parts) {
      if (const auto* text = std::get_if<std::string>(&part)) num_bytes += text->size();
    }
    return num_bytes;
  };
  return std::visit(
      [&](const auto& message) -> std::size_t {
        std::size_t num_bytes = 0;
        if constexpr (requires { message.options; }) {
          num_bytes += of_parts(message.options.prompt_parts);
        }
        if constexpr (requires { message.scored_text; }) num_bytes += message.scored_text.size();
        if constexpr (requires { message.text; }) num_bytes += message.text.size();
        if constexpr (requires { message.content; }) {
          const auto* text = std::get_if<std::string>(&message.content);
          if (text != nullptr) num_bytes += text->size();
        }
        return num_bytes;
      },
      operation);
}

}  // namespace lmtp::server
