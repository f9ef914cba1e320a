// A load against a server that does what a test says.
#include "lmtp-bench/load_generator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/script_server.h"

namespace lmtp::tools {
namespace {

using lmtp::testing::ScriptServer;
using Socket = ScriptServer::Socket;

LoadOptions options_for(const ScriptServer& server, WorkloadOptions work = {}) {
  work.vocab_size = 100;
  LoadOptions options;
  options.host = "127.0.0.1";
  options.port = server.port();
  options.max_concurrency = 1;
  options.num_requests = 1;
  options.workload = std::make_shared<WorkloadOptions>(std::move(work));
  return options;
}

LoadStats run(const LoadOptions& options) {
  auto stats = run_load(options, nullptr);
  EXPECT_TRUE(stats.ok()) << stats.error().message;
  return std::move(stats).value();
}

std::string entry(int stream_id, int id, const char* reason = "null") {
  return R"({"token": )" + std::to_string(id) + R"(, "stream_id": )" + std::to_string(stream_id) +
         R"(, "logprob": -0.5, "finish_reason": )" + reason + R"(, "top_logprobs": {")" +
         std::to_string(id) + R"(": -0.5}})";
}

void answer(Socket& socket, int stream_id, const char* reason = "\"length\"") {
  socket.write("TOKEN [" + entry(stream_id, 7, reason) + "]");
}

// Until the client leaves.
void wait_for_the_end(Socket& socket) {
  for (;;) socket.read();
}

TEST(LoadGenerator, TokensThatComeTogetherShareTheirGap) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    socket.write("MSG [{\"stream_id\": 1, \"status\": \"loading\"}]");
    socket.write("TOKEN [" + entry(1, 5) + "]");
    socket.write("NEWS [{}]");
    socket.write("TOKEN [" + entry(1, 6) + ", " + entry(1, 7) + "]");
    socket.write("TOKEN [" + entry(1, 8, "\"stop\"") + "]");
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.keep_records = true;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_completed, 1);
  EXPECT_EQ(stats.num_stopped, 1);
  EXPECT_EQ(stats.num_tokens, 4);
  EXPECT_EQ(stats.num_prompt_tokens, 128);
  EXPECT_TRUE(stats.errors.empty());
  EXPECT_EQ(stats.num_failed + stats.num_stray + stats.num_not_sent, 0);
  EXPECT_EQ(stats.ttft.count(), 1);
  EXPECT_EQ(stats.itl.count(), 3);
  ASSERT_EQ(stats.tpot.count(), 1);
  // By definition: what lies between the first and the last token.
  EXPECT_NEAR(stats.itl.mean_s(), stats.tpot.mean_s(), 1e-9);
  EXPECT_NEAR(stats.tpot.mean_s() * 3, stats.e2el.mean_s() - stats.ttft.mean_s(), 1e-9);
  ASSERT_EQ(stats.records.size(), 1U);
  EXPECT_EQ(stats.records[0].outcome, "stop");
  EXPECT_EQ(stats.records[0].num_tokens, 4);
  EXPECT_EQ(stats.records[0].ttft_s, stats.ttft.mean_s());
}

TEST(LoadGenerator, AnAnswerThatComesDuringASendIsTimedThen) {
  ScriptServer server({[](Socket& socket) {
    socket.fix_receive_buffer();
    socket.read();
    answer(socket, 1);
    socket.read();  // the send of the second cannot end before this has begun
    socket.read();
    answer(socket, 2);
    answer(socket, 3);
    wait_for_the_end(socket);
  }});
  WorkloadOptions work;
  work.prompt.assign(2'500'000, 10'000'000);  // of ten characters each
  LoadOptions options = options_for(server, work);
  options.num_requests = 3;
  options.max_concurrency = 3;
  options.keep_records = true;
  LoadStats stats = run(options);
  ASSERT_EQ(stats.records.size(), 3U);
  std::ranges::sort(stats.records, {}, &RequestRecord::start_s);
  EXPECT_LE(stats.records[0].start_s + stats.records[0].e2el_s, stats.records[2].start_s);
}

