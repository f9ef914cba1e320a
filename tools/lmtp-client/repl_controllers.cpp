// The REPL's way with controllers of AICI: /controller, and streams that one decides on.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_text.h"
#include "controlled_samples.h"
#include "lmtp/base/json.h"
#include "repl.h"
#include "repl_text.h"

namespace lmtp::tools {

using protocol::ControllerMessage;
using protocol::ServerEntry;

Repl::Status Repl::controller(std::string_view words) {
  ReplParams& params = options_.params;
  const std::string_view all = words;
  const std::string_view first = take_word(words);
  if (first == "upload") return upload_controller(words);
  if (first == "list") {
    const auto answer = link_.ask(ControllerMessage());  // of them all
    if (!answer) return fail(answer.error().message);
    print(describe_tags(*answer));
    return Status::kOk;
  }
  if (first == "off") {
    params.controller.clear();
    params.controller_arg.clear();
  } else if (!all.empty()) {
    params.controller = first;
    params.controller_arg = words;
  } else {
    print(params.controller.empty() ? "none\n"
                                    : params.controller + " " + params.controller_arg + "\n");
  }
  return Status::kOk;
}

Repl::Status Repl::upload_controller(std::string_view words) {
  const std::string path(take_word(words));
  const std::string tag(words);
  if (path.empty()) return fail("write /controller upload FILE.wasm [TAG]");
  auto binary = read_module(path);
  if (!binary) return fail(binary.error().message);
  ControllerMessage message;
  message.op = ControllerMessage::Op::kUpload;
  message.binary = std::move(*binary);
  const auto answer = link_.ask(std::move(message));
  if (!answer) return fail(answer.error().message);
  const auto fields = parse_json_object(*answer, "controller");
  const std::string* const id = fields ? find_json_text(*fields, "module_id") : nullptr;
  if (id == nullptr) return fail("the server gave the module no id: " + *answer);
  if (!tag.empty()) {
    ControllerMessage tags;
    tags.op = ControllerMessage::Op::kTag;
    tags.module_id = *id;
    tags.tags = {tag};
    const auto tagged = link_.ask(std::move(tags));
    if (!tagged) return fail(tagged.error().message + " (the module is there: " + *id + ")");
  }
  print(one_line(*id) + "\n");
  return Status::kOk;
}

// Tokens may be taken back, and the stream may fork, so the texts are printed when it has ended: of
// the first sample as ever, of each other one in a line behind its number.
Repl::Status Repl::generate_controlled(protocol::GenerateMessage message,
                                       const std::string& prompt) {
  ControlledSamples samples;
  ServerLink::Handler handler;
  handler.on_loading = [this](const ServerEntry& entry) { show_loading(entry); };
  handler.on_controlled = [&](const ServerEntry& entry) {
    end_loading();
    if (options_.raw) print(python_repr(entry.raw_json) + "\n");
    if (!entry.error.empty()) {
      std::fprintf(stderr, "[%d ended] %s\n", entry.index, one_line(entry.error).c_str());
    } else if (entry.is_msg) {
      std::fputs(describe_logs(entry).c_str(), stderr);
    } else {
      samples.take(entry);
    }
  };
  const auto outcome = link_.run(std::move(message), handler);
  end_loading();
  std::string answer;  // of a chat
  for (const auto& [index, entries] : samples.all()) {
    tokenizer::StreamDecoder decoder;
    std::string text;
    for (const ServerEntry& entry : entries) {
      text += piece_of(entry, prompt.empty() && text.empty(), decoder);
    }
    text += decoder.finish();
    if (index == 0) answer = text;
    const bool has_prompt = (options_.echo || options_.raw) && !options_.chat;
    if (index == 0 && has_prompt) text.insert(0, prompt);
    print((index == 0 ? text : "[" + std::to_string(index) + "] " + text) + "\n");
  }
  if (options_.chat && outcome) conversation_.add(prompt, answer);
  return status_of(outcome);
}

}  // namespace lmtp::tools
