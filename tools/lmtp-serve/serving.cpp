#include "serving.h"

#include <sys/resource.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "lmtp/base/log.h"
#include "lmtp/base/version.h"
#include "lmtp/catalog/device_choice.h"
#include "lmtp/catalog/dtype_choice.h"
#include "systemd.h"

namespace lmtp::tools {

Result<void> check_device(const ServeOptions& options) {
  const Result<std::optional<int>> device = catalog::parse_device(options.device);
  if (!device) return device.error();
  if (device->has_value() && options.max_drafts > 0) {
    return Error{ErrorCode::kInvalid,
                 "--speculate: is for a CPU; a device starts steps before it is known what the "
                 "last one draws. Leave it out"};
  }
  if (device->has_value()) {
    const kernels::cuda::Probe probe = kernels::cuda::probe(**device);
    if (!probe.available) return Error{ErrorCode::kUnavailable, "no CUDA: " + probe.reason};
    log::info("computing on " + probe.name);
  }
  const Result<catalog::DtypeChoice> dtype =
      catalog::parse_dtype(options.dtype, device->has_value());
  if (!dtype) return dtype.error();
  if (!dtype->note.empty()) log::info(dtype->note);
  if (!device->has_value() && options.swap_bytes > 0) {
    return Error{
        ErrorCode::kInvalid,
        "--swap-space: on a CPU keys and values are in the host's memory already; leave it "
        "out, and give --kv-cache more"};
  }
  const Result<void> communicator = catalog::check_communicator(
      options.communicator, options.tensor_parallel_size, device->has_value());
  if (!communicator) return communicator.error();
  const auto kv_cache = catalog::parse_kv_cache_dtype(options.kv_cache_dtype);
  if (!kv_cache) return kv_cache.error();
  return {};
}

Result<void> take_sockets(ServeOptions& options) {
  const Result<std::vector<GivenSocket>> sockets = take_given_sockets();
  if (!sockets) return sockets.error();
  if (sockets->empty() || options.on_stdio) return {};
  options.on_tcp = false;
  options.unix_path.clear();
  for (const GivenSocket& given : *sockets) {
    int& fd = given.is_unix ? options.unix_fd : options.tcp_fd;
    if (fd >= 0) {
      return Error{ErrorCode::kInvalid,
                   "the service manager has handed over more than one TCP and one Unix socket; "
                   "ListenStream=PORT is one of IPv4 and IPv6"};
    }
    fd = given.fd;
    if (given.is_unix) {
      options.unix_path = given.address;
    } else {
      options.on_tcp = true;
      options.host = given.address;
      options.port = given.port;
    }
  }
  return {};
}

Result<catalog::NamePolicy> name_policy(const ServeOptions& options) {
  Result<std::vector<std::string>> folders = catalog::canonical_folders(options.model_dirs);
  if (!folders) return folders.error();
  catalog::NamePolicy policy;
  policy.model_dirs = *std::move(folders);
  policy.any_adapter = !options.on_tcp || catalog::is_loopback(options.host);
  if (options.is_auto()) {
    policy.anything = catalog::is_loopback(options.host);
    policy.downloads = options.allow_download;
    if (policy.downloads.empty() && policy.anything) policy.downloads = {"*"};
  }
  return policy;
}

server::ServerOptions server_options(const ServeOptions& options) {
  server::ServerOptions server;
  server.on_tcp = options.on_tcp;
  server.unix_path = options.unix_path;
  server.tcp_fd = options.tcp_fd;
  server.unix_fd = options.unix_fd;
  server.host = options.host;
  server.tls_certfile = options.tls_certfile;
  server.tls_keyfile = options.tls_keyfile;
  server.port = options.port;
  server.num_io_threads = options.num_io_threads;
  server.max_message_bytes = options.max_message_bytes;
  server.max_write_queue_bytes = options.max_write_queue_bytes;
  server.max_read_buffers_bytes = options.max_read_buffers_bytes;
  server.max_write_queues_bytes = options.max_write_queues_bytes;
  server.max_buffer_bytes = options.max_buffer_bytes;
  server.max_buffers_bytes = 4 * options.max_buffer_bytes;
  server.max_connections = options.max_connections;
  server.api = options.api;
  server.api.max_concurrent_requests = options.max_concurrent_requests;
  server.max_connections_per_address = options.max_connections_per_address;
  server.max_request_rate_per_address = options.max_request_rate_per_address;
  server.api_keys = options.api_keys;
  server.api_key_file = options.api_key_file;
  server.allow_runtime_lora = options.allow_runtime_lora;
  server.insecure = options.insecure;
  server.ui = !options.no_ui;
  server.aici = options.aici || !options.aicirt.path.empty();
  server.aici_upload = options.aici_upload;
  server.log_prompts = options.log_prompts;
  server.own_caches = options.own_caches;
  server.trace = options.trace;
  server.metrics_aliases = options.metrics_aliases;
  server.allowed_origins = options.allowed_origins;
  server.allowed_hosts = options.allowed_hosts;
  server.version = kVersion;
  return server;
}

std::string calls_text(const text::ReplyLayout* layout) {
  if (layout == nullptr || layout->source.empty()) return "";
  return "; tool calls: " + layout->name + " (" + layout->source + ")";
}

long raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max == RLIM_INFINITY ? -1 : static_cast<long>(limit.rlim_max);
}

}  // namespace lmtp::tools
