// Replies to chats of each known format: what a model may write, and what is read out of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "generation/reply_plan.h"
#include "lmtp/base/json.h"
#include "lmtp/text/call_writer.h"
#include "lmtp/text/known_formats.h"
#include "lmtp/text/stream_text.h"
#include "support/constraint_driver.h"
#include "temp_folder.h"

namespace lmtp::server {

using text::CallLayout;
using text::ReplyLayout;
using Choice = OfferedTools::Choice;

inline const std::string kWeather =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
          "at": {"type": "object", "properties": {"lat": {"type": "number"},
            "names": {"type": "array", "items": {"type": "string"}}},
            "required": ["lat"], "additionalProperties": false}},
        "required": ["city"], "additionalProperties": false})";
inline const std::string kNothing =
    R"({"type": "object", "properties": {}, "additionalProperties": false})";

inline OfferedTools some_tools(Choice choice = Choice::kAuto) {
  OfferedTools tools{.functions = {{"weather", kWeather}}, .choice = choice};
  if (choice == Choice::kNamed) return tools;
  tools.functions.push_back({"weather_at", kWeather});
  tools.functions.push_back({"stop", kNothing});
  return tools;
}

using Calls = std::vector<text::WrittenCall>;

inline Calls some_calls() {
  const auto read = [](const char* json) { return *parse_ordered_json(json, ""); };
  return {{"weather", "abc123456", read(R"x({"city": "Rome (I)", "days": 3})x")},
          {"stop", "abc123457", read("{}")},
          {"weather_at", "abc123458",
           read(R"({"city": "Bonn", "at": {"lat": 1.5, "names": ["x", "y"]}})")}};
}

inline const Calls kAll = some_calls();
inline const Calls kOne = {kAll.front()};

// One way to write calls, of a model that may have others beside.
struct Form {
  std::string name;
  ReplyLayout reply;
  CallLayout calls;

  bool opens() const { return !calls.opening.empty(); }
  std::string written(const Calls& some) const { return text::write_calls(calls, some); }
};

inline std::vector<Form> forms() {
  std::vector<Form> forms;
  for (const text::KnownFormat& format : text::known_formats()) {
    for (const CallLayout& calls : format.calls) {
      const bool is_there = std::ranges::any_of(forms, [&](const Form& form) {
        return form.calls == calls && form.reply.dropped == format.dropped;
      });
      const std::string name(format.name);
      if (is_there) continue;
      forms.push_back({name + " " + text::write_calls(calls, kOne),
                       {.calls = format.calls,
                        .dropped = format.dropped,
                        .message_begin = format.message_begin,
                        .content_begin = format.content_begin,
                        .name = name},
                       calls});
    }
  }
  return forms;
}

// One form for each way to write arguments, whatever their marks are.
inline std::vector<Form> argument_forms() {
  const auto way = [](const CallLayout& calls) {
    return std::tuple(calls.arguments, calls.string_name_end.empty(), calls.text_begin.empty(),
                      calls.argument_separator.empty());
  };
  std::vector<Form> some;
  for (Form& form : forms()) {
    const bool is_new = std::ranges::none_of(
        some, [&](const Form& other) { return way(other.calls) == way(form.calls); });
    if (is_new) some.push_back(std::move(form));
  }
  return some;
}

inline CallLayout hermes() { return text::known_formats().front().calls.front(); }

// The demo's, with the special tokens that models of the table have.
inline const constraint::testing::Tokenizer& model_tokenizer() {
  static const auto loaded = [] {
    std::set<std::string> marks;
    const std::regex mark("<[|][^<>]*[|]>|<\uff5c[^<>]*\uff5c>|\\[[A-Z_]+\\]");
    for (const Form& form : forms()) {
      std::string text = form.written(kAll);
      for (const std::string& dropped : form.reply.dropped) text += dropped;
      marks.insert(std::sregex_token_iterator(text.begin(), text.end(), mark), {});
    }
    const testing::TempFolder folder;
    const std::string demo = testing::source_dir() + "/models/demo/";
    for (const char* file : {"config.json", "tokenizer.json"}) {
      std::filesystem::copy(demo + file, folder.path() + "/" + file);
    }
    const OrderedJson config = {{"tokenizer_class", "GPT2Tokenizer"},
                                {"additional_special_tokens", marks}};
    folder.write("tokenizer_config.json", config.dump());
    return constraint::testing::Tokenizer(*tokenizer::load_tokenizer(folder.path()));
  }();
  return loaded;
}

