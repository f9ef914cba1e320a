#include "argument_readers.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "json_checker.h"
#include "lmtp/base/json.h"
#include "tool_schema.h"

namespace lmtp::server {
namespace {

using State = ArgumentReader::State;

constexpr int kDepthMax = 64;
constexpr std::string_view kMarks = "\xff\xfe";  // text::kSpecialBegin and kSpecialEnd

// The bytes of a string in JSON, without its quotes.
void append_escaped(std::string_view text, std::string& out) {
  std::string quoted;
  append_json_string(text, quoted);
  out.append(quoted, 1, quoted.size() - 2);
}

// No character is cut in two.
std::size_t cut_between_characters(std::string_view text, std::size_t at) {
  const auto is_inside = [&] { return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U; };
  while (at > 0 && at < text.size() && is_inside()) --at;
  return at;
}

// An object, which ends with its last bracket; so does what is none, so that no text within it is
// read for another call.
class JsonReader final : public ArgumentReader {
 public:
  State read(std::string& held, std::string& json) override {
    std::size_t at = 0;
    while (at < held.size() && !is_done_) {
      if (!std::exchange(has_begun_, true) && held[at] != '{') return State::kWrong;
      checker_.push(held[at]);
      step(held[at++]);
    }
    json.append(held, 0, at);
    held.erase(0, at);
    if (!is_done_) return State::kMore;
    return checker_.is_whole() ? State::kDone : State::kWrong;
  }
  std::unique_ptr<ArgumentReader> clone() const override {
    return std::make_unique<JsonReader>(*this);
  }

 private:
  void step(char byte) {
    if (std::exchange(is_escaped_, false)) return;
    if (in_text_) {
      is_escaped_ = byte == '\\';
      in_text_ = byte != '"';
    } else if (byte == '"') {
      in_text_ = true;
    } else if (byte == '{' || byte == '[') {
      ++depth_;
    } else if (byte == '}' || byte == ']') {
      is_done_ = --depth_ == 0;
    }
  }

  JsonChecker checker_;
  bool has_begun_ = false;
  bool is_done_ = false;
  bool in_text_ = false;
  bool is_escaped_ = false;
  int depth_ = 0;
};

class TaggedReader final : public ArgumentReader {
 public:
  TaggedReader(const text::CallLayout& layout, const Parameters& parameters, bool may_be_any)
      : layout_(layout), parameters_(&parameters), may_be_any_(may_be_any) {}

  State read(std::string& held, std::string& json) override {
    if (std::exchange(is_first_, false)) json += '{';
    while (true) {
      if (in_value_) {
        if (!read_value(held, json)) return State::kMore;
        if (is_wrong_) return State::kWrong;
        continue;
      }
      // DeepSeek V4 leaves a line empty where there are no arguments.
      if (num_arguments_ == 0 && !layout_.call_end.starts_with('\n')) {
        held.erase(0, held.find_first_not_of('\n'));
      }
      const std::string begin =
          (num_arguments_ > 0 ? layout_.argument_separator : "") + layout_.argument_begin;
      if (!held.starts_with(begin)) {
        if (begin.starts_with(held)) return State::kMore;
        json += '}';
        return State::kDone;
      }
      if (!read_name(held, begin.size(), json)) return State::kMore;
    }
  }
  std::unique_ptr<ArgumentReader> clone() const override {
    return std::make_unique<TaggedReader>(*this);
  }

