// The options of AICI controllers.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <string>

#include "lmtp/aici/process_runtime.h"
#include "raw_options.h"

namespace lmtp::tools {
namespace {

std::string default_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/lmtp/aici";
  }
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : ".") + "/.cache/lmtp/aici";
}

}  // namespace

void add_aici_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_flag("--aici", options.aici,
               "Run AICI controllers: programs in WebAssembly that requests name and that decide "
               "token by token");
  app.add_flag("--aici-upload", options.aici_upload,
               "Take uploads of controllers beyond loopback too, from keys with the right admin");
  app.add_option("--aici-cache", options.aici_cache,
                 "The folder of uploaded controllers and their tags [~/.cache/lmtp/aici]")
      ->type_name("DIR");
  app.add_option("--aici-max-memory", raw.aici_memory, "Memory of a controller")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--aici-max-total-memory", raw.aici_total_memory,
                 "Memory of all controllers of a model together")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--aici-max-forks", options.aici_limits.forks_max,
                 "Streams that a controller may fork its request into")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--aici-step-time", raw.aici_step_time_ms,
                 "Milliseconds of the processor for each call of a controller")
      ->check(CLI::Range(1, 60'000))
      ->type_name("MS")
      ->capture_default_str();
  app.add_option("--aicirt", options.aicirt.path,
                 "Run controllers in this program instead, an aicirt or lmtp-aicirt")
      ->check(CLI::ExistingFile)
      ->type_name("PATH");
  app.add_option("--aicirt-tokenizer", options.aicirt.tokenizer,
                 "The program's --tokenizer [the model's folder]")
      ->type_name("T");
  app.add_option("--aicirt-dialect", raw.aicirt_dialect, "What it speaks: a, c or auto")
      ->check(CLI::IsMember({"auto", "a", "c"}))
      ->type_name("D")
      ->capture_default_str();
  app.add_option("--aicirt-json-size", options.aicirt.json_mib,
                 "MiB of each area of messages that is shared with it")
      ->check(CLI::Range(1, 1024))
      ->type_name("MIB")
      ->capture_default_str();
  app.add_option("--aicirt-bin-size", options.aicirt.bias_mib,
                 "MiB of the area of what may be drawn")
      ->check(CLI::Range(1, 4095))
      ->type_name("MIB")
      ->capture_default_str();
  app.add_option("--aicirt-busy-wait-time", raw.aicirt_busy_wait_ms,
                 "Milliseconds for which it spins before it sleeps")
      ->check(CLI::Range(0, 1000))
      ->type_name("MS")
      ->capture_default_str();
  app.add_flag("--aicirt-futex", options.aicirt.futex, "Futexes in the place of semaphores");
  app.add_option("--aici-init-time", raw.aici_init_time_ms, "The same up to the prompt")
      ->check(CLI::Range(1, 600'000))
      ->type_name("MS")
      ->capture_default_str();
}

void finish_aici_options(const RawOptions& raw, ServeOptions& options) {
  if (options.aici_cache.empty()) options.aici_cache = default_cache();
  options.aicirt.busy_wait = std::chrono::milliseconds(raw.aicirt_busy_wait_ms);
  if (raw.aicirt_dialect == "a") options.aicirt.dialect = aici::Dialect::kA;
  if (raw.aicirt_dialect == "c") options.aicirt.dialect = aici::Dialect::kC;
  options.aici_limits.memory_bytes =
      static_cast<std::size_t>(size_option("--aici-max-memory", raw.aici_memory, 1 << 20));
  options.aici_limits.total_bytes = static_cast<std::size_t>(
      size_option("--aici-max-total-memory", raw.aici_total_memory, 1 << 20));
  // One may have three quarters of what the others leave.
  if (options.aici_limits.total_bytes < options.aici_limits.memory_bytes / 3 * 4) {
    throw CLI::ValidationError("--aici-max-total-memory",
                               "'" + raw.aici_total_memory +
                                   "' is too small; needed is a third more than "
                                   "--aici-max-memory, which is of one");
  }
  options.aici_limits.step_time = std::chrono::milliseconds(raw.aici_step_time_ms);
  options.aici_limits.init_time = std::chrono::milliseconds(raw.aici_init_time_ms);
}

}  // namespace lmtp::tools
