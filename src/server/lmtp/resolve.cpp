#include "resolve.h"

#include <algorithm>
#include <utility>

#include "candidates.h"
#include "decide_rows.h"
#include "generation/encode_text.h"
#include "lmtp/request/error_text.h"
#include "parsed_reply.h"

namespace lmtp::server {
namespace {

using protocol::BufferPart;
using protocol::PromptPart;

Encoded one_prompt(std::vector<TokenId> tokens) {
  Encoded encoded;
  encoded.prompts.push_back(std::move(tokens));
  return encoded;
}

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

// The parts' tokens, one after the other.
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
Result<Encoded> resolve_prompt(Message& message, const WaitingOperation& waiting,
                               const registry::ReadyModel& model) {
  if (message.options.prompt_parts.empty()) return one_prompt(std::move(message.prompt));
  auto prompt = join_parts(message.options, waiting, model);
  if (!prompt) return prompt.error();
  return one_prompt(std::move(*prompt));
}

Result<Encoded> resolve_text(const std::string& text, TextPlace place,
                             const registry::ReadyModel& model) {
  auto tokens = encode_text(model.tokenizer, "text", text, place);
  if (!tokens) return tokens.error();
  return one_prompt(std::move(*tokens));
}

// text: where the prompt's goes; null: nowhere.
Result<Encoded> resolve_chat(const Chat& chat, const registry::ReadyModel& model,
                             std::string* text = nullptr) {
  if (!model.chat_template) return with_field_name("messages", model.chat_template.error());
  const text::ChatTemplate& chat_template = **model.chat_template;
  auto rendered = chat_template.render(chat);
  if (!rendered) return with_field_name("messages", rendered.error());
  auto prompt = chat_template.encode(*rendered);
  if (!prompt) return with_field_name("messages", prompt.error());
  if (text != nullptr) *text = std::move(rendered->text);
  return one_prompt(std::move(*prompt));
}

Result<Encoded> resolve_parsed(protocol::GenerateMessage& message, WaitingOperation& waiting,
                               const registry::ReadyModel& model) {
  const auto wishes = read_wishes(message, waiting.schema_reading);
  if (!wishes) return wishes.error();
  std::string rendered;
  Result<Encoded> resolved = resolve_chat(*message.chat, model, &rendered);
  if (!resolved) return resolved;
  auto planned = plan_reply(model, rendered, *wishes);
  if (!planned) return planned.error();
  ReplyPlan& plan = waiting.plan;
  plan = *std::move(planned);
  resolved->grammar = std::exchange(plan.grammar, std::nullopt);
  resolved->retry = std::move(plan.retry);
  if (wishes->tools && !wishes->grammar) {
    resolved->grammar_field = wishes->tools->is_forced() ? "tool_choice" : "tools";
  }
  if (!message.controller.empty()) {  // which decides on the tokens
    plan.counts_min_tokens = false;
    resolved->grammar.reset();
    resolved->retry.reset();
  }
  return resolved;
}

Result<Encoded> resolve_message(protocol::GenerateMessage& message, WaitingOperation& waiting,
                                const registry::ReadyModel& model) {
  if (!message.chat) return resolve_prompt(message, waiting, model);
  Result<Encoded> resolved = message.reading ? resolve_parsed(message, waiting, model)
                                             : resolve_chat(*message.chat, model);
  if (!resolved) return resolved;
  std::vector<TokenId>& tokens = resolved->prompts.front();
  tokens.insert(tokens.end(), message.prompt.begin(), message.prompt.end());
  return resolved;
}

Result<Encoded> resolve_message(protocol::ScoreMessage& message, const WaitingOperation& waiting,
                                const registry::ReadyModel& model) {
  Result<Encoded> resolved = resolve_prompt(message, waiting, model);
  if (!resolved) return resolved;
  if (!message.candidates.empty()) {
    auto rows = candidate_rows(message, std::move(resolved->prompts.front()), model);
    if (!rows) return rows.error();
    resolved->rows = std::move(*rows);
    return resolved;
  }
  resolved->scored = std::move(message.scored);
  if (message.scored_text.empty()) return resolved;
  const bool begins = resolved->prompts.front().empty();
  auto scored =
      encode_text(model.tokenizer, "scored", message.scored_text,
                  {.begins = begins, .adds_bos = begins && message.options.add_special_tokens});
  if (!scored) return scored.error();
  resolved->scored = std::move(*scored);
  return resolved;
}

Result<Encoded> resolve_message(const protocol::DecideMessage& message,
                                const registry::ReadyModel& model,
                                std::size_t /*max_answer_bytes*/) {
  auto rows = decide_rows(message, model);
  if (!rows) return rows.error();
  Encoded encoded;
  encoded.rows = std::move(*rows);
  return encoded;
}

Result<Encoded> resolve_message(protocol::TokenizeMessage& message,
                                const registry::ReadyModel& model, std::size_t max_answer_bytes) {
  const TextPlace place{.begins = true, .adds_bos = message.add_special_tokens};
  auto resolved =
      message.chat ? resolve_chat(*message.chat, model) : resolve_text(message.text, place, model);
  // A token takes two bytes at least.
  if (resolved && resolved->prompts.front().size() > max_answer_bytes / 2) {
    return too_much("text", max_answer_bytes);
  }
  return resolved;
}

Result<Encoded> resolve_message(protocol::DetokenizeMessage& message,
                                const registry::ReadyModel& model, std::size_t max_answer_bytes) {
  if (!model.tokenizer) {
    return Error{ErrorCode::kInvalid, "tokens: this model has no tokenizer here (" +
                                          model.tokenizer.error().message +
                                          "), and nothing else is allowed"};
  }
  const tokenizer::Tokenizer& tokenizer = **model.tokenizer;
  const int vocab_size = model.limits.vocab_size;
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < message.tokens.size(); ++i) {
    const TokenId token = message.tokens[i];
    if (token < 0 || token >= vocab_size) {
      return Error{ErrorCode::kInvalid,
                   "tokens[" + std::to_string(i) + "]: " + beyond_vocabulary(token, vocab_size)};
    }
    num_bytes += tokenizer.token_bytes(token).size();
    if (num_bytes > max_answer_bytes) return too_much("tokens", max_answer_bytes);
  }
  if (message.skip_special_tokens) {
    std::erase_if(message.tokens, [&](TokenId token) { return tokenizer.is_special(token); });
  }
  return Encoded{.text = tokenizer.decode(message.tokens)};
}

Result<Encoded> resolve_message(protocol::BufferMessage& message, const WaitingOperation& waiting,
                                const registry::ReadyModel& model) {
  const auto* text = std::get_if<std::string>(&message.content);
  if (text == nullptr) {
    return one_prompt(std::move(std::get<std::vector<TokenId>>(message.content)));
  }
  const bool begins = waiting.begins_buffer;
  return resolve_text(
      *text, {.begins = begins, .adds_bos = message.add_special_tokens.value_or(begins)}, model);
}

}  // namespace

