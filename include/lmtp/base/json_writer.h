// JsonWriter: JSON that is written where it is sent from, value by value. For what is written many
// times a second; a tree that is built first is lmtp/base/json.h's.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"

namespace lmtp {

// Appends to a text, and allocates nothing beside it. It keeps no state: whether a comma is due,
// the text's last byte says, so that several writers may take turns. Owner: the call; one thread.
class JsonWriter {
 public:
  // {"a": [1, 2]}, as Python's json.dumps, or {"a":[1,2]}.
  enum class Style { kSpaced, kCompact };

  explicit JsonWriter(std::string& out, Style style = Style::kSpaced)
      : out_(&out), is_spaced_(style == Style::kSpaced) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  // REQUIRES: a name of letters, digits and _ , which is not escaped.
  JsonWriter& key(std::string_view name) {
    separate();
    out_->append(1, '"').append(name).append("\": ", is_spaced_ ? 3 : 2);
    return *this;
  }

  // Any text.
  JsonWriter& text_key(std::string_view name) {
    value(name);
    out_->append(": ", is_spaced_ ? 2 : 1);
    return *this;
  }

  JsonWriter& value(std::string_view text) {
    separate();
    append_json_string(text, *out_);
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(std::same_as<bool> auto is_true) { return raw(is_true ? "true" : "false"); }
  JsonWriter& value(std::integral auto number) requires(!std::same_as<decltype(number), bool>) {
    char digits[24];
    const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), number);
    return raw({digits, static_cast<std::size_t>(end - digits)});
  }
  // The shortest form, 1.0 as 1. REQUIRES: it is finite.
  JsonWriter& value(std::floating_point auto number) { return raw(number_text(number)); }
  JsonWriter& value(std::nullptr_t) { return raw("null"); }
  template <typename T>
  JsonWriter& value(const std::optional<T>& given) {
    return given ? value(*given) : value(nullptr);
  }
  template <std::ranges::range Items>
  requires(!std::convertible_to<Items, std::string_view>) JsonWriter& value(const Items& items) {
    begin_array();
    for (const auto& item : items) value(item);
    return end_array();
  }
  // JSON as it is, but for blanks at its end.
  JsonWriter& raw(std::string_view json) {
    separate();
    while (json.ends_with(' ')) json.remove_suffix(1);
    out_->append(json);
    return *this;
  }

  template <typename T>
  JsonWriter& field(std::string_view name, const T& given) {
    return key(name).value(given);
  }
  JsonWriter& raw_field(std::string_view name, std::string_view json) {
    return key(name).raw(json);
  }
  // Where there is one.
  template <typename T>
  JsonWriter& given_field(std::string_view name, const std::optional<T>& given) {
    return given ? field(name, *given) : *this;
  }

  std::string& out() { return *out_; }

 private:
  void separate() {
    if (out_->empty()) return;
    const char last = out_->back();
    if (last == '{' || last == '[' || last == ':' || last == ' ') return;
    out_->append(", ", is_spaced_ ? 2 : 1);
  }
  JsonWriter& open(char bracket) {
    separate();
    out_->push_back(bracket);
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_->push_back(bracket);
    return *this;
  }

  std::string* out_;
  bool is_spaced_;
};

}  // namespace lmtp
