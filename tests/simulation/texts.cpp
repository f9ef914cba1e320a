// What the text of a stream must be, and the calls in it.
#include <algorithm>
#include <span>

#include "client.h"

namespace lmtp::simulation {

// The pieces of a call, as "NAME(ARGUMENTS)", or what there is of it.
std::string Client::calls_text(const Json& entry) {
  std::string text;
  for (const Json& piece : entry.value("calls", Json::array())) {
    if (piece.at("index") != 0) text += "another ";
    if (piece.contains("name")) text += piece["name"].get<std::string>() + "(";
    text += piece.value("arguments", "");
    if (piece.value("complete", false)) text += ')';
  }
  return text;
}

void Client::check_text(const ClientStream& stream, const Sample& sample, const Json& entry) const {
  const bool is_last = !entry["finish_reason"].is_null();
  if (!is_last || !stream.has_text || !world_.checks("text")) return;
  const auto first = static_cast<std::size_t>(sample.num_prompt - sample.num_resumed);
  std::string text;
  for (std::size_t i = first; i < sample.text.size(); ++i) text += sample.text[i];
  if (stream.calls) return check_calls(stream, sample, text, entry["finish_reason"] == "stop");
  const std::string right = world_.tokenizer.decode(std::span(sample.tokens).subspan(first));
  if (text != right) fail("the text is wrong: " + text + ", right is " + right);
}

// Less may have come than is known where it breaks off.
void Client::check_calls(const ClientStream& stream, const Sample& sample, const std::string& text,
                         bool is_whole) const {
  const std::string bytes = bytes_of(sample);
  for (const std::string& choice : stream.choices) {
    if (!choice.starts_with(bytes)) continue;
    const std::size_t name = choice.find("\"name\": \"") + 9;
    const std::size_t arguments = choice.find("{\"to\"");
    const std::string right = choice.substr(name, choice.find('"', name) - name) + "(" +
                              choice.substr(arguments, choice.rfind("}\n") - arguments) + ")";
    if (is_whole ? text == right : right.starts_with(text)) return;
  }
  // What breaks off before it is a call is text.
  if (!is_whole && !bytes.starts_with("<tool_call>\n") && text == bytes) return;
  fail("the call is wrong: " + text + ", of " + bytes);
}

std::string Client::bytes_of(const Sample& sample) const {
  const auto first = static_cast<std::size_t>(sample.num_prompt - sample.num_resumed);
  std::string bytes;
  for (std::size_t i = first; i < sample.tokens.size(); ++i) {
    bytes += world_.tokenizer.token_bytes(sample.tokens[i]);
  }
  return bytes;
}

// The bytes begin one of the choices, and the stream ends where nothing may follow.
void Client::check_choice(const ClientStream& stream, const Sample& sample,
                          const Json& entry) const {
  const std::string bytes = bytes_of(sample);
  const auto goes_on = [&](const std::string& choice) { return choice.starts_with(bytes); };
  if (std::ranges::none_of(stream.choices, goes_on)) fail("no such choice: " + bytes, entry);
  const bool is_done = std::ranges::none_of(stream.choices, [&](const std::string& choice) {
    return goes_on(choice) && choice.size() > bytes.size();
  });
  const bool is_full = sample.num_generated() >= stream.num_generated_max(sample);
  const Json reason = is_done ? Json("stop") : is_full ? Json("length") : Json();
  if (entry["finish_reason"] != reason) fail("the end is not where the grammar has it", entry);
}

}  // namespace lmtp::simulation
