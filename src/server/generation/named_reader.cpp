#include "named_reader.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {
namespace {

using State = ArgumentReader::State;

constexpr int kDepthMax = 64;

// Values that Python or Gemma write, as JSON.
class Literals {
 public:
  Literals(std::string_view text, const std::string& quote) : text_(text), quote_(quote) {}

  // name=value, ...: all of the text. Nothing: it is none.
  std::optional<std::string> arguments(char assigns) {
    std::string json = "{";
    skip();
    while (at_ < text_.size()) {
      if (json.size() > 1 && !take(',')) return std::nullopt;
      if (json.size() > 1) json += ", ";
      skip();
      const std::size_t end = text_.find(assigns, at_);
      if (end == std::string_view::npos) return std::nullopt;
      append_json_string(trimmed(text_.substr(at_, end - at_)), json);
      at_ = end + 1;
      json += ": ";
      if (!value(json, 0)) return std::nullopt;
      skip();
    }
    return json + "}";
  }

 private:
  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char byte) {
    skip();
    if (at_ >= text_.size() || text_[at_] != byte) return false;
    ++at_;
    return true;
  }

  bool value(std::string& json, int depth) {
    skip();
    if (depth > kDepthMax || at_ >= text_.size()) return false;
    if (!quote_.empty() && text_.substr(at_).starts_with(quote_)) return quoted(json);
    const char first = text_[at_];
    if (quote_.empty() && (first == '"' || first == '\'')) return python_text(first, json);
    if (first == '[') return list(json, depth);
    if (first == '{') return object(json, depth);
    return word(json);
  }

  bool quoted(std::string& json) {
    const std::size_t begin = at_ + quote_.size();
    const std::size_t end = text_.find(quote_, begin);
    if (end == std::string_view::npos) return false;
    const std::string_view text = text_.substr(begin, end - begin);
    if (text.find(text::kSpecialBegin) != std::string_view::npos) return false;
    append_json_string(text, json);
    at_ = end + quote_.size();
    return true;
  }

  bool python_text(char quote, std::string& json) {
    std::string text;
    for (++at_; at_ < text_.size(); ++at_) {
      const char byte = text_[at_];
      if (byte == text::kSpecialBegin) return false;
      if (byte == quote) {
        ++at_;
        append_json_string(text, json);
        return true;
      }
      if (byte != '\\' || at_ + 1 == text_.size()) {
        text += byte;
        continue;
      }
      if (unicode(text)) continue;
      const char escaped = text_[++at_];
      constexpr std::string_view kLetters = "nrtbf";
      constexpr std::string_view kBytes = "\n\r\t\b\f";
      const std::size_t which = kLetters.find(escaped);
      if (which != std::string_view::npos) {
        text += kBytes[which];
      } else {
        if (escaped != '\\' && escaped != '\'' && escaped != '"' && escaped != '/') text += '\\';
        text += escaped;
      }
    }
    return false;
  }

  // One of \uXXXX, or two that are one character; at_ ends at its last byte.
  bool unicode(std::string& text) {
    constexpr std::size_t kBytes = 6;
    for (const std::size_t size : {2 * kBytes, kBytes}) {
      const std::string_view escaped = text_.substr(at_, size);
      if (escaped.size() < size || escaped[1] != 'u' ||
          (size > kBytes && !escaped.substr(kBytes).starts_with("\\u"))) {
        continue;
      }
      const auto read = nlohmann::json::parse("\"" + std::string(escaped) + "\"", nullptr, false);
      if (!read.is_string()) continue;
      text += read.get_ref<const std::string&>();
      at_ += size - 1;
      return true;
    }
    return false;
  }

  bool list(std::string& json, int depth) {
    ++at_;
    json += '[';
    for (bool is_first = true; !take(']'); is_first = false) {
      if (!is_first && !take(',')) return false;
      if (!is_first) json += ", ";
      if (!value(json, depth + 1)) return false;
    }
    json += ']';
    return true;
  }