TEST(LoadGenerator, AScoreHasNoTimeBetweenItsTokens) {
  ScriptServer server({[](Socket& socket) {
    EXPECT_EQ(socket.read().substr(0, 7), "SCORE {");
    socket.write("TOKEN [" + entry(1, 5) + ", " + entry(1, 6, "\"stop\"") + "]");
    wait_for_the_end(socket);
  }});
  WorkloadOptions work;
  work.score = true;
  work.output_len = 2;
  const LoadStats stats = run(options_for(server, work));
  EXPECT_EQ(stats.num_completed, 1);
  EXPECT_EQ(stats.num_stopped, 0);  // that is how a SCORE ends
  EXPECT_EQ(stats.num_tokens, 2);
  EXPECT_EQ(stats.ttft.count(), 1);
  EXPECT_EQ(stats.e2el.count(), 1);
  EXPECT_EQ(stats.itl.count() + stats.tpot.count(), 0);
}

TEST(LoadGenerator, ErrorsAreCountedAndNamed) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    const std::string error = R"([{"stream_id": 1, "error": "unknown model"}])";
    socket.write("TOKEN " + error);
    socket.write("MSG " + error);  // the same once more, as servers do
    socket.read();
    socket.write(R"(MSG {"stream_id": null, "error": "what?"})");
    socket.write("TOKEN [" + entry(44, 7) + "]");
    socket.write(R"(MSG [{"stream_id": 2, "error": "unknown model"}])");
    socket.read();
    answer(socket, 3);
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 3;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_completed, 1);
  EXPECT_EQ(stats.num_failed, 2);
  EXPECT_EQ(stats.num_stray, 1);
  EXPECT_EQ(stats.errors,
            (std::map<std::string, std::int64_t>{{"unknown model", 2}, {"what?", 1}}));
  EXPECT_EQ(stats.num_programs_done, 1);
}

TEST(LoadGenerator, ABrokenConnectionFailsWhatIsUnderWay) {
  ScriptServer server({[](Socket& socket) {
    for (int i = 0; i < 3; ++i) socket.read();
    answer(socket, 1, "null");
    socket.close(ScriptServer::kGoingAway, "bye");
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 10;
  options.max_concurrency = 3;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_failed, 3);
  EXPECT_EQ(stats.num_completed, 0);
  EXPECT_EQ(stats.num_not_sent, 7);
  ASSERT_EQ(stats.errors.size(), 1U);
  EXPECT_NE(stats.errors.begin()->first.find("1001: bye"), std::string::npos);
  EXPECT_EQ(stats.errors.begin()->second, 3);
}

TEST(LoadGenerator, AMessageThatIsNoJsonFailsWhatIsUnderWay) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    socket.write("TOKEN [{");
    wait_for_the_end(socket);
  }});
  const LoadStats stats = run(options_for(server));
  EXPECT_EQ(stats.num_failed, 1);
  EXPECT_NE(stats.errors.begin()->first.find("not JSON"), std::string::npos);
}

TEST(LoadGenerator, ASilentServerIsGivenUp) {
  ScriptServer server({wait_for_the_end});
  LoadOptions options = options_for(server);
  options.timeout_ms = 30;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_failed, 1);
  EXPECT_EQ(stats.errors.begin()->first, "no answer for 30 ms");
}

