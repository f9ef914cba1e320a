#include "load_generator.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/client/client.h"
#include "load_worker.h"

namespace lmtp::tools {
namespace {

constexpr rlim_t kFilesPerConnection = 6;  // its socket, and descriptors of its event loop
constexpr rlim_t kFilesKept = 64;

// An eventfd that is readable when all of a number of threads have ended, for poll().
class AllEnded {
 public:
  explicit AllEnded(std::size_t count) : fd_(eventfd(0, EFD_CLOEXEC)), num_left_(count) {
    LMTP_CHECK(fd_ >= 0, "eventfd: no descriptor left");
  }
  ~AllEnded() { close(fd_); }
  AllEnded(const AllEnded&) = delete;
  AllEnded& operator=(const AllEnded&) = delete;

  void count_down() {
    if (--num_left_ > 0) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof(one));
  }

  // False: a signal came first.
  bool wait(const client::Interrupts* interrupts) const {
    pollfd fds[] = {{fd_, POLLIN, 0}, {interrupts ? interrupts->fd() : -1, POLLIN, 0}};
    while (poll(fds, 2, -1) < 0) LMTP_CHECK(errno == EINTR, errno);
    return (fds[0].revents & POLLIN) != 0;
  }

 private:
  const int fd_;
  std::atomic<std::size_t> num_left_;
};

// Raises the limit of open files up to the hard limit, so that users need no `ulimit -n`.
Result<void> raise_file_limit(std::size_t num_connections) {
  const rlim_t wanted = kFilesKept + kFilesPerConnection * num_connections;
  rlimit limit = {};
  LMTP_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, errno);
  if (limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur == wanted && setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  return Error{ErrorCode::kUnavailable, "--connections: " + std::to_string(num_connections) +
                                            " need " + std::to_string(wanted) +
                                            " open files, and the system allows " +
                                            std::to_string(limit.rlim_max) + " (ulimit -Hn)"};
}

Result<std::vector<client::Client>> connect_all(const LoadOptions& options, std::size_t count,
                                                client::Interrupts* interrupts) {
  if (auto raised = raise_file_limit(count); !raised) return raised.error();
  std::vector<client::Client> clients(count);
  for (client::Client& client : clients) {
    if (interrupts) interrupts->wakes(&client);
    const auto connected =
        client.connect(options.host, options.port, client::kConnectTimeoutMs, options.security);
    if (interrupts) interrupts->wakes(nullptr);
    if (!connected) return connected.error();
  }
  return clients;
}

}  // namespace

Result<LoadStats> run_load(const LoadOptions& options, client::Interrupts* interrupts) {
  LMTP_CHECK(options.num_connections >= 1 && options.num_connections <= kConnectionsMax,
             options.num_connections);
  LMTP_CHECK(options.max_concurrency >= 1 && options.max_concurrency <= kConcurrencyMax,
             options.max_concurrency);
  const auto concurrency = static_cast<std::size_t>(options.max_concurrency);
  const auto num_clients = std::min(static_cast<std::size_t>(options.num_connections), concurrency);
  auto clients = connect_all(options, num_clients, interrupts);
  if (!clients) return clients.error();

  const RequestText text(options);
  std::vector<LoadStats> parts(num_clients);
  std::vector<std::thread> threads;
  AllEnded all_ended(num_clients);
  const auto began = Clock::now();
  Schedule schedule(options, began);
  for (std::size_t i = 0; i < num_clients; ++i) {
    const auto share =
        static_cast<int>(concurrency / num_clients + (i < concurrency % num_clients ? 1 : 0));
    threads.emplace_back([&, i, share] {
      client::Client& client = (*clients)[i];
      parts[i] = LoadWorker(options, text, client, schedule, share).run();
      all_ended.count_down();
      client.close();
    });
  }
  LoadStats stats;
  if (!all_ended.wait(interrupts)) {
    stats.interrupted = true;
    schedule.stop();
    for (client::Client& client : *clients) client.interrupt();
    all_ended.wait(nullptr);
  }
  stats.duration_s = seconds_between(began, Clock::now());
  for (std::thread& thread : threads) thread.join();
  for (const LoadStats& part : parts) stats.add(part);
  if (options.num_requests > 0) stats.num_not_sent = options.num_requests - stats.num_programs;
  stats.peak_programs = schedule.programs.peak();
  stats.peak_requests = schedule.requests.peak();
  return stats;
}

}  // namespace lmtp::tools
