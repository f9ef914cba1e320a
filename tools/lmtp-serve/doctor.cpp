#include "doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/device.h"
#include "lmtp/base/json.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/catalog/hub_model_factory.h"
#include "lmtp/catalog/model_names.h"
#include "lmtp/hub/model_source.h"
#include "lmtp/registry/registry.h"
#include "lmtp/request/event.h"
#include "lmtp/request/request.h"
#include "lmtp/server/server.h"
#include "lmtp/text/chat_template.h"
#include "serving.h"

namespace lmtp::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uintmax_t kCacheBytesLow = std::uintmax_t{1} << 30;
constexpr int kDryRunTokens = 16;
// Descriptors that are no connections: files, libraries' and threads'.
constexpr long kOtherDescriptors = 64;

// The findings, printed as they come. Any thread.
class Report {
 public:
  explicit Report(log::Format format) : is_json_(format == log::Format::kJson) {}

  // What is looked at from now on.
  void begin(std::string check) {
    const std::lock_guard lock(mutex_);
    check_ = std::move(check);
  }
  void ok(std::string_view text) { add("ok", text); }
  void warning(std::string_view text) { add("warning", text); }
  void error(std::string_view text) { add("error", text); }

  bool has_errors() {
    const std::lock_guard lock(mutex_);
    return num_errors_ > 0;
  }

 private:
  void add(const char* level, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (std::string_view(level) == "error") ++num_errors_;
    std::string line = std::string(level) + ": " + check_ + ": " + std::string(text);
    if (is_json_) {
      line = json_text(OrderedJson{{"level", level}, {"check", check_}, {"message", text}});
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  const bool is_json_;
  std::mutex mutex_;
  std::string check_;
  int num_errors_ = 0;
};

// The values of a key of /proc/cpuinfo, of the first processor.
std::string cpu_info(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos && colon + 2 <= line.size()) {
      return line.substr(colon + 2);
    }
  }
  return {};
}

void check_machine(const ServeOptions& options, Report& report) {
  report.begin("machine");
  std::string text = cpu_info("model name");
  if (text.empty()) text = "processor unknown";
  text += ", " + std::to_string(std::thread::hardware_concurrency()) + " cores";
  const std::string flags = " " + cpu_info("flags") + " ";
  std::string sets;
  for (const std::string set :
       {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}) {
    if (flags.find(" " + set + " ") != std::string::npos) sets += " " + set;
  }
  const kernels::Backend* const backend = kernels::cpu_backends().front();
  text +=
      ", instructions" + (sets.empty() ? " of no use here" : sets) + ", kernels " + backend->name;
  if (kernels::cpu_backends().size() > 1) {
    report.ok(text);
  } else {
    report.warning(text + "; without AVX2 and FMA computing is slow");
  }
  const long descriptors = raise_descriptor_limit();
  if (descriptors >= 0 && descriptors < options.max_connections + kOtherDescriptors) {
    report.warning("file descriptors are limited to " + std::to_string(descriptors) +
                   ", less than --max-connections " + std::to_string(options.max_connections) +
                   " needs; raise the limit (ulimit -Hn, LimitNOFILE=) or lower the option");
  }
}

void check_devices(const ServeOptions& options, Report& report) {
  report.begin("device");
  if (const Result<void> checked = check_device(options); !checked) {
    return report.error(checked.error().message);
  }
  if (options.device != "cpu") return report.ok(options.device);
  const kernels::cuda::Probe probe = kernels::cuda::probe();
  report.ok(probe.available ? "cpu; there is " + probe.name + " as well, for --cuda"
                            : "cpu; no CUDA: " + probe.reason);
}

