#include "argument_readers.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "json_checker.h"
#include "lmtp/base/json.h"
#include "named_reader.h"
#include "tool_schema.h"

namespace lmtp::server {
namespace {

using State = ArgumentReader::State;

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
// read for another call, unless a text of it has no end.
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
    return checker_.is_whole() ? State::kDone : State::kBroken;
  }
  bool is_wrong() const override { return checker_.is_wrong(); }
  bool may_end() const override { return !in_text_; }
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
  bool is_wrong() const override { return is_json_ && checker_.is_wrong(); }
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

}  // namespace

std::unique_ptr<ArgumentReader> make_argument_reader(const text::CallLayout& layout,
                                                     const Parameters& parameters,
                                                     bool may_be_any) {
  switch (layout.arguments) {
    case text::CallLayout::Arguments::kTagged:
      return std::make_unique<TaggedReader>(layout, parameters, may_be_any);
    case text::CallLayout::Arguments::kPython:
    case text::CallLayout::Arguments::kLoose:
      return make_named_reader(layout);
    default:
      return std::make_unique<JsonReader>();
  }
}

}  // namespace lmtp::server