TEST(LoadGenerator, AClosedLoopKeepsItsConcurrency) {
  ScriptServer server({[](Socket& socket) {
    socket.read();
    for (int i = 1; i < 6; ++i) {
      socket.read();  // two are under way now
      answer(socket, i);
    }
    answer(socket, 6);
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 6;
  options.max_concurrency = 2;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_completed, 6);
  EXPECT_EQ(stats.peak_requests, 2);
  EXPECT_EQ(stats.peak_programs, 2);
  EXPECT_EQ(stats.lag.count(), 0);
}

TEST(LoadGenerator, RequestsAtATimeAreNotProgramsAtATime) {
  ScriptServer server({[](Socket& socket) {
    for (int i = 0; i < 6; ++i) socket.read();  // three of each program
    for (int i = 1; i <= 6; ++i) answer(socket, i, "\"stop\"");
    for (int i = 7; i <= 9; ++i) socket.read();
    for (int i = 7; i <= 9; ++i) answer(socket, i, "\"stop\"");
    wait_for_the_end(socket);
  }});
  WorkloadOptions work;
  work.lmql = {LmqlPattern::kScores};
  work.lmql_scores = 3;
  work.lmql_score_len = 1;
  LoadOptions options = options_for(server, work);
  options.num_requests = 3;
  options.max_concurrency = 2;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_programs_done, 3);
  EXPECT_EQ(stats.num_completed, 9);
  EXPECT_EQ(stats.peak_programs, 2);
  EXPECT_EQ(stats.peak_requests, 6);
}

TEST(LoadGenerator, ALateServerDoesNotSlowTheArrivals) {
  ScriptServer server({[](Socket& socket) {
    for (int i = 0; i < 5; ++i) socket.read();  // answers none before all have come
    for (int i = 1; i <= 5; ++i) answer(socket, i);
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 5;
  options.max_concurrency = kConcurrencyMax;
  options.request_rate = 500;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_completed, 5);
  EXPECT_EQ(stats.peak_requests, 5);
  EXPECT_EQ(stats.lag.count(), 5);
}

TEST(LoadGenerator, MakesNoMoreConnectionsThanProgramsRunAtATime) {
  // A second connection would be refused by this server.
  ScriptServer server({[](Socket& socket) {
    for (int i = 1; i <= 2; ++i) {
      socket.read();
      answer(socket, i);
    }
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 2;
  options.num_connections = 7;
  EXPECT_EQ(run(options).num_completed, 2);
}

TEST(LoadGenerator, RequestsCarryTheirBias) {
  std::vector<std::string> requests;
  ScriptServer server({[&](Socket& socket) {
    for (int i = 1; i <= 2; ++i) {
      requests.push_back(socket.read());
      std::string tokens = "TOKEN [";
      for (int k = 0; k < 16; ++k) tokens += entry(i, 7, k == 15 ? "\"length\"" : "null") + ", ";
      tokens.resize(tokens.size() - 2);
      socket.write(tokens + "]");
    }
    wait_for_the_end(socket);
  }});
  WorkloadOptions work;
  work.prompt = {1, 2};
  work.output_len = 32;
  work.lmql = {LmqlPattern::kChunks};
  LoadOptions options = options_for(server, work);
  options.model = "m";
  options.mask = {3, 9};
  options.banned_tokens = {5};
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_programs_done, 1);
  EXPECT_EQ(stats.num_completed, 2);
  EXPECT_EQ(stats.itl.count(), 30);
  EXPECT_EQ(stats.program.count(), 1);
  server.join();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(
      requests[0],
      "GENERATE {\"max_tokens\": 16, \"logit_bias\": {\"3\": -100, \"5\": -100, \"9\": -100}, "
      "\"prompt\": [1, 2], \"model\": \"m\", \"stream_id\": 1}");
  EXPECT_NE(requests[1].find("[1, 2, 7, 7, 7"), std::string::npos);
}

TEST(LoadGenerator, ASignalEndsItWithWhatHasCome) {
  client::Interrupts interrupts;
  ScriptServer server({[](Socket& socket) {
    socket.read();
    socket.read();
    answer(socket, 1);
    socket.read();  // the answer has been taken, the next request has come
    kill(getpid(), SIGINT);
    wait_for_the_end(socket);
  }});
  LoadOptions options = options_for(server);
  options.num_requests = 100;
  options.max_concurrency = 2;
  const auto stats = run_load(options, &interrupts);
  ASSERT_TRUE(stats.ok());
  EXPECT_TRUE(stats->interrupted);
  EXPECT_TRUE(interrupts.take());
  EXPECT_EQ(stats->num_completed, 1);
  EXPECT_EQ(stats->num_unfinished, 2);
  EXPECT_EQ(stats->num_not_sent, 97);
}

TEST(LoadGenerator, TimeEndsItToo) {
  ScriptServer server({wait_for_the_end});
  LoadOptions options = options_for(server);
  options.num_requests = 0;
  options.duration_s = 1;
  const LoadStats stats = run(options);
  EXPECT_EQ(stats.num_unfinished, 1);
  EXPECT_EQ(stats.num_failed, 0);
  EXPECT_GE(stats.duration_s, 0.05);
}

TEST(LoadGenerator, ANoServerIsAnError) {
  std::uint16_t port = 0;
  {
    ScriptServer gone({});
    port = gone.port();
  }
  LoadOptions options;
  options.port = port;
  const auto stats = run_load(options, nullptr);
  ASSERT_FALSE(stats.ok());
  EXPECT_NE(stats.error().message.find("refused"), std::string::npos);
}

}  // namespace
}  // namespace lmtp::tools
