// lmtp-serve: opens the socket, loads the model, answers until a signal comes.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "children.h"
#include "client_command.h"
#include "common/progress_bar.h"
#include "doctor.h"
#include "events.h"
#include "layout.h"
#include "lmtp/balance/remote_models.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/base/version.h"
#include "lmtp/catalog/hub_model_factory.h"
#include "lmtp/catalog/model_names.h"
#include "lmtp/registry/loaded_texts.h"
#include "lmtp/registry/registry.h"
#include "lmtp/server/server.h"
#include "lmtp/text/reply_layout.h"
#include "lmtp/trace/trace.h"
#include "private_folder.h"
#include "serve_options.h"
#include "serving.h"
#include "systemd.h"
#include "watchdog.h"

namespace lmtp::tools {
namespace {

constexpr int kExitFailure = 1;
constexpr int kProgressIntervalMs = 100;
// After --shutdown-timeout: how long a step in flight or a loader may take before it is abandoned,
// and how long connections then have for their close handshake. Together less than the documented
// 2 s.
constexpr std::chrono::milliseconds kStepSlack{800};
constexpr std::chrono::milliseconds kCloseSlack{400};
// As long as loading makes progress, a service manager is asked for so much more time to start; and
// to stop, for so much beyond --shutdown-timeout.
constexpr std::chrono::milliseconds kLoadPatience{120'000};
constexpr std::chrono::milliseconds kStopPatience{5'000};

// Returns the memory of large messages to the system as soon as they are done with. By default
// glibc raises this limit with each one, up to 32 MiB, and keeps the memory of all below it.
void return_large_blocks() {
  constexpr int kLargeBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  // What is free at the heap's end would be kept up to 128 KiB, since a fixed limit fixes this one.
  mallopt(M_TRIM_THRESHOLD, 4 * kLargeBytes);
}

int fail(const ServeOptions& options, const std::string& message) {
  if (options.log_format == log::Format::kJson) {
    log::error(message);
  } else {
    std::fprintf(stderr, "lmtp-serve: %s\n", message.c_str());
  }
  return kExitFailure;
}

// A descriptor of standard output, which from now on is standard error for all else: what is
// printed there must not stand between messages.
int take_stdout() {
  const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return fd;
}

server::ServerOptions make_server_options(const ServeOptions& options, Events& events) {
  server::ServerOptions server = server_options(options);
  if (options.on_stdio) {
    server.lines = {STDIN_FILENO, take_stdout(),
                    std::chrono::milliseconds(options.shutdown_timeout_ms),
                    [&events](const Result<void>& outcome) { events.on_input_ended(outcome); }};
  }
  return server;
}

// As the client's --host takes it.
std::string address_of(const ServeOptions& options, const server::Server& server) {
  if (options.on_stdio) return "standard input and output";
  std::string address = options.unix_path.empty() ? "" : "unix:" + options.unix_path;
  if (!options.on_tcp) return address;
  const std::string host =
      options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  if (!address.empty()) address = ", " + address;
  const std::string scheme = options.tls_certfile.empty() ? "ws://" : "wss://";
  return scheme + host + ":" + std::to_string(server.port()) + "/" + address;
}

std::string ready_lines(const ServeOptions& options, const server::Server& server) {
  return "READY=1\nSTATUS=" + options.shown_name() + " ready, " + address_of(options, server);
}

// Of a model that is divided: " in 2 ranks (weights 17.5 MiB, 17.1 MiB)".
std::string ranks_text(const scheduler::AgentInfo& info) {
  if (info.ranks.size() < 2) return "";
  std::string sizes;
  for (const scheduler::RankInfo& rank : info.ranks) {
    sizes += (sizes.empty() ? "" : ", ") + size_text(rank.weights_bytes);
  }
  return " in " + std::to_string(info.ranks.size()) + " ranks (weights " + sizes + ")";
}

void print_ready(const ServeOptions& options, const registry::Registry& models,
                 const server::Server& server) {
  const auto status = models.status("");
  if (!status || !*status) return;  // the server was stopped meanwhile
  const scheduler::AgentInfo& info = (*status)->stats.agent;
  const long long num_tokens = info.kv_tokens((*status)->limits.total_tokens_max());
  std::string context;
  if ((*status)->limits.context_length < (*status)->description.trained_context_length) {
    context = ", context " + std::to_string((*status)->limits.context_length) + " of " +
              std::to_string((*status)->description.trained_context_length) +
              " tokens (more with a larger --kv-cache)";
  }
  for (const std::string& weights : (*status)->description.quantized_weights) {
    context += "; " + (*status)->description.quantization + " weights: " + weights;
  }
  for (const std::string& note : (*status)->description.notes) context += "; " + note;
  for (const std::string& note : info.notes) context += "; " + note;
  context += calls_text((*status)->reply_layout.get());
  const std::string& why = (*status)->description.dtype_reason;
  const std::string kv_dtype = options.kv_cache_dtype == "auto" ? "" : " of " + info.kv_dtype;
  std::printf("lmtp-serve: %s ready on %s%s, %s%s, KV cache %s%s (%lld tokens)%s, %s\n",
              (*status)->description.name.c_str(), info.device.c_str(), ranks_text(info).c_str(),
              info.dtype.c_str(), why.empty() ? "" : (" (" + why + ")").c_str(),
              size_text(info.kv_bytes).c_str(), kv_dtype.c_str(), num_tokens, context.c_str(),
              address_of(options, server).c_str());
  print_reached(options, options.model, server.port());
  notify(ready_lines(options, server));
}

// Stops everything in order. While streams may still end by themselves the sockets stay open, for
// monitors (/health says 503) and for clients, whose new requests are refused. If a step or a
// loader does not end in time, the process exits without waiting: it has no data to save.
int stop(registry::Models& models, server::Server& server, int grace_ms, int exit_code) {
  std::promise<void> stopped;
  std::thread stopper([&] {
    models.stop(grace_ms);
    stopped.set_value();
  });
  const std::chrono::milliseconds allowed = std::chrono::milliseconds(grace_ms) + kStepSlack;
  const auto deadline = std::chrono::steady_clock::now() + allowed;
  const bool in_time = stopped.get_future().wait_until(deadline) == std::future_status::ready;
  server.stop(deadline + kCloseSlack);
  if (!in_time) {
    // A start that was refused has one reason, and this is none.
    if (exit_code == 0) {
      log::warning("the model did not stop within " + std::to_string(allowed.count()) +
                   " ms and is left behind");
    }
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }
  stopper.join();
  return exit_code;
}

// What cannot be read leaves what was read before in place; why, or nothing.
std::string reload(server::Server& server) {
  const Result<void> reloaded = server.reload();
  if (reloaded) {
    log::info("SIGHUP: what may change has been read again");
    return {};
  }
  log::error("SIGHUP: " + reloaded.error().message + "; what was read before stays in use");
  return reloaded.error().message;
}

// `event` is the latest. Without its device, or its only model, the server exits with an error, so
// that its supervisor (systemd's Restart=on-failure) starts a new process, for which the device may
// work and memory may be free.
int run_until_stopped(const ServeOptions& options, Events& events, Events::Kind event,
                      registry::Models& models, server::Server& server) {
  while (event == Events::Kind::kLoaded || event == Events::Kind::kTimeout ||
         event == Events::Kind::kReload) {
    if (event == Events::Kind::kReload) {
      notify(reloading());
      const std::string failure = reload(server);
      notify(failure.empty() ? ready_lines(options, server)
                             : "READY=1\nSTATUS=not reloaded: " + failure);
    }
    event = events.wait(-1);
  }
  if (event == Events::Kind::kGone) {
    fail(options, events.gone_reason());
    return stop(models, server, 0, kExitFailure);
  }
  if (event == Events::Kind::kInputEnded) return stop(models, server, 0, 0);
  events.stop_catching();
  log::info("stopping; a second signal stops at once");
  const std::chrono::milliseconds grace(options.shutdown_timeout_ms);
  // The manager keeps its sockets: who connects from now on waits for the server that comes next.
  if (options.on_stdio || options.has_given_sockets()) server.stop_accepting();
  notify("STOPPING=1\nSTATUS=draining\n" + extend_timeout(grace + kStopPatience));
  return stop(models, server, options.shutdown_timeout_ms, 0);
}

std::unique_ptr<catalog::HubModelFactory> make_factory(const ServeOptions& options,
                                                       catalog::NamePolicy policy, Events& events) {
  return std::make_unique<catalog::HubModelFactory>(
      options, !options.is_auto(), std::move(policy),
      [&events](const std::string& reason) { events.on_gone(reason); });
}

// Whether SIGHUP reads files again; else it ends the process, as a terminal that is closed should.
// A service manager sends it to reload, whether or not there is anything.
bool reloads(const ServeOptions& options) {
  return !options.tls_certfile.empty() || !options.api_key_file.empty() || has_manager();
}

// Where it has gone on since `progress`.
void tell_progress(const registry::ModelStatus& status, std::int64_t& progress) {
  const auto& download = status.download;
  const std::int64_t now = download ? download->bytes_done : status.progress_percent;
  if (std::exchange(progress, now) == now) return;
  const int percent = download ? download->percent() : status.progress_percent;
  notify("STATUS=" + std::string(download ? "fetching" : "loading") + " the model, " +
         std::to_string(percent) + " %\n" + extend_timeout(kLoadPatience));
}

// Serves one model, named on the command line.
int serve_one(const ServeOptions& options, catalog::NamePolicy policy) {
  Events events(reloads(options));
  auto factory = make_factory(options, std::move(policy), events);
  registry::OnlyModel only;
  only.name = options.model;
  only.served_names = options.served_names;
  only.max_waiting_requests = static_cast<std::size_t>(options.max_concurrent_requests);
  only.on_loaded = [&events](const Result<void>& outcome) { events.on_loaded(outcome); };
  only.on_gone = [&events](const std::string& reason) { events.on_gone(reason); };
  // A cached model may lack files that the hub has: these are downloaded, too.
  if (!catalog::may_be_on_hub(options.model)) {
    Result<registry::ServedModel> found = factory->find(options.model);
    if (!found) return fail(options, found.error().message);
    only.found = std::move(*found);
  }
  registry::Registry models(std::move(factory), std::move(only));
  server::Server server(make_server_options(options, events), models);
  if (const Result<void> started = server.start(); !started) {
    fail(options, started.error().message);
    return stop(models, server, 0, kExitFailure);
  }
  const Watchdog watchdog(models, server);
  ProgressBar fetching("fetching " + options.shown_name());
  ProgressBar loading("loading " + options.shown_name());
  Events::Kind event = Events::Kind::kTimeout;
  std::int64_t progress = -1;
  while ((event = events.wait(kProgressIntervalMs)) == Events::Kind::kTimeout ||
         event == Events::Kind::kReload) {
    if (event == Events::Kind::kReload) reload(server);
    const auto status = models.status("");
    if (!status || !*status) continue;
    tell_progress(**status, progress);
    if (const auto& download = (*status)->download) {
      fetching.show_bytes(download->bytes_done, download->bytes_total);
    } else {
      fetching.clear();
      loading.show((*status)->progress_percent);
    }
  }
  fetching.clear();
  loading.clear();
  if (event == Events::Kind::kLoaded) {
    if (const Result<void> loaded = events.load_outcome(); !loaded) {
      fail(options, loaded.error().message);
      return stop(models, server, 0, kExitFailure);
    }
    print_ready(options, models, server);
  }
  return run_until_stopped(options, events, event, models, server);
}

// Serves any model, loaded when a request names it.
int serve_auto(const ServeOptions& options, catalog::NamePolicy policy) {
  const std::string what = policy.anything ? "any model"
                           : policy.downloads.empty()
                               ? "'demo', --model-dir and the Hugging Face cache, no downloads"
                               : "'demo', --model-dir and the Hugging Face hub";
  Events events(reloads(options));
  registry::AutoOptions automatic;
  automatic.max_models = options.max_models;
  automatic.unload_after_ms = options.unload_after_ms;
  automatic.max_waiting_requests = static_cast<std::size_t>(options.max_concurrent_requests);
  auto factory = make_factory(options, std::move(policy), events);
  // lmtp-client uses its tokenizer if no model is named.
  if (Result<registry::ServedModel> demo = factory->find("demo")) {
    automatic.default_model = std::move(demo->description);
  }
  registry::Registry models(std::move(factory), std::move(automatic));
  server::Server server(make_server_options(options, events), models);
  if (const Result<void> started = server.start(); !started) {
    fail(options, started.error().message);
    return stop(models, server, 0, kExitFailure);
  }
  const Watchdog watchdog(models, server);
  std::printf("lmtp-serve: auto ready, loads what requests name (%s), %s\n", what.c_str(),
              address_of(options, server).c_str());
  print_reached(options, "demo", server.port());
  notify(ready_lines(options, server));
  return run_until_stopped(options, events, Events::Kind::kTimeout, models, server);
}

// What texts are read with, from the model's files on this machine.
Result<registry::LoadedTexts> load_texts(const ServeOptions& options,
                                         const registry::ModelStatus& served, Events& events) {
  const std::string name = options.is_auto() ? served.description.name : options.model;
  ServeOptions named;  // nothing is computed here: no device is touched, and no type is refused
  named.model = name;
  if (!options.is_auto()) named.served_names = {served.description.name};
  named.chat_template_file = options.chat_template_file;
  named.decisions = options.decisions;
  named.tool_call_format = options.tool_call_format;
  named.context_length = options.context_length;
  named.force = options.force;
  catalog::NamePolicy here;
  here.downloads.clear();
  Result<registry::ServedModel> found = make_factory(named, std::move(here), events)->find(name);
  if (!found) return found.error();
  if (found->limits.vocab_size != served.limits.vocab_size) {
    return Error{ErrorCode::kInvalid,
                 "--model: " + quoted_name(name) + " has a vocabulary of " +
                     std::to_string(found->limits.vocab_size) + ", and the workers' has " +
                     std::to_string(served.limits.vocab_size) + "; name the folder of their model"};
  }
  found->load_controllers = nullptr;
  return registry::load_texts(*found, {.bytes_max = kMaxGrammarBytes});  // workers take no more
}

// Serves what the workers serve, once they answer. REQUIRES: the server is open.
int serve_workers(const ServeOptions& options, Events& events, balance::RemoteModels& models,
                  server::Server& server) {
  std::optional<Result<void>> started;
  while (!(started = models.start(kProgressIntervalMs))) {
    if (events.wait(0) == Events::Kind::kSignal) return 0;
  }
  if (!*started) return fail(options, started->error().message);
  const registry::ModelStatus served = models.list().front();
  Result<registry::LoadedTexts> texts = load_texts(options, served, events);
  const std::string calls = texts ? calls_text(texts->reply_layout.get()) : "";
  if (texts) {
    models.set_texts(*std::move(texts));
  } else if (options.is_auto()) {
    log::warning("requests with text are refused, those with token ids are served: " +
                 texts.error().message + "; --model names the model's folder on this machine");
  } else {
    return fail(options, texts.error().message);
  }
  if (const Result<void> accepts = server.start(); !accepts) {
    fail(options, accepts.error().message);
    return stop(models, server, 0, kExitFailure);
  }
  const Watchdog watchdog(models, server);
  std::printf("lmtp-serve: %s ready on %zu workers%s, %s\n", served.description.name.c_str(),
              options.balance.workers.size(), calls.c_str(), address_of(options, server).c_str());
  print_reached(options, options.is_auto() ? served.description.name : options.model,
                server.port());
  notify(ready_lines(options, server));
  return run_until_stopped(options, events, Events::Kind::kTimeout, models, server);
}

// Serves what the servers on the command line serve.
int serve_balanced(const ServeOptions& options) {
  Events events(reloads(options));
  balance::RemoteModels models(options.balance);
  server::Server server(make_server_options(options, events), models);
  if (const Result<void> opened = server.open(); !opened) {
    return fail(options, opened.error().message);
  }
  return serve_workers(options, events, models, server);
}

// Until all children can answer: nothing; else the exit code, with why one of them has ended.
std::optional<int> await_children(const ServeOptions& options, Events& events, Children& children,
                                  const balance::RemoteModels& models, std::string& failure) {
  ProgressBar loading("loading " + options.shown_name());
  std::int64_t progress = -1;
  for (;;) {
    if (std::optional<std::string> ended = children.failure()) {
      failure = *std::move(ended);
      return kExitFailure;
    }
    registry::ModelStatus all = models.list().front();
    bool are_ready = true;
    for (const registry::WorkerStatus& worker : all.workers) {
      are_ready = are_ready && worker.state == "ready";
      all.progress_percent += worker.progress_percent;
    }
    if (are_ready) return std::nullopt;
    all.progress_percent /= static_cast<int>(all.workers.size());
    tell_progress(all, progress);
    loading.show(all.progress_percent);
    if (events.wait(kProgressIntervalMs) == Events::Kind::kSignal) return 0;
  }
}

// `failure`: why a child ended before all were ready, if one did.
int serve_children(const ServeOptions& options, Events& events, std::vector<ChildPlan> plans,
                   std::string& failure) {
  balance::RemoteModels models(options.balance);
  server::Server server(make_server_options(options, events), models);
  if (const Result<void> opened = server.open(); !opened) {
    return fail(options, opened.error().message);
  }
  Children children(std::move(plans), options.log_format);
  if (const auto exit_code = await_children(options, events, children, models, failure)) {
    return *exit_code;
  }
  children.keep();
  return serve_workers(options, events, models, server);
}

// Serves one model from processes of this program, its children.
int serve_layout(ServeOptions options) {
  Events events(reloads(options));
  const Result<PrivateFolder> folder = PrivateFolder::make();
  if (!folder) return fail(options, folder.error().message);
  Result<std::vector<ChildPlan>> plans = plan_children(options, folder->path());
  if (!plans) return fail(options, plans.error().message);
  for (const ChildPlan& plan : *plans) options.balance.workers.push_back({plan.listen, 0});
  std::string failure;
  const int exit_code = serve_children(options, events, *std::move(plans), failure);
  // Behind what the children have written.
  return failure.empty() ? exit_code : fail(options, failure);
}

// Where one of the standard streams is closed, the next file or socket that is opened would be
// taken for it. Reading ends at once, and writing fails.
void fill_standard_streams() {
  int fd = ::open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDONLY);
  if (fd >= 0) ::close(fd);
}

// Before any model and connection, so that it ends behind them.
Result<void> open_trace(ServeOptions& options) {
  if (options.tracing.path.empty()) return {};
  auto opened = trace::Trace::open(options.tracing);
  if (!opened) return Error{opened.error().code, "--trace: " + opened.error().message};
  options.trace = *std::move(opened);
  log::info("tracing to '" + options.tracing.path + "', up to " +
            size_text(options.tracing.max_bytes));
  return {};
}

int serve(ServeOptions options) {
  if (options.is_balancer() || options.has_layout()) {
    raise_descriptor_limit();
    return options.has_layout() ? serve_layout(options) : serve_balanced(options);
  }
  if (const Result<void> ok = check_device(options); !ok) return fail(options, ok.error().message);
  Result<catalog::NamePolicy> policy = name_policy(options);
  if (!policy) return fail(options, policy.error().message);
  if (const Result<void> ok = open_trace(options); !ok) return fail(options, ok.error().message);
  raise_descriptor_limit();
  return options.is_auto() ? serve_auto(options, *std::move(policy))
                           : serve_one(options, *std::move(policy));
}

}  // namespace
}  // namespace lmtp::tools

int main(int argc, char** argv) {
  lmtp::tools::return_large_blocks();
  lmtp::tools::fill_standard_streams();
  const auto parsed = lmtp::tools::parse_serve_options(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  auto options = std::get<lmtp::tools::ServeOptions>(parsed);
  lmtp::log::set_level(options.log_level);
  lmtp::log::set_format(options.log_format);
  if (const auto taken = lmtp::tools::take_sockets(options); !taken) {
    return lmtp::tools::fail(options, taken.error().message);
  }
  return options.is_doctor ? lmtp::tools::diagnose(options)
                           : lmtp::tools::serve(std::move(options));
}