 private:
  bool read_name(std::string& held, std::size_t at, std::string& json) {
    const std::string& text_end = layout_.string_name_end;
    const std::size_t as_json = held.find(layout_.argument_name_end, at);
    const std::size_t as_text = text_end.empty() ? std::string::npos : held.find(text_end, at);
    const std::size_t end = std::min(as_json, as_text);
    if (end == std::string::npos) return false;
    const std::string name = held.substr(at, end - at);
    const auto found = std::ranges::find(*parameters_, name, &Parameter::name);
    const bool is_known = found != parameters_->end();
    is_text_ = as_text < as_json || (text_end.empty() && is_known && found->is_text());
    const bool is_json = is_known && found->is_json();
    is_json_ = !is_text_ && (!text_end.empty() || (is_json && !may_be_any_));
    types_ = is_known && !is_json ? found->types : kAnyType;
    may_be_any_text_ = may_be_any_ || !is_known || found->takes_any_text;
    held.erase(0, end + (as_text < as_json ? text_end : layout_.argument_name_end).size());
    json += num_arguments_++ > 0 ? ", " : "";
    append_json_string(name, json);
    json += is_text_ ? ": \"" : ": ";
    in_value_ = true;
    return true;
  }

  // False: it may be in text_begin and text_end.
  bool begin_value(std::string& held, std::string& json) {
    const std::string& begin = layout_.text_begin;
    if (held.size() < begin.size() && begin.starts_with(held)) return false;
    const bool is_wrapped = !begin.empty() && !is_json_ && held.starts_with(begin);
    if (is_wrapped && !std::exchange(is_text_, true)) json += '"';
    if (is_wrapped) held.erase(0, begin.size());
    value_end_ = (is_wrapped ? layout_.text_end : "") + layout_.argument_end;
    return true;
  }

  // False: it goes on.
  bool read_value(std::string& held, std::string& json) {
    if (value_end_.empty() && !begin_value(held, json)) return false;
    if (is_json_) return read_json(held, json);
    const std::size_t end = is_text_ ? held.find(value_end_) : end_of_any(held);
    // Special tokens are no part of a text.
    is_wrong_ = is_text_ && std::string_view(held).substr(0, end).find_first_of(kMarks) !=
                                std::string_view::npos;
    if (is_wrong_) return true;
    if (end == std::string::npos) {
      if (!is_text_) return false;
      const std::size_t num_held = std::min(held.size(), value_end_.size());
      const std::size_t cut = cut_between_characters(held, held.size() - num_held);
      append(std::string_view(held).substr(0, cut), json);
      held.erase(0, cut);
      return false;
    }
    if (!is_text_) {
      const std::string_view value = std::string_view(held).substr(0, end);
      is_wrong_ = value.find_first_of(kMarks) != std::string_view::npos;
      if (is_wrong_) return true;
      is_text_ = !is_value(value);
      if (is_text_) json += '"';
    }
    append(std::string_view(held).substr(0, end), json);
    if (is_text_) json += '"';
    end_value(held, end);
    return true;
  }

  // What ends a value does so outside of its texts alone.
  bool read_json(std::string& held, std::string& json) {
    std::size_t at = 0;
    for (; at < held.size(); ++at) {
      const std::string_view rest = std::string_view(held).substr(at);
      const bool may_end = rest.starts_with(value_end_) || value_end_.starts_with(rest);
      if (may_end && !checker_.is_within_text()) break;
      checker_.push(held[at]);
    }
    json.append(held, 0, at);
    if (!std::string_view(held).substr(at).starts_with(value_end_)) {
      held.erase(0, at);
      return false;
    }
    is_wrong_ = !checker_.is_whole();
    checker_ = {};
    end_value(held, at);
    return true;
  }

  void end_value(std::string& held, std::size_t at) {
    held.erase(0, at + value_end_.size());
    value_end_.clear();
    in_value_ = false;
    checker_ = {};
    num_checked_ = 0;
  }

  // The library takes a mark of the bytes' order in front, and ends at a zero byte.
  bool is_value(std::string_view text) const {
    JsonChecker checker;
    checker.push(text);
    return checker.is_whole() && nlohmann::json::accept(text) && (type_of_json(text) & types_) != 0;
  }

