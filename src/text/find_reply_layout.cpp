#include "lmtp/text/find_reply_layout.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "call_probe.h"
#include "lmtp/base/log.h"
#include "lmtp/text/known_formats.h"
#include "response_template.h"

namespace lmtp::text {
namespace {

constexpr std::string_view kNone = "none";

bool has_token(const tokenizer::Tokenizer& tokenizer, std::string_view token) {
  const auto ids = tokenizer.encode_around(token, {});
  return ids && ids->size() == 1 && tokenizer.is_special(ids->front());
}

bool is_of(const KnownFormat& format, const ChatTemplate& chat_template) {
  return format.is_of(chat_template.tools_template()) &&
         (format.token.empty() || has_token(chat_template.tokenizer(), format.token));
}

// The variant of that name which the template writes, or the first.
const KnownFormat& named_format(std::string_view name, const CallProbe& probe) {
  const auto& all = known_formats();
  const auto is_named = [name](const KnownFormat& format) { return format.name == name; };
  const auto agreeing = std::ranges::find_if(all, [&](const KnownFormat& format) {
    return is_named(format) && agrees(probe, format.calls);
  });
  return agreeing != all.end() ? *agreeing : *std::ranges::find_if(all, is_named);
}

void set_format(const KnownFormat& format, std::string_view source, ReplyLayout& layout) {
  layout.calls = format.calls;
  layout.dropped = format.dropped;
  layout.message_begin = format.message_begin;
  layout.content_begin = format.content_begin;
  layout.name = format.name;
  layout.source = source;
}

// The table, and what else the probe shows.
void find_calls(const ChatTemplate& chat_template, const CallProbe& probe, ReplyLayout& layout) {
  for (const KnownFormat& format : known_formats()) {
    if (!is_of(format, chat_template) || !agrees(probe, format.calls)) continue;
    return set_format(format, "table", layout);
  }
  layout.source = "probe";
  if (auto probed = derive_layout(probe)) {
    layout.calls.push_back(*std::move(probed));
    layout.name = "probed";
  }
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

bool are_alike(const CallLayout& a, const CallLayout& b) {
  const auto text = [](const CallLayout& layout) {
    return without_spaces(layout.section_begin + layout.call_begin + layout.name_end +
                          layout.argument_begin + layout.argument_name_end + layout.argument_end +
                          layout.call_end + layout.section_end + layout.string_quote);
  };
  return a.arguments == b.arguments && text(a) == text(b);
}

bool open_alike(const CallLayout& layout, const CallLayout& other) {
  return layout.arguments == other.arguments && !other.opening.empty() &&
         without_spaces(layout.section_begin + layout.call_begin)
             .starts_with(without_spaces(other.opening));
}

// A response_template does not tell white space, nor what models write between name and arguments
// besides: that is the template's, or that of a known format, where it opens calls in the same way.
void find_calls_of(const CallLayout& described, const ChatTemplate& chat_template,
                   const CallProbe& probe, ReplyLayout& layout) {
  find_calls(chat_template, probe, layout);
  if (!std::ranges::any_of(layout.calls,
                           [&](const CallLayout& calls) { return open_alike(calls, described); })) {
    const auto& all = known_formats();
    const auto known = std::ranges::find_if(all, [&](const KnownFormat& format) {
      return std::ranges::any_of(
          format.calls, [&](const CallLayout& calls) { return are_alike(calls, described); });
    });
    layout.calls = {described};
    layout.name = "described";
    if (known != all.end()) set_format(*known, "", layout);
  }
  layout.source = "response_template";
}

ResponseTemplate response_template(const ChatTemplate& chat_template) {
  if (chat_template.response_template().empty()) return {};
  auto read = read_response_template(chat_template.response_template());
  if (read) return *std::move(read);
  log::info("tokenizer_config.json's response_template tells nothing of calls here: " +
            read.error().message);
  return {};
}

}  // namespace

bool is_tool_call_format(std::string_view name) {
  return name == kNone || std::ranges::any_of(known_formats(), [name](const KnownFormat& format) {
           return format.name == name;
         });
}

std::string tool_call_format_names() {
  std::set<std::string_view> names;
  for (const KnownFormat& format : known_formats()) names.insert(format.name);
  std::string text;
  for (const std::string_view name : names) {
    text += text.empty() ? "" : ", ";
    text += name;
  }
  return text;
}

ReplyLayout find_reply_layout(const LoadedChatTemplate& loaded, std::string_view option) {
  ReplyLayout layout;
  const ChatTemplate* const chat_template = loaded ? loaded->get() : nullptr;
  const std::string_view source = loaded ? (*loaded)->tools_template() : std::string_view();
  const auto mentions = [source](std::string_view word) {
    return source.find(word) != std::string_view::npos;
  };
  const ResponseTemplate response =
      chat_template != nullptr ? response_template(*chat_template) : ResponseTemplate();
  layout.reasoning = response.reasoning ? response.reasoning : known_reasoning(source);
  if (!layout.reasoning && (mentions("think") || mentions("reason"))) {
    layout.reasoning = probe_reasoning(*chat_template);
  }
  const CallProbe probe = mentions("tool") ? probe_calls(*chat_template) : CallProbe();
  if (option == kNone) {
    if (chat_template != nullptr) find_calls(*chat_template, probe, layout);
    layout.calls.clear();
    layout.name = kNone;
    layout.source = "option";
  } else if (!option.empty()) {
    set_format(named_format(option, probe), "option", layout);
  } else if (response.calls) {
    find_calls_of(*response.calls, *chat_template, probe, layout);
  } else if (chat_template != nullptr) {
    find_calls(*chat_template, probe, layout);
  }
  return layout;
}

}  // namespace lmtp::text
