// lmtp-jinja: renders chats by the templates of one model, for a server that starts it with a
// socket as its standard input. A template is a program that came with a model: one that does not
// end, or takes all memory or stack, ends this process, not the server.
//
// Frames of JSON: first the templates, then a chat each; each is answered by a frame (frames.h).
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "builtins.h"
#include "chat_input.h"
#include "frames.h"

namespace lmtp::text {
namespace {

constexpr rlim_t kMemoryBytesMax = static_cast<rlim_t>(LMTP_JINJA_MEMORY_MIB) << 20;
constexpr int kTimeFactor = LMTP_JINJA_TIME_FACTOR;

struct Template {
  jinja::Body body;
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
  explicit Templates(const jinja::Value& frame) {
    for (const auto& [name, value] : jinja::as<jinja::Dict>(member(frame, "variables"))->entries) {
      variables_->values[jinja::utf8_of(jinja::to_text(name))] = value;
    }
    for (const auto& [name, source] : jinja::as<jinja::Dict>(member(frame, "templates"))->entries) {
      Template& made = templates_[jinja::utf8_of(jinja::to_text(name))];
      made.body = jinja::parse(jinja::utf8_of(jinja::to_text(source)));
      made.forms = forms_of(made.body, variables_);
    }
  }

  jinja::Text render(const jinja::Value& chat) const {
    const Template& with = choose(chat);
    fit_messages(member(chat, "messages"), with.forms);
    const auto scope = std::make_shared<jinja::Scope>(jinja::Scope{.outer = variables_});
    for (const char* name : {"tools", "documents"}) scope->values[name] = jinja::None{};
    const auto set_all = [&](const jinja::Value& values) {
      for (const auto& [name, value] : jinja::as<jinja::Dict>(values)->entries) {
        scope->values[jinja::utf8_of(jinja::to_text(name))] = value;
      }
    };
    set_all(chat);
    scope->values.erase("template_kwargs");
    if (const auto* more = jinja::as<jinja::Dict>(chat)->find("template_kwargs")) set_all(*more);
    return jinja::Interpreter().render(with.body, scope);
  }

 private:
  static const jinja::Value& member(const jinja::Value& object, std::string_view name) {
    return *jinja::as<jinja::Dict>(object)->find(name);
  }

  // As transformers does.
  const Template& choose(const jinja::Value& chat) const {
    const auto with_tools = templates_.find("tool_use");
    const jinja::Value* tools = jinja::as<jinja::Dict>(chat)->find("tools");
    const bool has_tools = tools != nullptr && !jinja::is<jinja::None>(*tools);
    if (has_tools && with_tools != templates_.end()) return with_tools->second;
    return templates_.at("default");
  }

  std::map<std::string, Template> templates_;
  const std::shared_ptr<jinja::Scope> variables_ = std::make_shared<jinja::Scope>();
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

std::string answer_of(const jinja::Text& rendered) {
  std::string text;
  std::string ranges;  // what clients wrote
  std::uint32_t num_ranges = 0;
  for (std::size_t i = 0; i < rendered.size();) {
    const bool is_input = (rendered[i] & jinja::kInput) != 0;
    std::size_t end = i;
    while (end < rendered.size() && ((rendered[end] & jinja::kInput) != 0) == is_input) ++end;
    const auto begin = static_cast<std::uint32_t>(text.size());
    text += jinja::utf8_of(jinja::TextView(rendered).substr(i, end - i));
    if (is_input) {
      append_number(begin, ranges);
      append_number(static_cast<std::uint32_t>(text.size()), ranges);
      ++num_ranges;
    }
    i = end;
  }
  if (text.size() > kRenderedBytesMax) {
    return answer_of(AnswerKind::kFailed,
                     "its text has more than " + std::to_string(kRenderedBytesMax) + " bytes");
  }
  std::string answer = answer_of(AnswerKind::kDone, "");
  append_number(num_ranges, answer);
  return answer.append(ranges).append(text);
}

template <typename Act>
std::string limited(int ms, const Act& act) {
  limit_time(ms);
  std::string answer;
  try {
    answer = act();
  } catch (const BadMessages& wrong) {
    answer = answer_of(AnswerKind::kBadMessages, wrong.what());
  } catch (const jinja::Raised& raised) {
    answer = answer_of(AnswerKind::kRaised, raised.what());
  } catch (const std::bad_alloc&) {
    answer = answer_of(AnswerKind::kNoMemory, "it takes too much memory");
  } catch (const std::exception& thrown) {
    answer = answer_of(AnswerKind::kFailed, thrown.what());
  }
  limit_time(0);
  return answer;
}

int run() {
  limit_resources();
  std::optional<Templates> templates;
  while (const auto frame = receive_frame()) {
    const int ms = templates ? render_ms_max(frame->size()) : kCompileMsMax;
    const std::string answer = limited(ms, [&] {
      if (templates) return answer_of(templates->render(jinja::parse_json(*frame, jinja::kInput)));
      templates.emplace(jinja::parse_json(*frame));
      return answer_of(AnswerKind::kDone, "");
    });
    if (!send_frame(answer)) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace lmtp::text

int main() { return lmtp::text::run(); }
