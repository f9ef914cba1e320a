// What a chat asks of its reply, and what that means for the model that gives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "intake.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/grammar.h"
#include "lmtp/text/reply_layout.h"
#include "offered_tools.h"
#include "reply.h"

namespace lmtp::server {

struct ReplyWishes {
  std::optional<OfferedTools> tools = {};
  std::optional<Grammar> grammar = {};  // of the content
  int reasoning_tokens_max = -1;        // negative: as many as there may be
  int min_tokens = 0;                   // after the reasoning
  bool has_stop_strings = false;        // which count after it
  std::string begun = {};               // the reply goes on with this, which the prompt ends with
};

struct ReplyPlan {
  std::optional<Grammar> grammar = {};
  std::unique_ptr<GrammarRetry> retry = {};  // null: it compiles, or the request is refused
  ReplyFormat format = {};
  std::vector<std::string> markers = {};  // TextOptions::markers
  bool counts_min_tokens = false;         // the grammar does, and the model's own count must not
  bool has_no_text = false;               // but reasoning and calls, which no stop string ends
};

// Whether a prompt's end, as the template wrote it, leaves a block of reasoning open.
bool opens_reasoning(const text::ReplyLayout& layout, std::string_view prompt);

// `prompt`: as the template wrote it; it may open a block of reasoning. The error, kInvalid,
// "tools: ...", is of a strict tool whose schema cannot be kept in the form of the model's calls.
Result<ReplyPlan> plan_reply(const registry::ReadyModel& model, std::string_view prompt,
                             const ReplyWishes& wishes);

}  // namespace lmtp::server
