#include "raw_options.h"

namespace lmtp::tools {

void add_limit_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("--threads,-t", options.num_threads,
                 "Threads of the computation; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--tensor-parallel-size,--tp,--tp-size,--num-shard", options.tensor_parallel_size,
         "Ranks that the model is divided among, each with its share of the heads and of the "
         "MLP; with --cuda each on a device of its own, on a CPU each with its share of the "
         "threads. It must divide the model's heads and MLP")
      ->check(CLI::Range(1, catalog::kTensorParallelMax))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--communicator", options.communicator,
                 "What carries the sums of ranks: local, the memory of this process; gloo, c10d's "
                 "connections through the loopback interface; nccl, between CUDA devices; or auto: "
                 "local")
      ->type_name("C")
      ->capture_default_str();
  app.add_option(
         "--kv-cache-dtype", options.kv_cache_dtype,
         "Type of keys and values, whatever that of the weights: float32, bfloat16, float16, "
         "fp8_e4m3 (fp8), which takes half the memory of 16 bits, or auto: float32 where "
         "the weights are, otherwise 16 bits")
      ->type_name("D")
      ->capture_default_str();
  app.add_option(
         "--kv-cache", raw.kv_cache,
         "Memory for keys and values, such as 512MiB or 4GiB; on a CPU it is taken as it is "
         "used [the smaller of 4GiB and a quarter of the free memory; on a device what is "
         "free beside the weights, less a margin]")
      ->type_name("SIZE");
  app.add_option("--swap-space", raw.swap_space,
                 "Memory of the host, page-locked, for what a device's KV cache has no place for, "
                 "such as 16GiB; a number alone is GiB [none]")
      ->type_name("SIZE");
  app.add_option("--score-cache", raw.score_cache,
                 "Memory for log probabilities of what was scored or generated, so that a SCORE of "
                 "it computes nothing; from 16 bytes a token, taken as it is used; 0 is none")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--cache-scope", raw.cache_scope,
                 "Whose requests find what is cached of prompts and scores: shared (all), or key "
                 "(those with the same key), which computes more, but no key learns by the time of "
                 "an answer what others have asked")
      ->check(CLI::IsMember({"shared", "key"}))
      ->type_name("S")
      ->capture_default_str();
  app.add_option(
         "--speculate", options.max_drafts,
         "Tokens that may be drawn next, by the stream's own text and by what is cached, go "
         "through the model with the last one, at most so many of a stream; text and "
         "log probabilities are the same. For few streams whose text repeats; 0 is none")
      ->check(CLI::Range(0, catalog::kDraftsMax))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-batched-tokens,--max-num-batched-tokens", options.batch.max_tokens,
                 "Tokens that a step computes")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-concurrent-requests", options.max_concurrent_requests,
                 "Requests held at a time; more are refused")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
}

// What clients may send, leave unread and hold open.
void add_connection_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("--max-message-size", raw.max_message_size,
                 "Longest message of a client; a longer one closes its connection")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-write-queue", raw.max_write_queue,
                 "What may wait for a client that does not read; beyond it, it is closed")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option(
         "--max-buffer-bytes", raw.max_buffer_bytes,
         "Token buffers of a connection, 4 bytes a token; all connections together may have "
         "four times as much")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-read-buffers", raw.max_read_buffers,
                 "What unfinished messages of all clients together may take; beyond it, the client "
                 "whose message began first is closed, short ones left out")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-write-queues", raw.max_write_queues,
                 "What may wait for all clients together; beyond it, the one that most waits for "
                 "is closed")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-connections", options.max_connections,
                 "Connections open at a time; more are answered with 503")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-connections-per-address", options.max_connections_per_address,
                 "Connections open at a time from one IPv4 address or IPv6 /64; more are answered "
                 "with 429 [no limit]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--max-request-rate-per-address", options.max_request_rate_per_address,
                 "HTTP requests and new connections a second from one address, ten times as many "
                 "at once; more are answered with 429 [no limit]")
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("R");
}