Error too_much(std::string_view field, std::size_t max_answer_bytes) {
  return {ErrorCode::kInvalid, std::string(field) + ": the answer would have more than " +
                                   std::to_string(max_answer_bytes) +
                                   " bytes, which is half of --max-write-queue; send it in parts"};
}

Error unknown_buffer(const std::string& name) {
  return {ErrorCode::kInvalid,
          "buffer: '" + name +
              "' is unknown; allowed is one that BUFFER or into has made on this connection"};
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

Result<Encoded> resolve(WaitingOperation& waiting, const registry::ReadyModel& model,
                        std::size_t max_answer_bytes) {
  return std::visit(
      [&](auto& message) {
        if constexpr (requires { resolve_message(message, model, max_answer_bytes); }) {
          return resolve_message(message, model, max_answer_bytes);
        } else {
          return resolve_message(message, waiting, model);
        }
      },
      waiting.operation);
}

bool renders_chat(const Operation& operation) {
  if (std::holds_alternative<protocol::DecideMessage>(operation)) return true;
  return std::visit(
      [](const auto& message) {
        if constexpr (requires { message.chat; }) return message.chat.has_value();
        return false;
      },
      operation);
}

std::size_t num_coded_bytes(const Operation& operation) {
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
        if constexpr (requires { message.scored_text; }) {
          num_bytes += message.scored_text.size();
          for (const protocol::Candidate& one : message.candidates) {
            num_bytes += std::visit([](const auto& of) { return of.size() * sizeof(of[0]); }, one);
          }
        }
        if constexpr (requires { message.text; }) num_bytes += message.text.size();
        if constexpr (requires { message.tokens; }) {
          num_bytes += message.tokens.size() * sizeof(TokenId);
        }
        if constexpr (requires { message.content; }) {
          const auto* text = std::get_if<std::string>(&message.content);
          if (text != nullptr) num_bytes += text->size();
        }
        return num_bytes;
      },
      operation);
}

}  // namespace lmtp::server
