// lmtp-jinja: renders chats by the templates of one model, for a server that starts it with a
// socket as its standard input. A template is a program that came with a model: one that does not
// end, or takes all memory or stack, ends this process, not the server.
//
// Frames of JSON: first the templates, then a chat each; each is answered by a frame (frames.h).
#include <jinja/caps.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_input.h"
#include "frames.h"

// Of ggml, which calls it where an assertion fails.
extern "C" [[noreturn]] void ggml_abort(const char* /*file*/, int /*line*/, const char* /*format*/,
                                        ...);
extern "C" void ggml_abort(const char* /*file*/, int /*line*/, const char* /*format*/, ...) {
  std::abort();
}

namespace lmtp::text {
namespace {

constexpr rlim_t kMemoryBytesMax = static_cast<rlim_t>(LMTP_JINJA_MEMORY_MIB) << 20;
constexpr int kTimeFactor = LMTP_JINJA_TIME_FACTOR;

struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

struct RenderedText {
  std::string text;
  std::vector<Range> plain;  // in which no special token is, empty ones across which none is
};

struct Template {
  std::string source;
  jinja::program program;
  MessageForms forms;
};

// Its end by SIGPROF tells the server what happened. 0: no limit.
void limit_time(int ms) {
  itimerval timer{};
  timer.it_value = {ms * kTimeFactor / 1000, ms * kTimeFactor % 1000 * 1000};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

class Templates {
 public:
  explicit Templates(const ChatJson& json)
      : variables_(json.at("variables")),
        special_tokens_(json.at("special_tokens").get<std::vector<std::string>>()) {
    for (const auto& [name, source] : json.at("templates").items()) {
      Template& made = templates_[name];
      made.source = source.get<std::string>();
      jinja::lexer lexer;
      made.program = jinja::parse_from_tokens(lexer.tokenize(made.source));
      const jinja::caps caps = jinja::caps_get(made.program);
      made.forms = {caps.supports_string_content, caps.supports_typed_content,
                    caps.supports_object_arguments};
    }
  }

  // Special tokens that a client spells stay text, whatever the template does with it: the engine
  // itself forgets where a text came from in some filters (tojson). Where the marks change what the
  // template does, such as what it strips, and no special token came from the client without them,
  // they are left out.
  RenderedText render(ChatJson chat) const {
    const Template& with = choose(chat);
    fit_messages(chat.at("messages"), with.forms);
    RenderedText rendered = run(with, chat);
    if (!mark_special_tokens(chat, special_tokens_)) return rendered;
    RenderedText marked = run(with, chat);
    const bool is_same = marked.text == rendered.text;
    if (!is_same && specials_in(marked) == specials_in(rendered)) return rendered;
    return marked;
  }

 private:
  // As transformers does.
  const Template& choose(const ChatJson& chat) const {
    const auto with_tools = templates_.find("tool_use");
    const bool has_tools = chat.contains("tools") && !chat["tools"].is_null();
    if (has_tools && with_tools != templates_.end()) return with_tools->second;
    return templates_.at("default");
  }

  RenderedText run(const Template& with, const ChatJson& chat) const {
    limit_time(kRenderMsMax);
    jinja::context context(with.source);
    for (const auto& [name, value] : variables_.items()) {
      context.set_val(name, value_of(value, false));
    }
    for (const char* name : {"tools", "documents"}) {
      context.set_val(name, jinja::mk_val<jinja::value_none>());
    }
    for (const auto& [name, value] : chat.items()) {
      if (name != "template_kwargs") context.set_val(name, value_of(value, true));
    }
    if (chat.contains("template_kwargs")) {
      for (const auto& [name, value] : chat["template_kwargs"].items()) {
        context.set_val(name, value_of(value, true));
      }
    }
    jinja::runtime runtime(context);
    return joined(jinja::runtime::gather_string_parts(runtime.execute(with.program)));
  }

  // Without the marks, each of which becomes an empty range.
  static RenderedText joined(const jinja::value_string& parts) {
    RenderedText rendered;
    for (const jinja::string_part& part : parts->as_string().parts) {
      const auto begin = static_cast<std::uint32_t>(rendered.text.size());
      std::size_t done = 0;
      for (std::size_t at = 0; (at = part.val.find(kCutMark, done)) != std::string::npos;) {
        rendered.text.append(part.val, done, at - done);
        done = at + kCutMark.size();
        const auto cut = static_cast<std::uint32_t>(rendered.text.size());
        if (!part.is_input) rendered.plain.push_back({cut, cut});
      }
      rendered.text.append(part.val, done);
      const auto end = static_cast<std::uint32_t>(rendered.text.size());
      if (part.is_input && end > begin) rendered.plain.push_back({begin, end});
    }
    return rendered;
  }

  // How often each is in the text where it is one.
  std::vector<int> specials_in(const RenderedText& rendered) const {
    std::vector<int> counts;
    for (const std::string& token : special_tokens_) {
      int count = 0;
      auto plain = rendered.plain.begin();
      for (std::size_t at = 0; (at = rendered.text.find(token, at)) != std::string::npos; ++at) {
        while (plain != rendered.plain.end() && plain->end <= at) ++plain;
        count += plain == rendered.plain.end() || plain->begin >= at + token.size() ? 1 : 0;
      }
      counts.push_back(count);
    }
    return counts;
  }

  std::map<std::string, Template> templates_;
  const ChatJson variables_;
  const std::vector<std::string> special_tokens_;
};

void limit_resources() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const rlimit memory{kMemoryBytesMax, kMemoryBytesMax};
  if (kMemoryBytesMax > 0) setrlimit(RLIMIT_AS, &memory);
}

bool receive(char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = recv(STDIN_FILENO, to, size, 0);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<std::string> receive_frame() {
  std::uint32_t size = 0;
  if (!receive(reinterpret_cast<char*>(&size), sizeof(size)) || size > kFrameBytesMax) return {};
  std::string frame(size, '\0');
  if (!receive(frame.data(), size)) return {};
  return frame;
}

bool send_frame(std::string_view answer) {
  std::string frame;
  append_number(static_cast<std::uint32_t>(answer.size()), frame);
  frame.append(answer);
  for (std::string_view rest = frame; !rest.empty();) {
    const ssize_t sent = send(STDIN_FILENO, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string answer_of(AnswerKind kind, std::string_view text) {
  return std::string(1, static_cast<char>(kind)).append(text);
}

// The engine's exceptions show the template's text around the place; the last line says what.
std::string answer_of(const std::exception& thrown) {
  constexpr std::string_view kError = "\nError: ";
  constexpr std::string_view kRaised = "Jinja Exception: ";
  std::string_view text = thrown.what();
  if (const auto at = text.rfind(kError); at != std::string_view::npos) {
    text.remove_prefix(at + kError.size());
  }
  if (!text.starts_with(kRaised)) return answer_of(AnswerKind::kFailed, text);
  return answer_of(AnswerKind::kRaised, text.substr(kRaised.size()));
}

std::string answer_of(const RenderedText& rendered) {
  if (rendered.text.size() > kRenderedBytesMax) {
    return answer_of(AnswerKind::kFailed,
                     "its text has more than " + std::to_string(kRenderedBytesMax) + " bytes");
  }
  std::string answer = answer_of(AnswerKind::kDone, "");
  append_number(static_cast<std::uint32_t>(rendered.plain.size()), answer);
  for (const Range& range : rendered.plain) {
    append_number(range.begin, answer);
    append_number(range.end, answer);
  }
  return answer += rendered.text;
}

template <typename Act>
std::string limited(int ms, const Act& act) {
  limit_time(ms);
  std::string answer;
  try {
    answer = act();
  } catch (const BadMessages& wrong) {
    answer = answer_of(AnswerKind::kBadMessages, wrong.what());
  } catch (const std::exception& thrown) {
    answer = answer_of(thrown);
  }
  limit_time(0);
  return answer;
}

int run() {
  limit_resources();
  std::optional<Templates> templates;
  while (const auto frame = receive_frame()) {
    const int ms = templates ? kRenderMsMax : kCompileMsMax;
    const std::string answer = limited(ms, [&] {
      ChatJson json = ChatJson::parse(*frame);
      if (templates) return answer_of(templates->render(std::move(json)));
      templates.emplace(json);
      return answer_of(AnswerKind::kDone, "");
    });
    if (!send_frame(answer)) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lmtp::text

int main() { return lmtp::text::run(); }
