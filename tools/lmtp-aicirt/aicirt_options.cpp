#include "aicirt_options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "lmtp/base/version.h"

namespace lmtp::aicirt {
namespace {

constexpr int kExitUsage = 2;
constexpr int kMiBMax = 4095;

constexpr const char* kDescription =
    "Runs AICI controllers for an engine, by AICI's shared memory: in the place of aicirt.\n"
    "It speaks the dialect of aicirt v0.0.5 to v0.0.10, or that of v0.2.0 and later where one of\n"
    "the options is given that only those have (--cap-..., --bias-dtype, --logits-size,\n"
    "--restricted, --wasm-max-timeout-steps).";

void add_options(CLI::App& app, AicirtOptions& options) {
  app.add_option("-t,--tokenizer", options.tokenizer,
                 "the model's folder, a tokenizer.json in it, or a GGUF file");
  app.add_flag("-s,--server", options.server, "serve by shared memory; it does nothing else");
  app.add_option("-n,--name", options.name, "prefix of the shared memory's names");
  app.add_flag("--futex", options.futex, "futexes in the place of semaphores");
  app.add_option("--json-size", options.json_mib, "MiB of each area of messages (8; C: 128)")
      ->check(CLI::Range(1, kMiBMax));
  app.add_option("--bin-size", options.bin_mib, "MiB of the area of biases (16; C: 64)")
      ->check(CLI::Range(1, kMiBMax));
  app.add_option("--busy-wait-time", options.busy_wait_ms, "ms of spinning for a message (200)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--wasm-max-forks", options.max_forks, "live sequences of a request (16)")
      ->check(CLI::PositiveNumber);
  app.add_option("--wasm-max-memory", options.max_memory_mib, "MiB of a controller (64)")
      ->check(CLI::PositiveNumber);
  app.add_option("--wasm-max-pre-step-time", options.max_pre_step_ms, "ms, dialect A (4)")
      ->check(CLI::PositiveNumber);
  app.add_option("--wasm-max-step-time", options.max_step_ms, "ms of a step (150; C: 25)")
      ->check(CLI::PositiveNumber);
  app.add_option("--wasm-max-init-time", options.max_init_ms, "ms up to the prompt (1000)")
      ->check(CLI::PositiveNumber);
  app.add_option("--dialect", options.dialect, "a1, a2 or c, whatever else is given")
      ->check(CLI::IsMember({"a1", "a2", "c"}));
  app.add_option("--cache", options.cache, "the folder of modules and tags (cache)");
}

void add_options_of_c(CLI::App& app, AicirtOptions& options) {
  app.add_flag("--cap-fork", options.cap_fork, "the engine can fork");
  app.add_flag("--cap-backtrack", options.cap_backtrack, "the engine can drop tokens");
  app.add_flag("--cap-ff-tokens", options.cap_ff_tokens, "the engine can append tokens");
  app.add_option("--bias-dtype", options.bias_dtype, "of the biases: f32 alone")
      ->check(CLI::IsMember({"f32"}));
  app.add_option("--logits-size", options.logits_size, "of the model, where it is more")
      ->check(CLI::PositiveNumber);
  app.add_flag("--restricted", options.restricted, "no uploads, no tags");
  app.add_option("--wasm-max-timeout-steps", options.max_timeout_steps,
                 "late steps in a row that end a sequence (10)")
      ->check(CLI::PositiveNumber);
}

bool is_any_of_c_given(const CLI::App& app) {
  for (const char* name : {"--cap-fork", "--cap-backtrack", "--cap-ff-tokens", "--bias-dtype",
                           "--logits-size", "--restricted", "--wasm-max-timeout-steps"}) {
    if (app.count(name) > 0) return true;
  }
  return false;
}

}  // namespace

std::variant<AicirtOptions, int> parse_aicirt_options(int argc, const char* const* argv) {
  AicirtOptions options;
  CLI::App app(kDescription, "lmtp-aicirt");
  app.set_version_flag("--version", "lmtp-aicirt " + std::string(kVersion));
  add_options(app, options);
  add_options_of_c(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (options.dialect.empty()) options.dialect = is_any_of_c_given(app) ? "c" : "a1";
  if (options.json_mib == 0) options.json_mib = options.is_c() ? 128 : 8;
  if (options.bin_mib == 0) options.bin_mib = options.is_c() ? 64 : 16;
  if (options.max_step_ms == 0) options.max_step_ms = options.is_c() ? 25 : 150;
  if (options.server && !options.tokenizer.empty()) return options;
  std::fprintf(stderr, "lmtp-aicirt: --server and --tokenizer are needed; see --help\n");
  return kExitUsage;
}

}  // namespace lmtp::aicirt
