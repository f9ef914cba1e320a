#include "lmtp/text/call_writer.h"

namespace lmtp::text {
namespace {

using Arguments = CallLayout::Arguments;

// As Python writes it; of a string only what needs no escapes.
std::string python_value(const OrderedJson& value) {
  if (value.is_string()) return "'" + value.get<std::string>() + "'";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_null() ? "None" : json_text(value);
}

std::string loose_value(const OrderedJson& value, const std::string& quote) {
  if (value.is_string()) return quote + value.get<std::string>() + quote;
  if (!value.is_structured()) return json_text(value);
  std::string text;
  for (const auto& [name, one] : value.items()) {
    if (!text.empty()) text += ',';
    if (value.is_object()) text += name + ":";
    text += loose_value(one, quote);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string tagged(const CallLayout& layout, const std::string& name, const OrderedJson& value) {
  const bool is_text = value.is_string();
  const bool is_other = is_text && !layout.string_name_end.empty();
  return layout.argument_begin + name +
         (is_other ? layout.string_name_end : layout.argument_name_end) +
         (is_text ? value.get<std::string>() : json_text(value)) + layout.argument_end;
}

std::string write_arguments(const CallLayout& layout, const OrderedJson& arguments) {
  if (layout.arguments == Arguments::kJson) return json_text(arguments);
  if (layout.arguments == Arguments::kLoose) return loose_value(arguments, layout.string_quote);
  std::string text;
  for (const auto& [name, value] : arguments.items()) {
    const bool is_first = text.empty();
    if (layout.arguments == Arguments::kPython) {
      text += (is_first ? "" : ", ") + name + "=" + python_value(value);
    } else {
      text += (is_first ? "" : layout.argument_separator) + tagged(layout, name, value);
    }
  }
  return text;
}

}  // namespace

std::string write_calls(const CallLayout& layout, const std::vector<WrittenCall>& calls) {
  std::string text = layout.section_begin;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) text += layout.separator;
    text += layout.call_begin;
    if (!layout.name_begin.empty()) text += calls[i].id + layout.name_begin;
    text += calls[i].name;
    if (!layout.index_begin.empty()) text += layout.index_begin + std::to_string(i);
    if (!layout.id_begin.empty()) text += layout.id_begin + calls[i].id;
    text += layout.name_end + write_arguments(layout, calls[i].arguments) + layout.call_end;
  }
  return text + layout.section_end;
}

}  // namespace lmtp::text