  bool object(std::string& json, int depth) {
    ++at_;
    json += '{';
    for (bool is_first = true; !take('}'); is_first = false) {
      if (!is_first && !take(',')) return false;
      if (!is_first) json += ", ";
      skip();
      if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
        if (!python_text(text_[at_], json) || !take(':')) return false;
      } else {
        const std::size_t end = text_.find(':', at_);
        if (end == std::string_view::npos) return false;
        append_json_string(trimmed(text_.substr(at_, end - at_)), json);
        at_ = end + 1;
      }
      json += ": ";
      if (!value(json, depth + 1)) return false;
    }
    json += '}';
    return true;
  }

  bool word(std::string& json) {
    const std::size_t end = std::min(text_.find_first_of(",]} \n", at_), text_.size());
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end;
    if (text == "True" || text == "true") {
      json += "true";
    } else if (text == "False" || text == "false") {
      json += "false";
    } else if (text == "None" || text == "null") {
      json += "null";
    } else if (nlohmann::json::accept(text)) {
      json += text;
    } else {
      return false;
    }
    return true;
  }

  std::string_view text_;
  const std::string& quote_;
  std::size_t at_ = 0;
};

// All of them at once, when their end has come.
class NamedReader final : public ArgumentReader {
 public:
  explicit NamedReader(const text::CallLayout& layout)
      : is_python_(layout.arguments == text::CallLayout::Arguments::kPython),
        quote_(is_python_ ? std::string() : layout.string_quote) {}

  State read(std::string& held, std::string& json) override {
    if (!is_python_ && !held.empty() && held.front() != '{') return State::kWrong;
    const std::size_t begin = is_python_ ? 0 : 1;
    if (held.size() < begin) return State::kMore;
    const auto found = find_end(std::string_view(held).substr(begin));
    if (!found) return is_wrong_ ? State::kWrong : State::kMore;
    const auto read = Literals(std::string_view(held).substr(begin, *found), quote_)
                          .arguments(is_python_ ? '=' : ':');
    if (!read) return State::kWrong;
    json += *read;
    held.erase(0, *found + 2 * begin);
    return State::kDone;
  }
  std::unique_ptr<ArgumentReader> clone() const override {
    return std::make_unique<NamedReader>(*this);
  }

 private:
  // The bracket that is one too many. Each byte is looked at once, as it comes.
  std::optional<std::size_t> find_end(std::string_view text) {
    for (; at_ < text.size() && !is_wrong_; ++at_) {
      const char byte = text[at_];
      if (!is_python_ && byte == quote_.front()) {
        const std::string_view rest = text.substr(at_, quote_.size());
        if (rest.size() < quote_.size() && quote_.starts_with(rest)) return std::nullopt;
        if (rest == quote_) {
          text_end_ = in_text() ? '\0' : byte;
          at_ += quote_.size() - 1;
          continue;
        }
      }
      is_wrong_ = byte == text::kSpecialBegin;  // special tokens are no part of arguments
      if (in_text()) {
        const bool was_escaped =
            std::exchange(is_escaped_, is_python_ && byte == '\\' && !is_escaped_);
        if (is_python_ && byte == text_end_ && !was_escaped) text_end_ = '\0';
      } else if (is_python_ && (byte == '"' || byte == '\'')) {
        text_end_ = byte;
      } else if (byte == '(' || byte == '[' || byte == '{') {
        ++depth_;
      } else if ((byte == ')' || byte == ']' || byte == '}') && --depth_ < 0) {
        return at_;
      }
    }
    return std::nullopt;
  }
  bool in_text() const { return text_end_ != '\0'; }

  bool is_python_;
  std::string quote_;
  std::size_t at_ = 0;       // bytes that have been looked at, without the opening bracket
  int depth_ = 0;            // of brackets
  bool is_escaped_ = false;  // the next byte of a text
  char text_end_ = '\0';     // the first byte of what ends the text; none: outside of texts
  bool is_wrong_ = false;
};

}  // namespace

std::unique_ptr<ArgumentReader> make_named_reader(const text::CallLayout& layout) {
  return std::make_unique<NamedReader>(layout);
}

}  // namespace lmtp::server
