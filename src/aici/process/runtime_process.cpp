#include "process/runtime_process.h"

#include <unistd.h>

#include <array>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "process/wire.h"
#include "process/wire_a.h"

namespace lmtp::aici {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
// How long a wait goes on before it is looked whether the program still runs.
constexpr std::chrono::milliseconds kProcessSlice{20};
constexpr std::chrono::milliseconds kHelpTime{10'000};

std::string random_prefix() {
  constexpr const char* kHex = "0123456789abcdef";
  std::random_device random;
  std::string prefix = "/lmtp-" + std::to_string(getpid()) + "-";
  for (int i = 0; i < 8; ++i) prefix += kHex[random() % 16];
  return prefix + "-";
}

Error bad(const std::string& what) { return {ErrorCode::kUnavailable, what}; }

// Options that the program does not know would end it: those that not all versions have are taken
// from what it says of itself.
std::vector<std::string> arguments_of(const ProcessOptions& options, const std::string& prefix,
                                      const std::string& help) {
  const auto ms = [](std::chrono::milliseconds time) { return std::to_string(time.count()); };
  std::vector<std::string> arguments = {options.path,
                                        "--tokenizer=" + options.tokenizer,
                                        "--json-size=" + std::to_string(options.json_mib),
                                        "--bin-size=" + std::to_string(options.bias_mib),
                                        "--name=" + prefix,
                                        "--busy-wait-time=" + ms(options.busy_wait),
                                        "--wasm-max-step-time=" + ms(options.step_time),
                                        "--wasm-max-init-time=" + ms(options.init_time),
                                        "--wasm-max-forks=" + std::to_string(options.forks_max),
                                        "--wasm-max-memory=" + std::to_string(options.memory_mib),
                                        "--server"};
  if (options.futex) arguments.emplace_back("--futex");
  const auto add = [&](const std::string& name, const std::string& value) {
    if (help.find(name) != std::string::npos) arguments.push_back(name + value);
  };
  if (options.dialect != Dialect::kC) {
    add("--wasm-max-pre-step-time", "=" + ms(options.pre_step_time));
  }
  if (options.dialect != Dialect::kA) {
    for (const char* flag : {"--cap-fork", "--cap-backtrack", "--cap-ff-tokens"}) add(flag, "");
    add("--bias-dtype", "=f32");
  }
  return arguments;
}

Result<std::unique_ptr<MessageArea>> make_area(const ProcessOptions& options,
                                               const std::string& name, Direction direction) {
  const std::size_t size = static_cast<std::size_t>(options.json_mib) * kMiB;
  return options.futex ? make_futex_area(name, size, direction) : make_semaphore_area(name, size);
}

}  // namespace

RuntimeProcess::RuntimeProcess(SharedMemory biases, Trace* trace,
                               const std::atomic<bool>& is_ending)
    : biases_(std::move(biases)), trace_(trace), is_ending_(is_ending) {}

Result<std::unique_ptr<RuntimeProcess>> RuntimeProcess::start(const ProcessOptions& options,
                                                              Trace* trace,
                                                              const std::atomic<bool>& is_ending,
                                                              SideChannel::Handlers handlers) {
  const Result<std::string> help = output_of({options.path, "--help"}, kHelpTime);
  if (!help) return help.error();
  // A name is needed until its program has answered, for start_time at most.
  remove_left_names(std::chrono::ceil<std::chrono::seconds>(kHelpTime + options.start_time));
  const std::string prefix = random_prefix();
  Result<SharedMemory> biases =
      SharedMemory::create(prefix + "bin-shm", static_cast<std::size_t>(options.bias_mib) * kMiB);
  if (!biases) return biases.error();
  std::unique_ptr<RuntimeProcess> made(new RuntimeProcess(*std::move(biases), trace, is_ending));
  Result<void> done = made->make_areas(options, prefix, std::move(handlers));
  if (!done) return done.error();
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::start(arguments_of(options, prefix, *help), options.folder, STDERR_FILENO);
  if (!child) return child.error();
  made->child_ = *std::move(child);
  done = made->greet(options);
  if (!done) return done.error();
  return made;
}

Result<void> RuntimeProcess::make_areas(const ProcessOptions& options, const std::string& prefix,
                                        SideChannel::Handlers handlers) {
  std::vector<std::unique_ptr<MessageArea>> areas;
  const std::array places = {
      std::pair("cmd", Direction::kCommands), std::pair("resp", Direction::kAnswers),
      std::pair("cmd-side", Direction::kCommands), std::pair("resp-side", Direction::kAnswers)};
  for (const auto& [name, direction] : places) {
    Result<std::unique_ptr<MessageArea>> area = make_area(options, prefix + name, direction);
    if (!area) return area.error();
    areas.push_back(*std::move(area));
  }
  commands_ = std::move(areas[0]);
  answers_ = std::move(areas[1]);
  side_ = std::make_unique<SideChannel>(std::move(areas[2]), std::move(areas[3]), trace_,
                                        std::move(handlers));
  return {};
}

// After this it has opened everything, and the names can go: whatever ends us, nothing is left.
Result<void> RuntimeProcess::greet(const ProcessOptions& options) {
  const Time until = std::chrono::steady_clock::now() + options.start_time;
  Result<Json> pong = exchange({{"op", "ping"}}, until);
  if (!pong) return pong.error();
  Result<Json> tokens = exchange({{"op", "tokens"}}, until);
  if (!tokens) return tokens.error();
  const Result<int> vocab_size = read_wire([&] {
    return static_cast<int>(WireValue(*tokens, "").at("vocab_size").integer(1, 1 << 30));
  });
  if (!vocab_size) return vocab_size.error();
  vocab_size_ = *vocab_size;
  if (vocab_size_ > options.vocab_size) {
    return bad("its tokenizer (" + options.tokenizer + ") has " + std::to_string(vocab_size_) +
               " tokens; the model has " + std::to_string(options.vocab_size) +
               ": --aicirt-tokenizer must name the model's");
  }
  const Result<Dialect> dialect =
      options.dialect == Dialect::kAuto ? find_dialect(until) : options.dialect;
  if (!dialect) return dialect.error();
  dialect_ = *dialect;
  Result<void> done = greet_side(until);
  if (!done) return done;
  commands_->unlink();
  answers_->unlink();
  side_->unlink();
  biases_.unlink();
  return {};
}

Result<void> RuntimeProcess::greet_side(Time until) {
  const auto answered = std::make_shared<std::promise<Result<Json>>>();
  std::future<Result<Json>> answer = answered->get_future();
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  side_->ask({{"op", "ping"}}, left,
             [answered](Result<Json> data) { answered->set_value(std::move(data)); });
  while (answer.wait_for(kProcessSlice) != std::future_status::ready) {
    Result<void> checked = check(until);
    if (!checked && checked.error().code != ErrorCode::kTimeout) return checked;
  }
  const Result<Json> data = answer.get();
  if (data) return {};
  if (data.error().code != ErrorCode::kTimeout) return data.error();
  return bad("its side channel does not answer (AICI's own needs 4 CPUs for it)");
}

// An empty command that only A knows.
Result<Dialect> RuntimeProcess::find_dialect(Time until) {
  const Result<Json> data = exchange(wire_a::command_of(wire_a::PostPreProcess{}), until);
  if (data) return Dialect::kA;
  if (data.error().message.starts_with("bad op")) return Dialect::kC;
  return data.error();
}

Result<Json> RuntimeProcess::ask(const Json& command, std::chrono::milliseconds time) {
  return exchange(command, std::chrono::steady_clock::now() + time);
}

Result<Json> RuntimeProcess::exchange(const Json& command, Time until) {
  const std::string text = wire_text(command);
  if (text.size() > commands_->bytes_max()) {
    return bad("a step's command has " + std::to_string(text.size()) + " bytes; allowed are " +
               std::to_string(commands_->bytes_max()) + " (--aicirt-json-size)");
  }
  while (!commands_->send(text, std::chrono::steady_clock::now() + kProcessSlice)) {
    Result<void> checked = check(until);
    if (!checked) return checked.error();
  }
  while (true) {
    Result<std::optional<std::string>> received =
        answers_->receive(std::min(until, std::chrono::steady_clock::now() + kProcessSlice));
    if (!received) return received.error();
    if (*received) {
      Result<Json> answer = parse_json_object(**received, "the runtime's answer");
      if (!answer) return bad(answer.error().message);
      if (trace_ != nullptr) trace_->write("", command, *answer);
      return data_of(*std::move(answer));
    }
    Result<void> checked = check(until);
    if (!checked) return checked.error();
  }
}

Result<void> RuntimeProcess::check(Time until) {
  const std::string end = end_reason();
  if (!end.empty()) return bad(end);
  if (is_ending_) return Error{ErrorCode::kStopping, "the controllers' runtime is being stopped"};
  if (std::chrono::steady_clock::now() < until) return {};
  return Error{ErrorCode::kTimeout, "it does not answer in time"};
}

}  // namespace lmtp::aici
