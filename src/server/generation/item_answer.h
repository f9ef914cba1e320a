// Answers that consist of items: texts, blocks of reasoning and calls, one after the other, as
// Anthropic's API and OpenAI's /v1/responses have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "generation.h"
#include "held_answer.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

struct ReplyItem {
  enum class Kind { kText, kReasoning, kCall };

  Kind kind = Kind::kText;
  std::string id = {};        // of a call
  std::string function = {};  // that is called
  // Or the arguments' JSON. Of an answer that keeps no items: what has not been written.
  std::string text = {};
  bool is_whole = false;      // of a call: it has all of its arguments
  std::string logprobs = {};  // of a text, where the answer has them: JSON, with commas between
};

enum class ReplyEnd {
  kStop,      // the model's own
  kCalls,     // the same, with calls, all of them whole
  kStopText,  // a stop string
  kLength,    // as many tokens as were asked for
  kContext,   // as many tokens as the model may have
};

struct ItemOptions {
  std::string model = {};  // as the client named it
  bool streams = false;
  bool keeps_items = true;             // until the end, which streams need not
  std::optional<int> max_tokens = {};  // as given; what fits counts where that is less
  std::string_view id_prefix = {};
  std::string_view prompt_field = "messages";  // errors are about
};

// The half that does not depend on the protocol: reads replies into items, counts, and streams
// events or sends one body. Owner: the generation; the connection's strand. `context` outlives it.
class ItemAnswer : public GenerationListener {
 public:
  ItemAnswer(ServerContext& context, ItemOptions options, std::shared_ptr<HttpResponder> responder);

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& params) override;
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_reply(Reply reply) override;
  Result<void> on_step() override;
  void on_end() override;
  void on_error(const Error& error, bool no_model) override;

  bool streams() const { return options_.streams; }
  // Writes silence() to a stream, also before its first event.
  void keep_alive();

 protected:
  // What a stream has: appended to events().
  virtual void write_start() = 0;
  virtual void write_item_start(const ReplyItem& item, std::size_t index) = 0;
  virtual void write_piece(const ReplyItem& item, std::size_t index, std::string_view piece) = 0;
  virtual void write_item_end(const ReplyItem& item, std::size_t index) = 0;
  virtual void write_end() = 0;
  virtual void write_error(const Error& error, bool no_model) = 0;
  virtual std::string_view silence() const = 0;
  // A token's log probabilities as JSON; empty: the answer has none.
  virtual std::string logprobs_of(const TokenEvent& /*token*/) { return {}; }
  // What is not streamed.
  virtual std::string whole() = 0;
  virtual HttpResponse refusal(const Error& error, bool no_model) const = 0;

  ServerContext& context() const { return context_; }
  HttpResponder& responder() const { return *responder_; }
  std::string& events() { return events_; }
  const std::string& id() const { return id_; }
  const std::string& model() const { return model_; }  // as the answer names it
  const std::vector<ReplyItem>& items() const { return items_; }
  const std::string& new_logprobs() const { return new_logprobs_; }  // in write_piece()
  ReplyEnd end() const;
  const std::optional<std::string>& stop_text() const { return stop_text_; }
  std::int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  // Tokens of the prompt; nothing: nobody has told.
  std::optional<int> num_cached() const { return num_cached_; }
  int num_tokens() const { return num_tokens_; }
  int num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  void read(const Content& event) { add(ReplyItem::Kind::kText, event.text); }
  void read(const Reasoning& event) { add(ReplyItem::Kind::kReasoning, event.text); }
  void read(CallBegins& event);
  void read(const CallArguments& event) { add(ReplyItem::Kind::kCall, event.json); }
  void read(CallEnds event);
  void add(ReplyItem::Kind kind, std::string_view piece);
  void open(ReplyItem item);
  void close();
  void take_logprobs();
  void start();
  void send_events();

  ServerContext& context_;
  const ItemOptions options_;
  const std::shared_ptr<HttpResponder> responder_;
  const std::string id_;
  std::string model_;
  std::vector<ReplyItem> items_;
  std::string pending_logprobs_;  // of tokens whose text is still to come
  std::string new_logprobs_;      // of the piece that is written
  bool is_open_ = false;          // the last one
  bool is_started_ = false;       // the answer, with the first reply
  bool is_begun_ = false;         // some of the stream has been sent
  bool fits_ = true;              // max_tokens into the context
  FinishReason reason_ = FinishReason::kNone;
  std::optional<std::string> stop_text_;
  std::int64_t num_prompt_tokens_ = 0;
  std::optional<int> num_cached_;
  int num_tokens_ = 0;
  int num_reasoning_tokens_ = 0;
  std::string events_;  // of this step
  HeldAnswer held_;
};

// Generates, and answers. Thread: the strand of `responder`.
void answer_items(ServerContext& context, GenerationRequest request,
                  const std::shared_ptr<HttpResponder>& responder,
                  const std::shared_ptr<ItemAnswer>& answer);

}  // namespace lmtp::server