// Where models are downloaded to; whether they may be is for `is_needed`.
void check_cache(bool is_needed, Report& report) {
  report.begin("cache");
  const auto bad = [&](const std::string& text) {
    is_needed ? report.error(text) : report.warning(text + "; what is served now needs none");
  };
  const fs::path cache = hub::cache_folder();
  if (cache.empty()) return bad("there is no place for it; set HOME, HF_HOME or HF_HUB_CACHE");
  std::error_code error;
  fs::path folder = fs::absolute(cache, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  int reason = access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  if (reason == 0 && !fs::is_directory(folder, error)) reason = ENOTDIR;
  if (reason != 0) {
    return bad(cache.string() + " cannot be written (" + folder.string() + ": " +
               std::strerror(reason) +
               "), so that no model can be downloaded; give this user the folder, or set "
               "HF_HUB_CACHE to another");
  }
  const std::uintmax_t free = fs::space(folder, error).available;
  const std::string text =
      cache.string() + ", " + file_size_text(static_cast<std::int64_t>(free)) + " free";
  if (free >= kCacheBytesLow) return report.ok(text);
  report.warning(text + "; make room, or set HF_HUB_CACHE to another place");
}

void check_memory(const registry::ServedModel& model, std::optional<std::int64_t> free,
                  Report& report) {
  const registry::MemoryNeed& need = model.memory;
  std::string text = model.description.name + ": " + model.description.architecture + ", " +
                     model.description.dtype + " on " + model.description.device + ", context " +
                     std::to_string(model.limits.context_length) + ", " +
                     size_text(need.weights_bytes) + " beside a KV cache of " +
                     size_text(registry::kv_bytes_wanted(need, free));
  if (free) text += " of " + size_text(*free) + " free memory";
  if (!model.description.dtype_reason.empty()) text += "; " + model.description.dtype_reason;
  if (free && need.weights_bytes + std::max(need.kv_bytes_min, need.kv_bytes) > *free) {
    return report.warning(text +
                          ", which is too little; free some, or choose a narrower --dtype "
                          "or a smaller --kv-cache");
  }
  report.ok(text);
  for (const std::string& note : model.description.notes) report.warning(note);
}

void check_chat(const registry::ServedModel& model, Report& report) {
  if (!model.load_tokenizer) return;
  const registry::LoadedTokenizer tokenizer = model.load_tokenizer();
  if (!tokenizer) return report.warning("no text, only token ids: " + tokenizer.error().message);
  if (!text::renders_chat_templates()) {
    return report.warning("this installation renders no chat templates: chats are refused");
  }
  const text::LoadedChatTemplate chats = model.load_chat_template(*tokenizer);
  if (chats) return report.ok(model.description.name + " has a chat template");
  const std::string why = model.description.name + ": chats are refused: " + chats.error().message;
  chats.error().code == ErrorCode::kNotFound ? report.ok(why) : report.warning(why);
}

// The names of the folders in --model-dir.
std::vector<std::string> names_in(const std::vector<std::string>& model_dirs) {
  std::vector<std::string> names;
  for (const std::string& folder : model_dirs) {
    std::error_code error;
    for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::end(entry);
         entry.increment(error)) {
      if (entry->is_directory(error)) names.push_back(entry->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

// The model of that name, where it can be served.
std::optional<registry::ServedModel> check_model(registry::ModelFactory& factory,
                                                 const std::string& name, bool is_downloaded,
                                                 Report& report) {
  report.begin("model");
  Result<registry::ServedModel> found = factory.find(name);
  if (found) {
    check_memory(*found, factory.free_memory_bytes(), report);
    report.begin("chat");
    check_chat(*found, report);
    return *std::move(found);
  }
  if (is_downloaded) {
    report.warning("'" + name + "' is not on this machine: the server would download it first");
  } else {
    report.error(found.error().message);
  }
  return std::nullopt;
}

// Opens the sockets as the server does, with its certificate and its keys, and closes them again.
void check_sockets(const ServeOptions& options, registry::Registry& models, Report& report) {
  report.begin("address");
  if (options.on_stdio) return report.ok("standard input and output, no socket");
  server::Server server(server_options(options), models);
  if (const Result<void> started = server.start(); !started) {
    return report.error(started.error().message);
  }
  std::string text = options.unix_path;
  if (options.on_tcp) {
    if (!text.empty()) text += " and ";
    text += address_text(options.host, server.port()) + " can be listened on, ";
    text += options.tls_certfile.empty() ? "without TLS, " : "with TLS, ";
  } else {
    text += " can be listened on, ";
  }
  const bool has_keys = !options.api_keys.empty() || !options.api_key_file.empty();
  server.stop(Clock::now());
  report.ok(text + (has_keys ? "for those who have a key" : "without keys"));
}

// What the dry run's stream brings.
class DryRunSink : public EventSink {
 public:
  struct Outcome {
    std::string error;  // empty: it went well
    int num_tokens = 0;
    Clock::time_point first, last;
  };

  void deliver(std::span<StreamEvent> events) override {
    for (const StreamEvent& event : events) {
      if (std::holds_alternative<TokenEvent>(event)) {
        outcome_.last = Clock::now();
        if (outcome_.num_tokens++ == 0) outcome_.first = outcome_.last;
      } else if (const auto* const error = std::get_if<StreamError>(&event)) {
        outcome_.error = error->error.message;
      }
      if (is_last(event)) done_.set_value(outcome_);
    }
  }
  Outcome wait() { return done_.get_future().get(); }

 private:
  Outcome outcome_;  // of the thread of the engine, or of the registry before it
  std::promise<Outcome> done_;
};

// Generates some tokens, as the first request would, by which an `auto` server loads the model.
// `start`: when it may have begun to load.
void try_model(const std::string& name, Clock::time_point start, registry::Registry& models,
               Report& report) {
  report.begin("dry run");
  const auto sink = std::make_shared<DryRunSink>();
  Request request;
  request.sink = sink;
  request.model = name;
  request.prompt = {0};
  request.params.max_tokens = kDryRunTokens;
  request.params.ignore_eos = true;
  const registry::Submission taken = models.submit(std::move(request));
  if (const auto* const refusal = std::get_if<registry::Refusal>(&taken)) {
    return report.error(refusal->error.message);
  }
  const DryRunSink::Outcome outcome = sink->wait();
  if (!outcome.error.empty()) return report.error(outcome.error);
  const std::chrono::duration<double> until_first = outcome.first - start;
  const std::chrono::duration<double> rest = outcome.last - outcome.first;
  char text[128];
  std::snprintf(text, sizeof(text),
                "%d tokens of %s; loaded and the first one generated in %.2f s, then %.0f tokens/s",
                outcome.num_tokens, name.c_str(), until_first.count(),
                (outcome.num_tokens - 1) / std::max(rest.count(), 1e-6));
  report.ok(text);
}

std::unique_ptr<catalog::HubModelFactory> make_doctors_factory(const ServeOptions& options,
                                                               const catalog::NamePolicy& policy,
                                                               Report& report) {
  return std::make_unique<catalog::HubModelFactory>(
      options, !options.is_auto(), policy,
      [&report](const std::string& reason) { report.error(reason); });
}

void look_at_all(const ServeOptions& options, Report& report) {
  check_machine(options, report);
  check_devices(options, report);
  if (report.has_errors()) return;  // nothing can be loaded
  const Result<catalog::NamePolicy> policy = name_policy(options);
  if (!policy) return report.error(policy.error().message);
  const bool is_downloaded = !options.is_auto() && catalog::may_be_on_hub(options.model);
  check_cache(options.is_auto() ? !policy->downloads.empty() : is_downloaded, report);

  auto factory = make_doctors_factory(options, *policy, report);
  if (options.is_auto()) {
    for (const std::string& name : names_in(policy->model_dirs)) {
      check_model(*factory, name, false, report);
    }
  }
  const std::string tried = options.is_auto() ? "demo" : options.model;
  std::optional<registry::ServedModel> found = check_model(*factory, tried, is_downloaded, report);
  const bool is_found = found.has_value();
  std::unique_ptr<registry::Registry> models;
  const Clock::time_point start = Clock::now();
  if (is_found && !options.is_auto()) {
    registry::OnlyModel only;
    only.name = tried;
    only.found = std::move(found);
    models = std::make_unique<registry::Registry>(std::move(factory), std::move(only));
  } else {
    models = std::make_unique<registry::Registry>(std::move(factory), registry::AutoOptions());
  }
  check_sockets(options, *models, report);
  if (is_found) try_model(tried, start, *models, report);
  models->stop(0);
}

}  // namespace

int diagnose(const ServeOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  Report report(options.log_format);
  log::set_sink([&report](log::Level level, std::string_view message) {
    if (level == log::Level::kWarning) report.warning(message);
    if (level == log::Level::kError) report.error(message);
  });
  look_at_all(options, report);
  log::set_sink({});
  return report.has_errors() ? 1 : 0;
}

}  // namespace lmtp::tools
