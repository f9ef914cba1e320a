#include "prompts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "generation/reply_plan.h"
#include "lmtp/base/utf8.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

using text::RenderedChat;
using tokenizer::TextRange;

constexpr std::string_view kMark = "<|mark|>";
constexpr std::string_view kSplit = "<|split|>";
constexpr std::string_view kBeforeQuestion = "\n\n";

OrderedJson message(const char* role, std::string content) {
  return OrderedJson{{"role", role}, {"content", std::move(content)}};
}

// The text that ends a user's message; null: it is another's, or ends otherwise.
OrderedJson* text_of_user(OrderedJson& message) {
  if (message["role"] != "user") return nullptr;
  OrderedJson* text = &message["content"];
  if (text->is_array() && !text->empty()) text = &text->back()["text"];
  return text->is_string() ? text : nullptr;
}

// A piece of a text, with the ranges in it.
RenderedChat piece_of(const RenderedChat& whole, TextRange piece) {
  RenderedChat part{whole.text.substr(piece.begin, piece.end - piece.begin), {}};
  for (const TextRange& range : whole.plain) {
    const std::size_t begin = std::max(range.begin, piece.begin);
    const std::size_t end = std::min(range.end, piece.end);
    if (begin < end) part.plain.push_back({begin - piece.begin, end - piece.begin});
  }
  return part;
}

bool touches(const RenderedChat& rendered, TextRange text) {
  return std::ranges::any_of(rendered.plain, [&](const TextRange& range) {
    return range.begin < text.end && text.begin < range.end;
  });
}

struct MarkedIds {
  std::vector<TokenId> ids;
  std::vector<std::size_t> marks;  // how many ids stand before each
};

// What clients write is no mark.
Result<MarkedIds> encode_marked(const text::ChatTemplate& chat_template,
                                const RenderedChat& rendered) {
  MarkedIds marked;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= rendered.text.size(); ++at) {
    const std::string_view rest = std::string_view(rendered.text).substr(at);
    const std::string_view cut = rest.starts_with(kMark)    ? kMark
                                 : rest.starts_with(kSplit) ? kSplit
                                                            : std::string_view();
    const bool is_end = rest.empty();
    if (!is_end && (cut.empty() || touches(rendered, {at, at + cut.size()}))) continue;
    auto ids = chat_template.encode(piece_of(rendered, {begin, at}));
    if (!ids) return ids.error();
    marked.ids.insert(marked.ids.end(), ids->begin(), ids->end());
    if (cut == kMark) marked.marks.push_back(marked.ids.size());
    begin = at + cut.size();
    if (!is_end) at = begin - 1;
  }
  return marked;
}

OrderedJson question_json(const Question& question, const std::vector<std::string>& labels) {
  OrderedJson options = OrderedJson::array();
  OrderedJson descriptions = OrderedJson::array();
  for (const AnswerOption& option : question.options) {
    options.push_back(option.name);
    descriptions.push_back(option.description);
  }
  constexpr const char* kTypes[] = {"noul", "choice", "score"};
  return {{"name", question.id},
          {"type", kTypes[static_cast<int>(question.kind)]},
          {"instructions", question.instructions},
          {"options", options},
          {"labels", labels},
          {"descriptions", descriptions}};
}

}  // namespace

DecisionPrompts::DecisionPrompts(const registry::ReadyModel& model, const DecisionRequest& request)
    : model_(model),
      request_(request),
      state_(content_text(request.messages.is_null() ? request.state : request.messages)),
      has_messages_(!request.messages.is_null()) {}

Error DecisionPrompts::about_state(Error error) const {
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInvalid;
  return with_field_name(request_.state_name, std::move(error));
}

std::size_t DecisionPrompts::state_bytes() const {
  return state_.size() + request_.system.size() + request_.template_kwargs.dump().size();
}

OrderedJson DecisionPrompts::with_question(const std::string& question) const {
  OrderedJson messages = OrderedJson::array();
  if (!request_.system.empty()) messages.push_back(message("system", request_.system));
  if (!has_messages_) {
    messages.push_back(message("user", state_ + std::string(kBeforeQuestion) + question));
    return messages;
  }
  for (const OrderedJson& one : request_.messages) messages.push_back(one);
  OrderedJson& last = messages.back();
  if (OrderedJson* const text = text_of_user(last)) {
    *text = text->get<std::string>() + std::string(kBeforeQuestion) + question;
  } else {
    messages.push_back(message("user", question));
  }
  return messages;
}

