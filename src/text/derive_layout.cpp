// From the texts of a probe to a layout: what two calls have in common.
#include <algorithm>
#include <array>
#include <string_view>

#include "call_probe.h"
#include "lmtp/base/utf8.h"

namespace lmtp::text {
namespace {

using Arguments = CallLayout::Arguments;
using View = std::string_view;

constexpr View kWhiteSpace = " \t\r\n";
constexpr std::size_t kLiteralBytesMax = 256;  // of each text of a layout

View common_begin(View a, View b) {
  return a.substr(0, std::ranges::mismatch(a, b).in1 - a.begin());
}

View common_end(View a, View b) {
  std::size_t size = 0;
  while (size < std::min(a.size(), b.size()) && a[a.size() - size - 1] == b[b.size() - size - 1]) {
    ++size;
  }
  return a.substr(a.size() - size);
}

View without_begin(View text, View begin) { return text.substr(begin.size()); }
View without_end(View text, View end) { return text.substr(0, text.size() - end.size()); }

View left_trimmed(View text) {
  return text.substr(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
}
View right_trimmed(View text) { return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1); }

// A common begin without a tag that goes on differently.
View whole_tags(View begin) {
  const std::size_t opens = begin.rfind('<');
  if (opens == View::npos || begin.find('>', opens) != View::npos) return begin;
  return begin.substr(0, opens);
}

// A common end without the end of a tag that begins differently.
View from_first_tag(View end) {
  const std::size_t opens = end.find('<');
  return opens == View::npos ? left_trimmed(end) : end.substr(opens);
}

// One call in a text.
struct Found {
  View before;      // the name, back to the call before or to the beginning
  View after_name;  // up to the arguments
  View after;       // the arguments, to the end
  // Where the arguments are no JSON: what stands around names and values, by argument: between the
  // name before and this one's, and between that and the value.
  std::vector<std::array<View, 2>> around;
};

// The object in the text whose first key is at `key` and whose last value ends at `end`.
bool is_json(View text, std::size_t key, std::size_t end, const OrderedJson& arguments,
             Found& found) {
  const std::size_t begin = text.substr(0, key).rfind('{');
  const std::size_t close = text.find('}', end);
  if (begin == View::npos || close == View::npos) return false;
  const auto parsed = parse_ordered_json(text.substr(begin, close + 1 - begin), "");
  if (!parsed || *parsed != arguments) return false;
  found.after_name = text.substr(0, begin);
  found.after = text.substr(close + 1);
  return true;
}

std::string value_text(const OrderedJson& value) {
  if (value.is_boolean()) return "rue";  // true or True
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

std::optional<Found> find_call(View text, const WrittenCall& call) {
  const std::size_t name = text.find(call.name);
  if (name == View::npos) return std::nullopt;
  Found found;
  found.before = text.substr(0, name);
  const View rest = text.substr(name + call.name.size());
  std::size_t at = 0;
  std::size_t first_key = View::npos;
  for (const auto& [key, value] : call.arguments.items()) {
    const std::size_t key_at = rest.find(key, at);
    if (key_at == View::npos) return std::nullopt;
    const std::size_t key_end = key_at + key.size();
    const std::string written = value_text(value);
    std::size_t value_at = rest.find(written, key_end);
    if (value_at == View::npos || value_at == 0) return std::nullopt;
    const std::size_t value_end = value_at + written.size();
    if (value.is_boolean()) --value_at;
    first_key = std::min(first_key, key_at);
    found.around.push_back(
        {rest.substr(at, key_at - at), rest.substr(key_end, value_at - key_end)});
    at = value_end;
  }
  if (is_json(rest, first_key, at, call.arguments, found)) {
    found.around.clear();
  } else {
    found.after_name = found.around.front()[0];
    found.after = rest.substr(at);
  }
  return found;
}

// Takes what stands around the arguments out of what stands around the calls. `last`: the other
// call, which has one argument.
bool read_python(Found& found, Found& last, CallLayout& layout) {
  const View quote = found.around[0][1].substr(std::min<std::size_t>(1, found.around[0][1].size()));
  if (found.after_name != "(" || (quote != "'" && quote != "\"") || found.around[1][1] != "=" ||
      found.around[1][0] != std::string(quote) + ", " || last.after_name != "(") {
    return false;
  }
  layout.arguments = Arguments::kPython;
  return true;
}

bool read_loose(Found& found, Found& last, CallLayout& layout) {
  const View quote = found.around[0][1].substr(std::min<std::size_t>(1, found.around[0][1].size()));
  if (!found.after_name.ends_with('{') || !last.after_name.ends_with('{') || quote.empty() ||
      found.around[0][1] != ":" + std::string(quote) || found.around[1][1] != ":" ||
      found.around[1][0] != std::string(quote) + "," || !found.after.starts_with('}') ||
      !last.after.starts_with('}')) {
    return false;
  }
  layout.arguments = Arguments::kLoose;
  layout.string_quote = quote;
  for (Found* call : {&found, &last}) {
    call->after_name.remove_suffix(1);
    call->after.remove_prefix(1);
  }
  return true;
}

bool read_tags(Found& found, Found& last, CallLayout& layout) {
  const auto has_tag = [](View text) { return text.find_first_of("<[]|") != View::npos; };
  const View between = found.around[1][0];
  const View begin = from_first_tag(common_end(found.after_name, between));
  const View end = common_begin(without_end(between, begin), found.after);
  if (!has_tag(begin) || !has_tag(end) || !last.after_name.ends_with(begin) ||
      !last.after.starts_with(end) || last.around[0][1] != found.around[1][1]) {
    return false;
  }
  layout.arguments = Arguments::kTagged;
  layout.argument_begin = begin;
  layout.argument_name_end = found.around[1][1];
  if (found.around[0][1] != found.around[1][1]) layout.string_name_end = found.around[0][1];
  layout.argument_separator = without_begin(without_end(between, begin), end);
  layout.argument_end = end;
  for (Found* call : {&found, &last}) {
    call->after_name.remove_suffix(begin.size());
    call->after.remove_prefix(end.size());
  }
  return true;
}

bool read_arguments(Found& found, Found& last, CallLayout& layout) {
  if (found.around.empty() != last.around.empty()) return false;
  return found.around.empty() || read_python(found, last, layout) ||
         read_loose(found, last, layout) || read_tags(found, last, layout);
}

// What follows the name: [index_begin DIGITS] [id_begin ID] name_end.
bool read_name_end(View first, View second, CallLayout& layout) {
  const std::vector<WrittenCall> calls = probe_call_list(2);
  if (const std::size_t at = first.find(calls[0].id); at != View::npos) {
    layout.id_begin = first.substr(0, at);
    layout.name_end = first.substr(at + calls[0].id.size());
    return at > 0 && second == layout.id_begin + calls[1].id + layout.name_end;
  }
  const View same = common_begin(first, second);
  if (first == second) {
    layout.name_end = first;
    return true;
  }
  if (same.empty() || same.size() == first.size()) return false;
  const char digit = first[same.size()];
  layout.index_begin = same;
  layout.name_end = first.substr(same.size() + 1);
  return (digit == '0' || digit == '1') &&
         second == std::string(same) + static_cast<char>(digit + 1) + layout.name_end;
}

// What stands before the name: call_begin [ID name_begin]. `first` and `second` lose it.
bool read_call_begin(View& first, View& second, CallLayout& layout) {
  const std::vector<WrittenCall> calls = probe_call_list(2);
  const std::size_t at = first.find(calls[0].id);
  const std::size_t other = second.find(calls[1].id);
  if ((at == View::npos) != (other == View::npos)) return false;
  if (at != View::npos) {
    layout.name_begin = first.substr(at + calls[0].id.size());
    if (layout.name_begin.empty() ||
        second.substr(other + calls[1].id.size()) != layout.name_begin) {
      return false;
    }
    first = first.substr(0, at);
    second = second.substr(0, other);
  }
  const View common = common_end(first, second);
  const View begin = common.size() == first.size() ? common : from_first_tag(common);
  layout.call_begin = begin;
  first.remove_suffix(begin.size());
  second.remove_suffix(begin.size());
  return true;
}

// The literal that tells of calls, out of what stands before the first name.
std::string opening_of(View begin) {
  if (begin.starts_with('{') || begin.starts_with("[{") || begin == "[") return {};
  const char close = begin.starts_with('<') ? '>' : begin.starts_with('[') ? ']' : '[';
  const std::size_t at = begin.find(close);
  return std::string(at == View::npos ? begin : begin.substr(0, at + 1));
}

bool is_plausible(const CallLayout& layout) {
  const View begin = layout.section_begin.empty() ? layout.call_begin : layout.section_begin;
  if (begin.empty()) return false;
  // JSON in a string: a list of calls as Python writes it.
  if (layout.arguments == Arguments::kJson && !layout.name_end.empty() &&
      (layout.name_end.back() == '\'' || layout.name_end.back() == '"')) {
    return false;
  }
  if (layout.opening.empty() && layout.arguments == Arguments::kTagged) return false;
  if (!layout.opening.empty() &&
      (layout.opening.size() < 3 || layout.opening.find_first_of("<[|{`#>") == View::npos)) {
    return false;
  }
  for (const std::string* text :
       {&layout.section_begin, &layout.separator, &layout.section_end, &layout.call_begin,
        &layout.name_begin, &layout.index_begin, &layout.id_begin, &layout.name_end,
        &layout.call_end, &layout.argument_begin, &layout.argument_name_end,
        &layout.string_name_end, &layout.argument_separator, &layout.argument_end,
        &layout.string_quote}) {
    if (text->size() > kLiteralBytesMax || !is_utf8(*text) || text->find("lmtp") != View::npos ||
        text->find("LMTP") != View::npos) {
      return false;
    }
  }
  return true;
}

// The text of the calls, without how an assistant's message begins.
View without_header(View text, View before_answer) {
  return left_trimmed(without_begin(text, whole_tags(common_begin(text, before_answer))));
}

// What ends a section, out of what follows its last call: up to the closing tag, or to the end of
// the message.
std::optional<View> section_end(View begin, View rest, View after_answer) {
  const View tag = begin.substr(0, begin.find('>') + 1);
  if (tag.starts_with('<') && tag.ends_with('>')) {
    const std::string closing = "</" + std::string(tag.substr(1));
    const std::size_t at = rest.find(closing);
    if (at != View::npos) return rest.substr(0, at + closing.size());
  }
  if (after_answer.empty() || !rest.ends_with(after_answer)) return std::nullopt;
  return right_trimmed(without_end(rest, after_answer));
}

std::optional<CallLayout> derive_from_two(const CallProbe& probe) {
  const std::vector<WrittenCall> calls = probe_call_list(2);
  const View text = without_header(probe.two_calls, probe.before_answer);
  auto first = find_call(text, calls[0]);
  auto second = find_call(text, calls[1]);
  if (!first || !second) return std::nullopt;
  CallLayout layout;
  if (!read_arguments(*first, *second, layout)) return std::nullopt;
  const std::size_t begin = text.size() - first->after.size();
  const std::size_t end = second->before.size();
  if (begin > end) return std::nullopt;
  View between = text.substr(begin, end - begin);
  View section = first->before;
  if (!read_name_end(first->after_name, second->after_name, layout) ||
      !read_call_begin(section, between, layout)) {
    return std::nullopt;
  }
  layout.section_begin = section;
  layout.call_end = right_trimmed(whole_tags(common_begin(between, second->after)));
  layout.separator = without_begin(between, layout.call_end);
  const auto closing =
      section_end(section, without_begin(second->after, layout.call_end), probe.after_answer);
  if (!closing && !section.empty()) return std::nullopt;
  layout.section_end = closing.value_or("");
  layout.opening = opening_of(layout.section_begin + layout.call_begin);
  return layout;
}

// For a template that writes one call a message, as JSON.
std::optional<CallLayout> derive_from_one(const CallProbe& probe) {
  const View text = without_header(probe.one_call, probe.before_answer);
  const auto found = find_call(text, probe_call_list(1).front());
  if (!found || !found->around.empty() || !found->after.ends_with(probe.after_answer)) {
    return std::nullopt;
  }
  CallLayout layout;
  layout.call_begin = found->before;
  layout.name_end = found->after_name;
  layout.call_end = right_trimmed(without_end(found->after, probe.after_answer));
  layout.opening = opening_of(layout.call_begin);
  return layout;
}

}  // namespace

std::optional<CallLayout> derive_layout(const CallProbe& probe) {
  if (probe.before_answer.empty() || probe.one_call.empty()) return std::nullopt;
  auto layout = probe.two_calls.empty() ? derive_from_one(probe) : derive_from_two(probe);
  if (!layout || !is_plausible(*layout) || !agrees(probe, {*layout})) return std::nullopt;
  return layout;
}

}  // namespace lmtp::text
