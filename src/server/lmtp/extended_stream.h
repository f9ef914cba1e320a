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
#include "generation/sample_text.h"
#include "lmtp/aici/instance.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/stream_canceller.h"
#include "net/memory_limit.h"

namespace lmtp::server {

// What has to be done with a model, or with buffers that a BUFFER before it fills.
using Operation =
    std::variant<protocol::GenerateMessage, protocol::ScoreMessage, protocol::TokenizeMessage,
                 protocol::DetokenizeMessage, protocol::BufferMessage>;

// What an operation has of text, parts and buffers, in token ids; or the other way round.
struct Resolved {
  std::vector<TokenId> tokens = {};  // of the prompt, or of the text of a TOKENIZE or BUFFER
  std::vector<TokenId> scored = {};
  std::string text = {};  // of the tokens of a DETOKENIZE
};

// An operation until it is done, or its samples run. Of one thread at a time: the strand's, the
// encoder's, or that of the compiler of grammars.
struct WaitingOperation {
  WaitingOperation(Operation operation_in, std::shared_ptr<MemoryLimit::Part> part_in)
      : operation(std::move(operation_in)), part(std::move(part_in)) {}
  ~WaitingOperation() { part->replace(counted_bytes, 0); }
  WaitingOperation(const WaitingOperation&) = delete;
  WaitingOperation& operator=(const WaitingOperation&) = delete;

  Operation operation;
  const std::shared_ptr<MemoryLimit::Part> part;  // of its connection
  std::size_t counted_bytes = 0;  // in `part`: its own and the buffers that it holds
  // Of the prompt's parts, those that are buffers, as they were in the order of the messages.
  std::vector<std::shared_ptr<const Buffers::Tokens>> buffers;
  bool begins_buffer = false;  // of a BUFFER: there is nothing that it is appended to
  std::optional<Result<Resolved>> resolved;
  std::optional<constraint::GrammarCompiler::Compiled> grammar;  // where it has one
  // Where it has a controller, once it has been instantiated, or that is under way.
  std::shared_ptr<aici::Instance> controller;
  std::shared_ptr<std::optional<Result<aici::Instantiated>>> instantiated;
  int num_awaits = 0;  // how often it has been submitted to wait for its model
  // ModelReady::encoding, while the encoder, the compiler of grammars or a controller has it.
  std::uint64_t encoding = 0;
};

struct ExtendedStream {
  struct Sample {
    std::shared_ptr<registry::StreamCanceller> canceller;  // null: it has ended
    std::optional<SampleText> text;                        // where text or a stop string is sent
  };

  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
  std::shared_ptr<WaitingOperation> waiting;  // null: its samples run
  bool is_stream = true;  // GENERATE or SCORE, whose errors are TOKEN entries; else MSG entries
  std::vector<Sample> samples;
  std::size_t num_alive = 0;  // of the samples
  // Of a fork, until its first token has been sent.
  std::optional<ForkBegun> begun;
  bool sends_text = false;
  bool wants_notices = false;
  std::string into;             // the buffer that gets `tokens` in the end; empty: none
  std::vector<TokenId> tokens;  // where there is `into`: prompt and generated
  int first_token_timeout_ms = 0;
  int timeout_ms = 0;
  std::optional<std::chrono::steady_clock::time_point> first_deadline;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Why it is being cancelled, where that is not what the client asked for.
  std::optional<Error> end_reason;
};

}  // namespace lmtp::server