void add_operation_options(CLI::App& app, RawOptions& raw) {
  app.add_option("--shutdown-timeout", raw.shutdown_timeout_s,
                 "Seconds that running requests get to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86'400.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--metrics-aliases", raw.metrics_aliases,
                 "Whose names /metrics uses beside its own: vllm, tgi, vllm,tgi or none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"vllm", "tgi", "none"}))
      ->type_name("NAMES")
      ->capture_default_str();
  app.add_option("--trace", raw.options.tracing.path,
                 "Write what each request and step does to this file, for ui.perfetto.dev; without "
                 "texts, tokens and keys")
      ->type_name("FILE");
  app.add_option("--trace-limit", raw.trace_limit, "Tracing ends when its file is so large")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--log-level", raw.log_level, "trace, debug, info, warning, error or off")
      ->type_name("L")
      ->capture_default_str();
  app.add_option(
         "--log-format", raw.log_format,
         "text, or json: a line on standard error is an object with time, level and message")
      ->type_name("F")
      ->capture_default_str();
}

// What one step and one request may have, under the names that TGI's router gives it.
void add_scheduling_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  const CLI::Range tokens(1, 1 << 26);
  app.add_option("--max-input-tokens,--max-input-length", options.max_input_tokens,
                 "Tokens of a prompt; longer ones are refused [one less than --max-total-tokens]")
      ->check(tokens)
      ->type_name("N");
  app.add_option("--max-total-tokens", options.max_total_tokens,
                 "Tokens of a prompt and what is generated [the context]")
      ->check(tokens)
      ->type_name("N");
  app.add_option("--max-batch-prefill-tokens", options.batch.max_prefill_tokens,
                 "Tokens that a step computes of prompts, beside one token of each running request "
                 "[what --max-batched-tokens leaves]")
      ->check(tokens)
      ->type_name("N");
  app.add_option(
         "--max-batch-total-tokens", options.batch.max_total_tokens,
         "Tokens that all running requests may come to have, prompt and max_tokens of each; "
         "none is set back then [no limit: as many run as probably fit]")
      ->check(tokens)
      ->type_name("N");
  app.add_option("--waiting-served-ratio", raw.pacing.waiting_served_ratio,
                 "Prompts are let in beside running requests once so many wait for each of these "
                 "[at once; 0.3 with --max-waiting-tokens]")
      ->check(CLI::Range(0.0, 1024.0))
      ->type_name("R");
  app.add_option("--max-waiting-tokens", raw.pacing.max_waiting_steps,
                 "Or once running requests had so many tokens since the last of them [at once; 20 "
                 "with --waiting-served-ratio]")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N");
}

// Of requests over HTTP, under the names that TGI's router gives them; no higher than LMTP's own
// limits.
void add_api_options(CLI::App& app, RawOptions& raw) {
  server::ApiLimits& limits = raw.options.api;
  app.add_option("--max-best-of", limits.max_best_of,
                 "Sequences of one HTTP request of which the best is answered (best_of)")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-stop-sequences", limits.max_stop_sequences,
                 "Stop sequences of one HTTP request (stop)")
      ->check(CLI::Range(0, 16))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-top-n-tokens", limits.max_top_n_tokens,
                 "Alternatives of each token that an HTTP request may ask for (top_n_tokens)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--no-ui", raw.options.no_ui, "Leave the page at /ui away");
  app.add_flag("--open-objects", limits.open_objects,
               "Schemas over HTTP to the letter: objects may have members beside the properties "
               "that they name, without additionalProperties: false");
}

// Limits that contradict each other: no request could come to the larger one.
void check_token_limits(const ServeOptions& options) {
  struct Limit {
    const char* option;
    int value;  // 0: not given
  };
  const Limit input{"--max-input-tokens", options.max_input_tokens};
  const Limit total{"--max-total-tokens", options.max_total_tokens};
  const Limit batch{"--max-batch-total-tokens", options.batch.max_total_tokens};
  const Limit context{"--context-length", options.context_length};
  const auto check = [](const Limit& lower, const Limit& upper, int num_between) {
    if (lower.value == 0 || upper.value == 0 || lower.value + num_between <= upper.value) return;
    throw CLI::ValidationError(
        lower.option, std::to_string(lower.value) + " is too large; with " + upper.option + " " +
                          std::to_string(upper.value) + " at most " +
                          std::to_string(upper.value - num_between) + " are allowed");
  };
  for (const Limit& upper : {total, batch, context}) check(input, upper, 1);
  for (const Limit& upper : {batch, context}) check(total, upper, 0);
}

}  // namespace lmtp::tools
