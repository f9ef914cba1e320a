#include "lmtp/text/answer_end.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace lmtp::text {
namespace {

constexpr std::string_view kAnswer = "LMTP-ANSWER";
constexpr std::string_view kSpaces = " \t\r\n";

// Nothing also where the template refuses such a chat.
std::optional<TokenId> written_end(const tokenizer::Tokenizer& tokenizer,
                                   const ChatTemplate& chat_template) {
  const std::string answer(kAnswer);
  const auto rendered = chat_template.render(
      {.messages = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ")" +
                   answer + "\"}]",
       .add_generation_prompt = false});
  if (!rendered) return std::nullopt;
  const std::size_t at = rendered->text.rfind(answer);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = rendered->text.find_first_not_of(kSpaces, at + answer.size());
  if (begin == std::string::npos) return std::nullopt;
  const auto ids = tokenizer.encode_around(rendered->text.substr(begin), {});
  if (!ids || ids->empty() || !tokenizer.is_special(ids->front())) return std::nullopt;
  // What the tokenizer puts in front of every text is no end.
  const bool is_written = std::string_view(rendered->text)
                              .substr(begin)
                              .starts_with(tokenizer.token_bytes(ids->front()));
  return is_written ? std::optional(ids->front()) : std::nullopt;
}

}  // namespace

std::vector<TokenId> answer_end_ids(const tokenizer::Tokenizer& tokenizer,
                                    const LoadedChatTemplate& chat_template) {
  std::vector<TokenId> ids;
  if (tokenizer.eos_id() >= 0) ids.push_back(tokenizer.eos_id());
  if (chat_template) {
    if (const auto end = written_end(tokenizer, **chat_template)) ids.push_back(*end);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace lmtp::text
