// A model's chat template: from the messages of a chat to the prompt that the model was trained on.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/chat.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {

class TemplateProcess;

// A chat as the template writes it.
struct RenderedChat {
  std::string text;  // UTF-8
  // What the client wrote, in which no special token is: for Tokenizer::encode_around.
  std::vector<tokenizer::TextRange> plain;
};

// Whether this installation renders templates: a build with -DLMTP_CHAT_TEMPLATES=OFF does not.
bool renders_chat_templates();

// What a folder has of templates.
struct ChatTemplateFiles {
  std::map<std::string, std::string> templates = {};  // by name; "default" is among them
  // By role (bos_token, ...), which templates read: those that the folder's files name.
  std::map<std::string, std::string> special_tokens = {};
  // tokenizer_config.json's response_template as a text of JSON, where it has one and the template
  // is the folder's own.
  std::string response_template = {};
};

// Of tokenizer_config.json (a text, or a list with names), chat_template.jinja and
// additional_chat_templates/, as in transformers, or of a GGUF file's metadata; `override_file`,
// where it is not empty, in their place. The error of a folder without a template has the code
// kNotFound.
Result<ChatTemplateFiles> read_chat_template(const std::string& folder,
                                             const std::string& override_file);

// Templates run in a process of their own (lmtp-jinja), which has 100 ms of processor time for
// each chat and 2 ms more for each KiB that it has, 512 MiB of memory and 1 MiB of text: what
// passes that is an error, and the next chat gets a new process. A process that something else has
// ended is started anew and asked once more. Owner: the model. Any thread; one chat at a time,
// others wait, so that an io thread should not.
class ChatTemplate {
 public:
  // Starts the process, which reads the templates. The error says what is wrong with a template,
  // or that this installation renders none.
  static Result<std::shared_ptr<const ChatTemplate>> make(
      const ChatTemplateFiles& files, std::shared_ptr<const tokenizer::Tokenizer> tokenizer);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The errors' texts are for behind the name of what is wrong, such as "messages: ". Sets
  // `is_refused`, where it is not null, to whether the template itself raised the error.
  Result<RenderedChat> render(const Chat& chat, bool* is_refused = nullptr) const;
  Result<std::vector<TokenId>> encode(const RenderedChat& rendered) const;

  // The source of the template that is rendered where there are tools.
  const std::string& tools_template() const { return tools_template_; }
  const std::string& response_template() const { return response_template_; }  // as in the files
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  ChatTemplate(std::string first_frame, const ChatTemplateFiles& files,
               std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

  Result<void> start() const;

  const std::string first_frame_;
  const std::string tools_template_;
  const std::string response_template_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<TemplateProcess> process_;  // null: to be started again
};

// A model's, or why it has none.
using LoadedChatTemplate = Result<std::shared_ptr<const ChatTemplate>>;

}  // namespace lmtp::text