Result<RenderedChat> DecisionPrompts::rendered_with(const OrderedJson& messages,
                                                    bool* is_refused) const {
  Chat chat{.messages = messages.dump(), .template_kwargs = {}};
  OrderedJson kwargs = request_.template_kwargs;
  if (!kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = false;
  chat.template_kwargs = kwargs.dump();
  return (*model_.chat_template)->render(chat, is_refused);
}

Result<RenderedChat> DecisionPrompts::rendered(const std::string& question) {
  bool is_refused = false;
  auto rendered = rendered_with(with_question(question), &is_refused);
  const bool is_first = !std::exchange(has_written_, true);
  if (rendered || !has_messages_ || !is_refused || !is_first) return rendered;
  // The template refuses the order of roles: the messages become the state, of all questions.
  has_messages_ = false;
  return rendered_with(with_question(question), nullptr);
}

Result<DecisionPrompt> DecisionPrompts::written(const std::string& question) {
  DecisionPrompt prompt;
  if (!model_.chat_template && model_.chat_template.error().code == ErrorCode::kNotFound) {
    prompt.is_plain = true;
    std::string text =
        request_.system.empty() ? "" : request_.system + std::string(kBeforeQuestion);
    text += state_ + std::string(kBeforeQuestion) + question + "\nAnswer:";
    const tokenizer::Tokenizer& tokenizer = **model_.tokenizer;
    const TextRange all{0, text.size()};
    auto ids = tokenizer.encode_around(text, {&all, 1});
    if (!ids) return about_state(ids.error());
    prompt.ids = std::move(*ids);
    if (tokenizer.adds_bos()) prompt.ids.insert(prompt.ids.begin(), tokenizer.bos_id());
    return prompt;
  }
  if (!model_.chat_template) return about_state(model_.chat_template.error());
  const auto chat = rendered(question);
  if (!chat) return about_state(chat.error());
  auto ids = (*model_.chat_template)->encode(*chat);
  if (!ids) return about_state(ids.error());
  prompt.ids = std::move(*ids);
  prompt.in_reasoning = opens_reasoning(*model_.reply_layout, chat->text);
  return prompt;
}

Result<std::vector<DecisionPrompt>> DecisionPrompts::by_own_template(
    std::span<const Question> questions, std::span<const std::vector<std::string>> labels) {
  const text::ChatTemplate& own = *(*model_.decisions)->chat_template;
  OrderedJson kwargs = request_.template_kwargs;
  kwargs["enable_thinking"] = false;
  kwargs["state"] = request_.messages.is_null() ? request_.state : request_.messages;
  OrderedJson all = OrderedJson::array();
  for (std::size_t i = 0; i < questions.size(); ++i) {
    all.push_back(question_json(questions[i], labels[i]));
  }
  kwargs["question"] = all.front();
  if ((*model_.decisions)->asks_all_at_once) kwargs["questions"] = std::move(all);
  OrderedJson messages = OrderedJson::array();
  if (!request_.system.empty()) messages.push_back(message("system", request_.system));
  messages.push_back(message("user", ""));
  const auto rendered = own.render({.messages = messages.dump(), .template_kwargs = kwargs.dump()});
  if (!rendered) return about_state(rendered.error());
  auto marked = encode_marked(own, *rendered);
  if (!marked) return about_state(marked.error());
  if (marked->marks.empty() && questions.size() == 1) marked->marks.push_back(marked->ids.size());
  if (marked->marks.size() != questions.size() || marked->marks.front() == 0) {
    return Error{ErrorCode::kInvalid,
                 "model: its decision template marks " + std::to_string(marked->marks.size()) +
                     " places for " + std::to_string(questions.size()) +
                     " questions, as templates for trained heads do, which are not supported; "
                     "needed is one that marks where the label of each question is read "
                     "(--decision-template)"};
  }
  if (marked->ids.size() > static_cast<std::size_t>(model_.limits.context_length)) {
    return about_state(
        {ErrorCode::kInvalid, "has " + std::to_string(marked->ids.size()) +
                                  " tokens with its questions; allowed are at most " +
                                  std::to_string(model_.limits.context_length) + ", the context"});
  }
  std::vector<DecisionPrompt> prompts;
  for (const std::size_t mark : marked->marks) {
    prompts.push_back(
        {.ids = {marked->ids.begin(), marked->ids.begin() + static_cast<std::ptrdiff_t>(mark)},
         .is_own = true});
  }
  return prompts;
}

const AnswerTokens::Tail& AnswerTokens::tail_of(std::span<const TokenId> prompt) {
  constexpr std::size_t kTokensMin = 8;
  if (!tail_.ids.empty() && prompt.size() >= tail_.ids.size() &&
      std::ranges::equal(prompt.last(tail_.ids.size()), tail_.ids)) {
    return tail_;
  }
  // From the last special token on at most: text before it can't change what follows.
  const auto special = std::find_if(prompt.rbegin(), prompt.rend(),
                                    [&](TokenId id) { return tokenizer_.is_special(id); });
  const auto size_max =
      std::min(static_cast<std::size_t>(special - prompt.rbegin()) + 1, prompt.size());
  for (std::size_t size = std::min(kTokensMin, size_max);; size = std::min(size * 2, size_max)) {
    const auto ids = prompt.last(size);
    std::string text;
    for (const TokenId id : ids) text += tokenizer_.token_bytes(id);
    const auto again = tokenizer_.encode_continuation(text);
    if ((again && std::ranges::equal(*again, ids)) || size == size_max) {
      tail_ = {{ids.begin(), ids.end()}, std::move(text)};
      return tail_;
    }
  }
}

Result<std::vector<TokenId>> AnswerTokens::after(const DecisionPrompt& prompt,
                                                 const std::string& text) {
  if (prompt.is_own) return tokenizer_.encode(text);
  const Tail& tail = tail_of(prompt.ids);
  const std::string whole = tail.text + (prompt.is_plain ? " " : "") + text;
  const TextRange answer{tail.text.size(), whole.size()};
  const bool is_text = is_utf8(tail.text);
  auto ids = is_text ? tokenizer_.encode_continuation(whole, {&answer, 1})
                     : Result<std::vector<TokenId>>(std::vector<TokenId>());
  if (!ids) return ids.error();
  if (ids->size() <= tail.ids.size() ||
      !std::equal(tail.ids.begin(), tail.ids.end(), ids->begin())) {
    return Error{ErrorCode::kInvalid,
                 "the model's tokenizer has no tokens of its own for it at the prompt's end"};
  }
  ids->erase(ids->begin(), ids->begin() + static_cast<std::ptrdiff_t>(tail.ids.size()));
  return ids;
}

}  // namespace lmtp::server
