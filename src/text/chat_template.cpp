#include "lmtp/text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "rendered_chat.h"
#include "template_process.h"

namespace lmtp::text {
namespace {

using Answer = TemplateProcess::Answer;

// Of a template's own words and of errors about it.
constexpr std::size_t kErrorBytesMax = 1000;

std::string first_frame(const ChatTemplateFiles& files, const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string> special_tokens;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view token = tokenizer.token_bytes(id);
    if (tokenizer.is_special(id) && !token.empty() && is_utf8(token)) {
      special_tokens.emplace_back(token);
    }
  }
  return Json{{"templates", files.templates},
              {"variables", files.special_tokens},
              {"special_tokens", special_tokens}}
      .dump();
}

std::string frame_of(const Chat& chat) {
  std::string frame = R"({"messages": )" + chat.messages;
  if (!chat.tools.empty()) frame += R"(, "tools": )" + chat.tools;
  if (!chat.template_kwargs.empty()) frame += R"(, "template_kwargs": )" + chat.template_kwargs;
  return frame + R"(, "add_generation_prompt": )" +
         (chat.add_generation_prompt ? "true}" : "false}");
}

Error error_of(const Answer& answer) {
  std::string text;
  append_valid_utf8(answer.text, text);
  text = shortened(text, kErrorBytesMax);
  switch (answer.kind) {
    case AnswerKind::kBadMessages:
      return {ErrorCode::kInvalid, text};
    case AnswerKind::kRaised:
      return {ErrorCode::kInvalid, "the model's chat template refuses them: " + text};
    default:
      return {ErrorCode::kInvalid, "the model's chat template fails: " + text};
  }
}

std::string tools_template(const ChatTemplateFiles& files) {
  const auto& all = files.templates;
  const auto found = all.contains("tool_use") ? all.find("tool_use") : all.find("default");
  return found == all.end() ? "" : found->second;
}

Error failed(const Error& why) {
  return {why.code, "the model's chat template fails: " + why.message};
}

}  // namespace

ChatTemplate::ChatTemplate(std::string first_frame, const ChatTemplateFiles& files,
                           std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
    : first_frame_(std::move(first_frame)),
      tools_template_(text::tools_template(files)),
      response_template_(files.response_template),
      tokenizer_(std::move(tokenizer)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::make(
    const ChatTemplateFiles& files, std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  std::string frame = first_frame(files, *tokenizer);
  if (frame.size() > kFrameBytesMax) {
    return Error{ErrorCode::kInvalid, "it has more than " + size_text(kFrameBytesMax)};
  }
  std::shared_ptr<const ChatTemplate> made(
      new ChatTemplate(std::move(frame), files, std::move(tokenizer)));
  if (const Result<void> started = made->start(); !started) return started.error();
  return made;
}

// REQUIRES: the mutex is held, or nobody else knows this.
Result<void> ChatTemplate::start() const {
  if (process_ != nullptr) return {};
  auto process = TemplateProcess::start();
  if (!process) return process.error();
  const Result<Answer> answer = (*process)->ask(first_frame_, kCompileMsMax);
  if (!answer) return failed(answer.error());
  if (answer->kind != AnswerKind::kDone) return error_of(*answer);
  process_ = std::move(*process);
  return {};
}

Result<RenderedChat> ChatTemplate::render(const Chat& chat, bool* is_refused) const {
  const std::string frame = frame_of(chat);
  if (frame.size() > kFrameBytesMax) {
    return Error{ErrorCode::kInvalid, "have " + size_text(static_cast<std::int64_t>(frame.size())) +
                                          "; allowed are at most " + size_text(kFrameBytesMax)};
  }
  const std::lock_guard lock(mutex_);
  const int cpu_ms_max = render_ms_max(frame.size());
  if (const Result<void> started = start(); !started) return started.error();
  Result<Answer> answer = process_->ask(frame, cpu_ms_max);
  const bool has_died = !answer && answer.error().code == ErrorCode::kUnavailable;
  if (has_died || (answer && answer->kind == AnswerKind::kNoMemory)) {
    // By no fault of this chat's: as where the system had no memory left.
    process_.reset();
    if (const Result<void> started = start(); !started) return started.error();
    answer = process_->ask(frame, cpu_ms_max);
  }
  if (!answer) {
    process_.reset();
    return failed(answer.error());
  }
  if (is_refused != nullptr) *is_refused = answer->kind == AnswerKind::kRaised;
  if (answer->kind != AnswerKind::kDone) return error_of(*answer);
  std::optional<RenderedChat> rendered = read_rendered(answer->text);
  if (!rendered) {  // whoever answers like that is no longer the program that was started
    process_.reset();
    return failed({ErrorCode::kInvalid, "its program answers in no form that is known"});
  }
  return *std::move(rendered);
}

Result<std::vector<TokenId>> ChatTemplate::encode(const RenderedChat& rendered) const {
  return tokenizer_->encode_around(rendered.text, rendered.plain);
}

}  // namespace lmtp::text
