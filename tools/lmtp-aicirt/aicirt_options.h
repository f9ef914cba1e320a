// The command line of lmtp-aicirt: that of AICI's own aicirt, of both dialects.
#pragma once

#include <string>
#include <variant>

namespace lmtp::aicirt {

struct AicirtOptions {
  std::string tokenizer;  // a folder, or a file in it
  std::string name = "/aici0-";
  std::string dialect;  // "a1", "a2", "c"; empty: by the other options
  std::string cache = "cache";
  bool server = false;
  bool futex = false;
  bool restricted = false;
  bool cap_fork = false;
  bool cap_backtrack = false;
  bool cap_ff_tokens = false;
  std::string bias_dtype;
  int logits_size = 0;
  int json_mib = 0;  // 0: the dialect's default
  int bin_mib = 0;
  int busy_wait_ms = 200;
  int max_forks = 16;
  int max_memory_mib = 64;
  int max_pre_step_ms = 4;
  int max_step_ms = 0;
  int max_timeout_steps = 10;
  int max_init_ms = 1000;

  bool is_c() const { return dialect == "c"; }
};

// The options with the dialect and its defaults filled in, or an exit code: after --help and after
// a message about what is wrong. Options that only C has choose C.
std::variant<AicirtOptions, int> parse_aicirt_options(int argc, const char* const* argv);

}  // namespace lmtp::aicirt
