// What a stream keeps that asked for more than the base protocol gives, from its message on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "buffers.h"
#include "generation/intake.h"
#include "generation/read_grammar.h"
#include "generation/reply_plan.h"
#include "generation/sample_text.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/stream_canceller.h"
#include "stream_rows.h"

namespace lmtp::server {

struct Peer;

// What has to be done with a model, or with buffers that a BUFFER before it fills.
using Operation =
    std::variant<protocol::GenerateMessage, protocol::ScoreMessage, protocol::DecideMessage,
                 protocol::TokenizeMessage, protocol::DetokenizeMessage, protocol::BufferMessage>;

// An operation until it is done, or its samples run.
struct WaitingOperation final : Intake {
  WaitingOperation(CallerModels models, Encoder& encoder, const Peer& peer, Operation operation_in);

  Operation operation;
  // Of the prompt's parts, those that are buffers, as they were in the order of the messages.
  std::vector<std::shared_ptr<const Buffers::Tokens>> buffers;
  bool begins_buffer = false;  // of a BUFFER: there is nothing that it is appended to
  const SchemaReading schema_reading;
  ReplyPlan plan;  // of a chat whose reply is read, but for the grammar

 private:
  Result<Encoded> encode(const registry::ReadyModel& model) override;
  std::size_t num_bytes() const override;

  const std::size_t max_answer_bytes_;
};

struct ExtendedStream {
  struct Sample {
    std::shared_ptr<registry::StreamCanceller> canceller;  // null: it has ended
    std::optional<SampleText> text;                        // where text or a stop string is sent
  };

  runtime::Clock::time_point arrival = runtime::Clock::now();
  std::shared_ptr<WaitingOperation> waiting;  // null: its samples run
  bool is_stream =
      true;  // GENERATE, SCORE or DECIDE, whose errors are TOKEN entries; else MSG entries
  std::vector<Sample> samples;
  std::size_t num_alive = 0;         // of the samples
  std::shared_ptr<StreamRows> rows;  // in the place of samples; null: none
  // Of a fork, until its first token has been sent.
  std::optional<ForkBegun> begun;
  bool sends_text = false;
  bool is_parsed = false;  // calls and reasoning are told apart from its text
  bool wants_notices = false;
  std::string into;             // the buffer that gets `tokens` in the end; empty: none
  std::vector<TokenId> tokens;  // where there is `into`: prompt and generated
  int first_token_timeout_ms = 0;
  int timeout_ms = 0;
  std::optional<runtime::Clock::time_point> first_deadline;
  std::optional<runtime::Clock::time_point> deadline;
  // Why it is being cancelled, where that is not what the client asked for.
  std::optional<Error> end_reason;
};

}  // namespace lmtp::server
