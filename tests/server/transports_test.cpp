// The session over lines and over a Unix socket, in one process; programs and pipes are
// e2e_transports'.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/client/client.h"
#include "running_server.h"
#include "temp_folder.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::TempFolder;

constexpr std::chrono::minutes kHang{1};

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(fds[0]);
    close_in();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_in() { ::close(std::exchange(fds[1], -1)); }

  int fds[2] = {-1, -1};
};

// A server whose input and output are pipes.
class LineServer {
 public:
  explicit LineServer(FakeModelOptions model = {}, ServerOptions options = {})
      : running_(std::move(model), with_lines(std::move(options))) {}

  Running& running() { return running_; }
  void send(const std::string& text) {
    const std::string line = text + "\n";
    for (std::string_view left = line; !left.empty();) {
      const ssize_t num_written = ::write(input_.fds[1], left.data(), left.size());
      ASSERT_GT(num_written, 0);
      left.remove_prefix(static_cast<std::size_t>(num_written));
    }
  }
  void end_input() { input_.close_in(); }
  // How the session ended.
  Result<void> ended() {
    auto end = end_.get_future();
    if (end.wait_for(kHang) != std::future_status::ready) {
      return Error{ErrorCode::kTimeout, "it has not ended"};
    }
    return end.get();
  }

  // The next entry; null where none comes.
  nlohmann::json next() {
    while (entries_.empty()) {
      const std::size_t end = text_.find('\n');
      if (end != std::string::npos) {
        const std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        for (auto& entry : nlohmann::json::parse(line.substr(line.find(' ')))) {
          entries_.push_back(std::move(entry));
        }
        continue;
      }
      pollfd readable{output_.fds[0], POLLIN, 0};
      if (::poll(&readable, 1, 60'000) <= 0) return {};
      char bytes[1 << 16];
      const ssize_t num_read = ::read(output_.fds[0], bytes, sizeof(bytes));
      text_.append(bytes, static_cast<std::size_t>(num_read));
    }
    nlohmann::json entry = std::move(entries_.front());
    entries_.pop_front();
    return entry;
  }

 private:
  ServerOptions with_lines(ServerOptions options) {
    options.on_tcp = false;
    options.lines.emplace();
    options.lines->in_fd = input_.fds[0];
    options.lines->out_fd = output_.fds[1];
    options.lines->on_end = [this](const Result<void>& how) { end_.set_value(how); };
    return options;
  }

  Pipe input_;
  Pipe output_;
  std::promise<Result<void>> end_;
  std::string text_;
  std::deque<nlohmann::json> entries_;
  Running running_;
};

TEST(Lines, AreAllAnsweredBeforeTheEnd) {
  LineServer server;
  server.send(generate(1, 30));
  server.send(generate(2, 30));
  server.send("TOKENIZE {\"stream_id\": 3, \"text\": \"" + std::string(70 << 10, 'x') + "\"}");
  server.send(R"(MODEL_INFO {"stream_id": 4})");
  server.send(R"(GENERATE {"stream_id": 5, "prompt": "ab", "max_tokens": 2, "n": 3})");
  server.end_input();
  std::vector<TokenId> tokens[6];
  int num_ended = 0;
  while (num_ended < 7) {
    const nlohmann::json entry = server.next();
    ASSERT_FALSE(entry.is_null());
    ASSERT_FALSE(entry.contains("error")) << entry;
    if (entry.contains("token")) tokens[entry["stream_id"].get<int>()].push_back(entry["token"]);
    num_ended += !entry.contains("token") || !entry["finish_reason"].is_null() ? 1 : 0;
    if (entry.contains("status")) --num_ended;  // LOADING
  }
  for (const int id : {1, 2}) {
    EXPECT_EQ(tokens[id], FakeAgent::expected_tokens({1, 2, 3}, 30, kFakeVocabSize));
  }
  EXPECT_EQ(tokens[5].size(), 6U);
  const Result<void> how = server.ended();
  EXPECT_TRUE(how.ok()) << how.error().message;
}

TEST(Lines, AreToldThatTheServerDrains) {
  LineServer server(lmtp::testing::endless_model());
  server.send(generate(1, lmtp::testing::kEndless, R"(, "notices": true)"));
  while (!server.next().contains("token")) continue;
  std::thread stop([&] { server.running().models->stop(60'000); });
  nlohmann::json entry = server.next();
  while (entry.contains("token")) entry = server.next();
  EXPECT_EQ(entry["status"], "draining");
  EXPECT_GT(entry["deadline_ms"], 0);
  EXPECT_LE(entry["deadline_ms"], 60'000);
  server.send(R"(CANCEL {"stream_id": 1})");
  while (!entry.contains("error")) entry = server.next();
  EXPECT_EQ(entry["error"], "cancelled");
  stop.join();
}

TEST(Lines, EndWhereNobodyReadsWhatIsWritten) {
  ServerOptions options;
  options.max_write_queue_bytes = 4096;
  LineServer server({}, options);
  server.send(generate(1, 500, R"(, "n": 16)"));
  const Result<void> how = server.ended();
  ASSERT_FALSE(how.ok());
  EXPECT_EQ(how.error().message,
            "standard output is not read: more than 4096 bytes wait to be written "
            "(--max-write-queue)");
  server.running().wait_idle();
}

TEST(UnixSocket, ServesManyConnectionsAtOnce) {
  const TempFolder folder;
  ServerOptions options;
  options.on_tcp = false;
  options.unix_path = folder.path() + "/lmtp.sock";
  Running running({}, options);
  std::vector<std::thread> clients;
  for (int number = 0; number < 4; ++number) {
    clients.emplace_back([&] {
      client::Client client;
      ASSERT_TRUE(client.connect("unix:" + options.unix_path, 0).ok());
      for (StreamId id = 0; id < 5; ++id) ASSERT_TRUE(client.send_text(generate(id, 20)).ok());
      std::vector<TokenId> tokens[5];
      protocol::ServerEntry entry;
      for (int num_ended = 0; num_ended < 5;) {
        const Result<bool> received = client.receive(entry, 60'000);
        ASSERT_TRUE(received.ok() && *received);
        if (!entry.token) continue;
        tokens[*entry.stream_id].push_back(*entry.token);
        num_ended += entry.finish_reason != FinishReason::kNone ? 1 : 0;
      }
      for (const auto& of_stream : tokens) {
        EXPECT_EQ(of_stream, FakeAgent::expected_tokens({1, 2, 3}, 20, kFakeVocabSize));
      }
      // Left alone, its stream is freed.
      EXPECT_TRUE(client.send_text(generate(9, 500)).ok());
    });
  }
  for (std::thread& client : clients) client.join();
  running.wait_idle();
}

}  // namespace
}  // namespace lmtp::server