class Replies {
 public:
  Replies(ReplyLayout layout, ReplyWishes wishes, std::string_view prompt = "") {
    layout_ = std::make_shared<const ReplyLayout>(std::move(layout));
    registry::ReadyModel model{"m", {}, model_tokenizer(), Error{}};
    model.reply_layout = layout_;
    auto plan = plan_reply(model, prompt, wishes);
    if (plan) {
      plan_ = *std::move(plan);
    } else {
      refusal_ = plan.error();
    }
  }

  // What is compiled, as an intake does it.
  Result<constraint::ConstrainedStream> stream() {
    if (refusal_) return *refusal_;
    auto compiled = constraint::testing::compile(streams().compiler(),
                                                 {plan_.grammar->kind, plan_.grammar->text});
    while (plan_.retry != nullptr) {
      auto other = plan_.retry->next(compiled.ok());
      if (!other) break;
      plan_.grammar = std::move(other);
      compiled = constraint::testing::compile(streams().compiler(),
                                              {plan_.grammar->kind, plan_.grammar->text});
    }
    if (!compiled) return Error{compiled.error()};
    return constraint::constrain(*compiled, {}, nullptr, plan_.grammar->triggers);
  }

  // How much of the text a model may write, and whether it ends
  // there.
  std::string written(const std::string& text, bool& ends) {
    auto stream = this->stream();
    EXPECT_TRUE(stream.ok()) << stream.error().message << "\n" << plan_.grammar->text;
    ends = false;
    if (!stream.ok()) return {};
    const auto ids = streams().tokenizer().encode_around(text, {});
    std::vector<TokenId> tokens;
    for (const TokenId id : *ids) {
      const auto next = streams().next(*stream->mask_source, tokens);
      if (!next.ok() || !next->allows(id)) break;
      tokens.push_back(id);
      ends = stream->stops->push(id, true);
      if (ends) break;
    }
    return streams().text_of(tokens);
  }

  std::string read(const std::string& written, std::size_t size,
                   FinishReason reason = FinishReason::kStop) const {
    const std::string text = text::mark_special(*model_tokenizer(), written);
    const auto reader = plan_.format();
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) {
      TokenEvent token;
      if (at + size >= text.size()) token.finish_reason = reason;
      ReplyEvents events;
      reader->read(text.substr(at, size), token, false, events);
      out += shown_events(events);
    }
    for (auto at = out.find("~~"); at != std::string::npos; at = out.find("~~")) out.erase(at, 2);
    return out;
  }

  const ReplyPlan& plan() const { return plan_; }
  // What one test has compiled others need not.
  static constraint::testing::Streams& streams() {
    static const bool is_there = constraint::grammar_support().ok();  // and outlives it
    EXPECT_TRUE(is_there);
    static constraint::testing::Streams of_all{model_tokenizer()};
    return of_all;
  }

 private:
  static std::string shown_events(const ReplyEvents& events) {
    std::string out;
    for (const ReplyEvent& event : events) {
      if (const auto* content = std::get_if<Content>(&event)) out += content->text;
      if (const auto* thought = std::get_if<Reasoning>(&event)) out += "~" + thought->text + "~";
      if (const auto* call = std::get_if<CallBegins>(&event)) out += "{" + call->function + " ";
      if (const auto* arguments = std::get_if<CallArguments>(&event)) out += arguments->json;
      if (std::holds_alternative<CallEnds>(event)) out += "}";
    }
    return out;
  }
  std::shared_ptr<const ReplyLayout> layout_;
  ReplyPlan plan_;
  std::optional<Error> refusal_;
};

// As Replies::read() shows them.
inline std::string shown_calls(const Calls& calls) {
  std::string out;
  for (const auto& call : calls) out += "{" + call.name + " " + json_text(call.arguments) + "}";
  return out;
}

}  // namespace lmtp::server
