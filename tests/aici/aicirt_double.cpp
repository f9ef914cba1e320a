// A runtime's program as an engine starts it: the runtime's end of lmtp-aicirt over controllers
// that are scripts (scripted_runtime.h), with DOUBLE_WASM set over Wasm, and with DOUBLE_CALLS=FILE
// over what was recorded in it (recorded_runtime.h). --tokenizer is the size of the vocabulary. By
// variables of the environment it fails; with DOUBLE_ONCE=FILE only until that file is there, which
// it makes.
//   DOUBLE_FAULT=kill:N  it kills itself in the place of answer N, counted on both channels
//                hang:N, broken:N (no JSON), bare:N (JSON that is none of the protocol's)
//                vocab:N the vocabulary has N tokens
//                twice   answers of the side channel come twice, with one to nothing between
//                swap    they come in pairs, the second first
//   DOUBLE_REPORT=FILE   a line for each thing that an engine does wrong
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fake_tokenizer.h"
#include "lmtp-aicirt/aicirt_options.h"
#include "lmtp-aicirt/serve.h"
#include "lmtp/aici/embedded_runtime.h"
#include "recorded_runtime.h"
#include "scripted_runtime.h"

namespace lmtp::testing {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

void report(const std::string& problem) {
  std::fprintf(stderr, "double: %s\n", problem.c_str());
  const std::string path = variable("DOUBLE_REPORT");
  std::FILE* const file = path.empty() ? nullptr : std::fopen(path.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", problem.c_str());
  std::fclose(file);
}

class Fault {
 public:
  Fault() {
    const std::string once = variable("DOUBLE_ONCE");
    if (!once.empty() && access(once.c_str(), F_OK) == 0) return;
    const std::string text = variable("DOUBLE_FAULT");
    const std::size_t colon = text.find(':');
    name_ = text.substr(0, colon);
    if (colon != std::string::npos) number_ = std::stoi(text.substr(colon + 1));
    if (!once.empty() && !text.empty()) std::fclose(std::fopen(once.c_str(), "w"));
  }

  int vocab_size(int usual) const { return name_ == "vocab" ? number_ : usual; }

  // Both channels' threads.
  std::vector<std::string> edit(std::string answer, bool is_side) {
    const std::lock_guard lock(mutex_);
    if (is_side && name_ == "twice" && num_++ > 0) {
      return {answer, R"({"type":"ok","data":{},"$rid":"nobody's"})", answer};
    }
    if (is_side && name_ == "swap" && num_++ > 0) return swapped(std::move(answer));
    if (name_ == "twice" || name_ == "swap" || ++num_ != number_) return {std::move(answer)};
    if (name_ == "kill") (void)kill(getpid(), SIGKILL);
    if (name_ == "hang") pause();
    if (name_ == "broken") return {answer.substr(0, answer.size() / 2)};
    if (name_ == "bare") return {R"({"type":"ok","data":{"seqs":[]}})"};
    return {std::move(answer)};
  }

 private:
  std::vector<std::string> swapped(std::string answer) {
    if (held_.empty()) {
      held_ = std::move(answer);
      return {};
    }
    return {std::move(answer), std::exchange(held_, {})};
  }

  std::mutex mutex_;
  std::string name_;
  int number_ = 0;
  int num_ = 0;
  std::string held_;
};

std::unique_ptr<aici::Runtime> make_runtime(const aicirt::AicirtOptions& options, int vocab_size) {
  if (const std::string calls = variable("DOUBLE_CALLS"); !calls.empty()) {
    return std::make_unique<RecordedRuntime>(calls, report);
  }
  const bool is_scripted = variable("DOUBLE_WASM").empty();
  if (is_scripted) return std::make_unique<ScriptedRuntime>(vocab_size, report);
  aici::EmbeddedOptions embedded;
  embedded.tokenizer = std::make_shared<FakeTokenizer>(vocab_size);
  embedded.vocab_size = vocab_size;
  embedded.eos_id = vocab_size - 1;
  embedded.cache_folder = options.cache;
  return *aici::make_embedded_runtime(embedded);
}

int run(int argc, const char* const* argv) {
  const auto parsed = aicirt::parse_aicirt_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<aicirt::AicirtOptions>(parsed);
  Fault fault;
  const int vocab_size = fault.vocab_size(std::stoi(options.tokenizer));
  aicirt::ServeOptions serve;
  serve.areas.prefix = options.name;
  serve.areas.bytes = static_cast<std::size_t>(options.json_mib) << 20;
  serve.areas.futex = options.futex;
  serve.areas.busy_wait_ms = options.busy_wait_ms;
  serve.areas.is_over = [parent = getppid()] { return getppid() != parent; };
  serve.bias_bytes = static_cast<std::size_t>(options.bin_mib) << 20;
  serve.main.vocab_size = vocab_size;
  serve.main.eos = vocab_size - 1;
  serve.main.step_time = std::chrono::milliseconds(options.max_step_ms);
  serve.main.rows_offset = 3;
  serve.main.fill = std::numeric_limits<float>::quiet_NaN();
  serve.side.is_c = options.is_c();
  serve.side.is_a2 = options.dialect == "a2" || !variable("DOUBLE_A2").empty();
  serve.edit = [&](std::string answer, bool is_side) {
    return fault.edit(std::move(answer), is_side);
  };
  const Result<void> done = aicirt::serve(make_runtime(options, vocab_size), std::move(serve));
  if (!done) report(done.error().message);
  return done ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace lmtp::testing

int main(int argc, char** argv) { return lmtp::testing::run(argc, argv); }
