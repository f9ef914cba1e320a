// lmtp-aicirt: this project's runtime of AICI controllers, for engines that speak to an aicirt.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "aicirt_options.h"
#include "lmtp/aici/embedded_runtime.h"
#include "lmtp/base/model_source.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "serve.h"

namespace lmtp::aicirt {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

int fail(const std::string& why) {
  std::fprintf(stderr, "lmtp-aicirt: %s\n", why.c_str());
  return EXIT_FAILURE;
}

std::string folder_of(const std::string& tokenizer) {
  const std::filesystem::path path(tokenizer);
  const bool is_whole = std::filesystem::is_directory(path) || is_gguf(tokenizer);
  return is_whole ? tokenizer : path.parent_path().string();
}

ServeOptions serve_options(const AicirtOptions& options, int vocab_size,
                           const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer) {
  ServeOptions serve;
  serve.areas.prefix = options.name;
  serve.areas.bytes = static_cast<std::size_t>(options.json_mib) * kMiB;
  serve.areas.futex = options.futex;
  serve.areas.busy_wait_ms = options.busy_wait_ms;
  serve.areas.is_over = [parent = getppid()] { return getppid() != parent; };
  serve.bias_bytes = static_cast<std::size_t>(options.bin_mib) * kMiB;
  serve.main.vocab_size = vocab_size;
  serve.main.eos = tokenizer->eos_id() < 0 ? 0 : tokenizer->eos_id();
  serve.main.step_time = std::chrono::milliseconds(options.max_step_ms);
  serve.main.pre_step_time = std::chrono::milliseconds(options.max_pre_step_ms);
  serve.main.timeout_steps = options.max_timeout_steps;
  serve.side.is_c = options.is_c();
  serve.side.is_a2 = options.dialect == "a2";
  serve.side.is_restricted = options.restricted;
  serve.side.tokenize = [tokenizer](const std::string& text) {
    Result<std::vector<TokenId>> tokens = tokenizer->encode(text);
    return tokens ? *std::move(tokens) : std::vector<TokenId>();
  };
  return serve;
}

int run(int argc, const char* const* argv) {
  const auto parsed = parse_aicirt_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<AicirtOptions>(parsed);
  // Of its own, so that an engine can end it with all that it has started.
  (void)setpgid(0, 0);
  Result<std::unique_ptr<tokenizer::Tokenizer>> loaded =
      tokenizer::load_tokenizer(folder_of(options.tokenizer));
  if (!loaded) return fail("--tokenizer: " + loaded.error().message);
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer = *std::move(loaded);
  const int vocab_size = std::max(options.logits_size, tokenizer->vocab_size());
  aici::EmbeddedOptions embedded;
  embedded.tokenizer = tokenizer;
  embedded.vocab_size = vocab_size;
  embedded.eos_id = tokenizer->eos_id();
  embedded.cache_folder = options.cache;
  embedded.limits.memory_bytes = static_cast<std::size_t>(options.max_memory_mib) * kMiB;
  embedded.limits.init_time = std::chrono::milliseconds(options.max_init_ms);
  embedded.limits.step_time = std::chrono::milliseconds(options.max_step_ms);
  embedded.limits.forks_max = options.max_forks;
  Result<std::unique_ptr<aici::Runtime>> runtime = aici::make_embedded_runtime(embedded);
  if (!runtime) return fail(runtime.error().message);
  const Result<void> done =
      serve(*std::move(runtime), serve_options(options, vocab_size, tokenizer));
  return done ? EXIT_SUCCESS : fail(done.error().message);
}

}  // namespace
}  // namespace lmtp::aicirt

int main(int argc, char** argv) { return lmtp::aicirt::run(argc, argv); }