  // The value may be JSON or a text: within a text of what begins as JSON it does not end; where it
  // may be any text it does if an argument or the call's end follows. npos: it goes on, as far as
  // one can tell.
  std::size_t end_of_any(std::string_view held) {
    if (held.find_first_of("[{\"") != 0) return held.find(value_end_);
    const std::string next = layout_.argument_separator + layout_.argument_begin;
    for (; num_checked_ < held.size(); checker_.push(held[num_checked_++])) {
      std::string_view rest = held.substr(num_checked_);
      if (value_end_.starts_with(rest) && rest.size() < value_end_.size()) break;
      if (!rest.starts_with(value_end_)) continue;
      if (!checker_.is_within_text()) return num_checked_;
      if (!may_be_any_text_) continue;
      rest.remove_prefix(value_end_.size());
      if (rest.starts_with(next) || rest.starts_with(layout_.call_end)) return num_checked_;
      if (next.starts_with(rest) || layout_.call_end.starts_with(rest)) break;
    }
    return std::string_view::npos;
  }

  void append(std::string_view text, std::string& json) const {
    if (is_text_) {
      append_escaped(text, json);
    } else {
      json += text;
    }
  }

  text::CallLayout layout_;
  const Parameters* parameters_;
  bool may_be_any_;
  int num_arguments_ = 0;
  std::string value_end_ = {};  // of the value that has begun
  bool is_first_ = true;
  bool in_value_ = false;
  bool is_text_ = false;
  bool is_json_ = false;
  bool may_be_any_text_ = false;
  JsonChecker checker_;          // of the value, where it is JSON, or may be
  std::size_t num_checked_ = 0;  // bytes of what is held
  bool is_wrong_ = false;        // it was none
  JsonTypes types_ = kAnyType;   // of the value
};

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
    append_json_string(text_.substr(begin, end - begin), json);
    at_ = end + quote_.size();
    return true;
  }

  bool python_text(char quote, std::string& json) {
    std::string text;
    for (++at_; at_ < text_.size(); ++at_) {
      const char byte = text_[at_];
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
    // Only what closes them can be their end.
    const bool may_end = held.find_first_of(")]}", num_seen_) != std::string::npos;
    num_seen_ = held.size();
    if (!may_end) return State::kMore;
    const std::size_t begin = is_python_ ? 0 : 1;
    const auto found = find_end(std::string_view(held).substr(begin));
    if (!found) return State::kMore;
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
  // The bracket that is one too many.
  std::optional<std::size_t> find_end(std::string_view text) const {
    int depth = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const char byte = text[at];
      if (is_python_ ? byte == '"' || byte == '\'' : text.substr(at).starts_with(quote_)) {
        const auto end = end_of_text(text, at);
        if (!end) return std::nullopt;
        at = *end - 1;
      } else if (byte == '(' || byte == '[' || byte == '{') {
        ++depth;
      } else if ((byte == ')' || byte == ']' || byte == '}') && --depth < 0) {
        return at;
      }
    }
    return std::nullopt;
  }

  // Behind the closing quote.
  std::optional<std::size_t> end_of_text(std::string_view text, std::size_t begin) const {
    if (!is_python_) {
      const std::size_t end = text.find(quote_, begin + quote_.size());
      if (end == std::string_view::npos) return std::nullopt;
      return end + quote_.size();
    }
    for (std::size_t at = begin + 1; at < text.size(); ++at) {
      if (text[at] == '\\') {
        ++at;
      } else if (text[at] == text[begin]) {
        return at + 1;
      }
    }
    return std::nullopt;
  }

  bool is_python_;
  std::string quote_;
  std::size_t num_seen_ = 0;  // bytes, without their end
};

}  // namespace

std::unique_ptr<ArgumentReader> make_argument_reader(const text::CallLayout& layout,
                                                     const Parameters& parameters,
                                                     bool may_be_any) {
  switch (layout.arguments) {
    case text::CallLayout::Arguments::kTagged:
      return std::make_unique<TaggedReader>(layout, parameters, may_be_any);
    case text::CallLayout::Arguments::kPython:
    case text::CallLayout::Arguments::kLoose:
      return std::make_unique<NamedReader>(layout);
    default:
      return std::make_unique<JsonReader>();
  }
}

}  // namespace lmtp::server
