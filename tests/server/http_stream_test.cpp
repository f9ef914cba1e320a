// Streamed answers over real sockets: an endpoint that streams what a model generates, as one more
// protocol would have it, and clients that go, wait, or do not read.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "http_client.h"
#include "lmtp/request/error_kind.h"
#include "lmtp/request/request.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::endless_model;
using lmtp::testing::FakeAgent;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::kEndless;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::WsClient;
using ResponderPtr = std::shared_ptr<HttpResponder>;

constexpr std::chrono::seconds kPatience{60};
constexpr StreamId kStream = 0;

// --- the endpoint: POST /tokens?MODEL with a number of tokens ---

void write_event(const StreamEvent& event, HttpResponder& responder) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    responder.write("data: " + std::to_string(token->token) + "\n\n");
  } else if (const auto* error = std::get_if<StreamError>(&event)) {
    responder.write("data: " + std::string(error_kind(error->error.code).name) + "\n\n");
  }
  if (is_last(event)) responder.end();
}

void stream_tokens(registry::Registry& models, const HttpRequest& http,
                   const ResponderPtr& responder) {
  Request request;
  request.key = {responder->id(), kStream};
  request.caller = responder->caller();
  request.others_connected = responder->others_connected();
  request.model = http.query;
  request.prompt = {1, 2, 3};
  std::from_chars(http.body.data(), http.body.data() + http.body.size(), request.params.max_tokens);
  request.sink = make_event_sink(responder, [responder](std::span<StreamEvent> events) {
    for (const StreamEvent& event : events) write_event(event, *responder);
  });
  const StreamKey key = request.key;
  registry::Submission submitted = models.submit(std::move(request));
  if (const auto* refusal = std::get_if<registry::Refusal>(&submitted)) {
    return responder->send(
        {error_kind(refusal->error.code).http_status, "text/plain", refusal->error.message});
  }
  responder->begin({200, "text/event-stream", ""});
  responder->on_gone([canceller = std::get<std::shared_ptr<registry::StreamCanceller>>(submitted),
                      key] { canceller->cancel(key); });
}

void add_tokens(HttpRoutes& routes, registry::Registry& models) {
  routes.add({"POST", "/tokens", 100,
              [&models](const HttpRequest& request, const ResponderPtr& responder) {
                stream_tokens(models, request, responder);
              }});
}

std::string events_of(int num_tokens) {
  std::string out;
  for (const TokenId token : FakeAgent::expected_tokens({1, 2, 3}, num_tokens, kFakeVocabSize)) {
    out += "data: " + std::to_string(token) + "\n\n";
  }
  return out;
}

// --- tests ---

class HttpStream : public testing::OverBoth {};

INSTANTIATE_TEST_SUITE_P(, HttpStream, ::testing::Bool(), testing::transport_name);

TEST_P(HttpStream, TokensComeAsChunksAndTheConnectionIsKept) {
  Running running({}, {}, add_tokens);
  HttpClient client(running.server.port());
  for (const int num_tokens : {5, 1, 300}) {
    client.send(http_request("POST /tokens", std::to_string(num_tokens)));
    const HttpClient::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200) << answer.head;
    EXPECT_NE(answer.head.find("Content-Type: text/event-stream\r\n"), std::string::npos);
    EXPECT_EQ(answer.head.find("Connection:"), std::string::npos) << answer.head;
    EXPECT_TRUE(answer.is_whole);
    EXPECT_EQ(answer.body, events_of(num_tokens));
  }
  client.send(http_request("POST /tokens?nobody", "1"));
  EXPECT_EQ(client.read_answer().status, 404);
  client.send(http_request("GET /health"));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_P(HttpStream, RequestsSentAtOnceAreAnsweredInTheirOrder) {
  Running running({}, {}, add_tokens);
  HttpClient client(running.server.port());
  client.send(http_request("POST /tokens", "40") + http_request("GET /health") +
              http_request("POST /tokens", "3") +
              http_request("GET /x", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read_answer().body, events_of(40));
  EXPECT_NE(client.read_answer().body.find("\"model\": \"fake\""), std::string::npos);
  EXPECT_EQ(client.read_answer().body, events_of(3));
  EXPECT_EQ(client.read_answer().status, 404);
  EXPECT_EQ(client.read_all(), "");
}

TEST_P(HttpStream, BeforeHttp11TheEndIsTheConnections) {
  Running running({}, {}, add_tokens);
  for (const char* fields : {"", "Connection: keep-alive\r\n"}) {
    HttpClient client(running.server.port());
    client.send("POST /tokens HTTP/1.0\r\nContent-Length: 2\r\n" + std::string(fields) + "\r\n20");
    const HttpClient::Answer answer = client.read_answer();
    EXPECT_NE(answer.head.find("Connection: close\r\n"), std::string::npos) << answer.head;
    EXPECT_EQ(answer.head.find("chunked"), std::string::npos) << answer.head;
    EXPECT_EQ(answer.body, events_of(20));
  }
}

TEST_P(HttpStream, AClientThatGoesEndsItsStream) {
  const std::vector<void (*)(HttpClient&)> ways = {
      [](HttpClient& client) { client.close(); },
      [](HttpClient& client) { client.reset(); },
      [](HttpClient& client) { client.half_close(); },
      [](HttpClient& client) {  // with more behind the request than is read before it is answered
        client.send(std::string(50'000, 'x'));
        client.reset();
      },
  };
  Running running(endless_model(), {}, add_tokens);
  for (const auto& go : ways) {
    HttpClient client(running.server.port());
    client.send(http_request("POST /tokens", std::to_string(kEndless)));
    EXPECT_NE(client.read_until("data: "), "");
    EXPECT_GT(running.stats().num_running, 0);
    go(client);
    running.wait_idle();
  }
}

// Writes without end, as long as the client is there.
void pump(const ResponderPtr& responder, const std::string& piece) {
  responder->write(piece);
  responder->post([responder, piece] { pump(responder, piece); });
}

struct Flood {
  // Of the first client that goes.
  std::promise<void> gone;
  std::future<void> is_gone = gone.get_future();

  Running::AddRoutes routes() {
    return [this](HttpRoutes& routes, registry::Registry& models) {
      add_tokens(routes, models);
      routes.add({"GET", "/flood", 0, [this](const HttpRequest&, const ResponderPtr& responder) {
                    responder->begin({200, "text/plain", ""});
                    responder->on_gone([this] { gone.set_value(); });
                    pump(responder, std::string(10'000, 'x'));
                  }});
    };
  }
};

TEST_P(HttpStream, AClientThatDoesNotReadIsLetGoAndOthersGoOn) {
  ServerOptions own, of_all;
  own.max_write_queue_bytes = std::size_t{256} << 10;
  of_all.max_write_queue_bytes = std::size_t{1} << 30;
  of_all.max_write_queues_bytes = std::size_t{1} << 20;
  for (const ServerOptions& options : {own, of_all}) {
    Flood flood;
    Running running({}, options, flood.routes());
    HttpClient slow(running.server.port(), 4096);
    slow.send(http_request("GET /flood"));
    ASSERT_EQ(flood.is_gone.wait_for(kPatience), std::future_status::ready);
    EXPECT_FALSE(slow.read_answer().is_whole) << "a client sees that something is missing";
    HttpClient other(running.server.port());
    other.send(http_request("POST /tokens", "5"));
    EXPECT_EQ(other.read_answer().body, events_of(5));
  }
}

TEST_P(HttpStream, AStopCutsWhatDoesNotEnd) {
  Flood flood;
  Running running({}, {}, flood.routes());
  HttpClient client(running.server.port());
  client.send(http_request("GET /flood"));
  client.read_until("xxx");
  std::thread reader([&] { client.read_all(); });
  running.server.stop(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  EXPECT_EQ(flood.is_gone.wait_for(kPatience), std::future_status::ready);
  reader.join();
}

// Where the test answers, from its own thread.
struct HeldAnswer {
  std::promise<ResponderPtr> asked;
  std::future<ResponderPtr> handed = asked.get_future();

  Running::AddRoutes routes() {
    return [this](HttpRoutes& routes, registry::Registry&) {
      routes.add({"GET", "/held", 0, [this](const HttpRequest&, const ResponderPtr& responder) {
                    asked.set_value(responder);
                  }});
    };
  }
};

TEST_P(HttpStream, AStopWaitsForAnAnswerThatIsUnderWay) {
  HeldAnswer held;
  Running running({}, {}, held.routes());
  HttpClient client(running.server.port());
  client.send(http_request("GET /held"));
  ResponderPtr responder = held.handed.get();
  responder->post([responder] {
    responder->begin({200, "text/plain", ""});
    responder->write("first, ");
  });
  EXPECT_NE(client.read_until("first, "), "");
  HttpClient idle(running.server.port());
  idle.send(http_request("GET /x"));
  EXPECT_EQ(idle.read_answer().status, 404);
  auto stopped = std::async(std::launch::async, [&] { running.server.stop(Running::soon()); });
  EXPECT_EQ(idle.read_all(), "") << "it ends at once";
  responder->post([responder] {
    responder->write("last");
    responder->end();
  });
  EXPECT_EQ(client.read_all(), "\r\n4\r\nlast\r\n0\r\n\r\n");
  EXPECT_EQ(stopped.wait_for(kPatience), std::future_status::ready);
}

TEST_P(HttpStream, AnAnswerMayComeLaterAndFromAnyThread) {
  HeldAnswer held;
  Running running({}, {}, held.routes());
  HttpClient client(running.server.port());
  client.send(http_request("HEAD /held") + http_request("GET /x"));
  ResponderPtr responder = held.handed.get();
  responder->post([responder] {
    EXPECT_FALSE(responder->others_connected());
    responder->send({202, "text/plain", "later", {{"Retry-After", "1"}}});
    responder->send({200, "text/plain", "and once more, which nobody gets"});
    responder->on_gone([] { ADD_FAILURE() << "it is answered"; });
  });
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_EQ(head.rfind("HTTP/1.1 202 Accepted\r\n", 0), 0U) << head;
  EXPECT_NE(head.find("Retry-After: 1\r\n"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_EQ(client.read_answer().status, 404) << "HEAD has no body";
}

TEST_P(HttpStream, OthersAreWhoeverHasRequestsUnderWay) {
  HeldAnswer held;
  Running running({}, {}, held.routes());
  HttpClient client(running.server.port());
  client.send(http_request("GET /held"));
  const ResponderPtr responder = held.handed.get();
  const auto has_others = [&] {
    std::promise<bool> others;
    responder->post([&] { others.set_value(responder->others_connected()); });
    return others.get_future().get();
  };
  EXPECT_FALSE(has_others());
  {
    WsClient other(running.server.port());
    other.send(R"(MODEL_INFO {"stream_id": 1})");
    ASSERT_TRUE(other.next().has_value());
    EXPECT_TRUE(has_others());
    other.close();
  }
  responder->post([&] { responder->send({200, "text/plain", ""}); });
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_P(HttpStream, AHandlerThatForgetsToAnswerDoesNotKeepItsClientWaiting) {
  Running running({}, {}, [](HttpRoutes& routes, registry::Registry&) {
    routes.add({"GET", "/none", 0, [](const HttpRequest&, const ResponderPtr&) {}});
    routes.add({"GET", "/half", 0, [](const HttpRequest&, const ResponderPtr& responder) {
                  responder->begin({200, "text/plain", ""});
                  responder->write("half");
                }});
    routes.add({"GET", "/throws", 0, [](const HttpRequest&, const ResponderPtr&) {
                  throw std::bad_alloc();  // as where no memory is left
                }});
  });
  HttpClient client(running.server.port());
  client.send(http_request("GET /none"));
  EXPECT_EQ(client.read_answer().status, 500);
  client.send(http_request("GET /half"));
  const HttpClient::Answer half = client.read_answer();
  EXPECT_EQ(half.body, "half");
  EXPECT_FALSE(half.is_whole);
  HttpClient other(running.server.port());
  other.send(http_request("GET /throws"));
  EXPECT_EQ(other.read_all(), "");
}

// What a client can bring a handler to do must not end the server.
TEST_P(HttpStream, AHandlerThatAnswersOutOfTurnCostsItsClientAlone) {
  std::promise<void> gone;
  Running running({}, {}, [&](HttpRoutes& routes, registry::Registry& models) {
    add_tokens(routes, models);
    routes.add({"GET", "/again", 0, [&](const HttpRequest&, const ResponderPtr& responder) {
                  responder->on_gone([&] { gone.set_value(); });
                  try {
                    responder->begin({200, "text/plain", ""});
                    responder->write("half");
                    throw std::bad_alloc();
                  } catch (const std::exception&) {
                    responder->send({500, "text/plain", ""});
                    responder->write("to nobody");
                    responder->end();
                  }
                }});
    routes.add({"GET", "/twice", 0, [](const HttpRequest&, const ResponderPtr& responder) {
                  responder->begin({200, "text/plain", ""});
                  responder->begin({200, "text/plain", ""});
                }});
    routes.add({"GET", "/write", 0, [](const HttpRequest&, const ResponderPtr& responder) {
                  responder->write("early");
                }});
    routes.add({"GET", "/end", 0,
                [](const HttpRequest&, const ResponderPtr& responder) { responder->end(); }});
  });
  for (const char* line : {"GET /again", "GET /twice", "GET /write", "GET /end"}) {
    HttpClient client(running.server.port());
    client.send(http_request(line));
    EXPECT_EQ(client.read_all().find("\r\n0\r\n\r\n"), std::string::npos) << line;
  }
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
  HttpClient other(running.server.port());
  other.send(http_request("POST /tokens", "5"));
  EXPECT_EQ(other.read_answer().body, events_of(5));
}

// It is called while an exception is handled, and from a destructor.
TEST_P(HttpStream, AnOnGoneThatThrowsIsLogged) {
  Running running({}, {}, [](HttpRoutes& routes, registry::Registry&) {
    routes.add({"GET", "/throws", 0, [](const HttpRequest&, const ResponderPtr& responder) {
                  responder->on_gone([] { throw std::runtime_error("the second"); });
                  throw std::runtime_error("the first");
                }});
  });
  ::testing::internal::CaptureStderr();
  HttpClient client(running.server.port());
  client.send(http_request("GET /throws"));
  EXPECT_EQ(client.read_all(), "");
  running.server.stop(Running::soon());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("failed: the first"), std::string::npos) << log;
  EXPECT_NE(log.find("cleaned up: the second"), std::string::npos) << log;
}

// Or pieces would wait for the client's kernel to acknowledge those before.
TEST_P(HttpStream, PiecesAreSentAtOnce) {
  HeldAnswer held;
  Running running({}, {}, held.routes());
  HttpClient client(running.server.port());
  client.send(http_request("GET /held"));
  const ResponderPtr responder = held.handed.get();
  int num_found = 0;
  for (int fd = 0; fd < 1024; ++fd) {  // the server's end is this process's too
    sockaddr_in own{}, peer{};
    socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) continue;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) continue;
    if (own.sin_family != AF_INET || ntohs(own.sin_port) != running.server.port()) continue;
    int no_delay = 0;
    socklen_t size = sizeof(no_delay);
    ::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size);
    EXPECT_NE(no_delay, 0);
    ++num_found;
  }
  EXPECT_EQ(num_found, 1);
}

TEST_P(HttpStream, HeadOfAStreamHasNoBody) {
  Flood flood;
  Running running({}, {}, flood.routes());
  HttpClient client(running.server.port());
  client.send(http_request("HEAD /flood"));
  EXPECT_NE(client.read_until("\r\n\r\n").find("200 OK"), std::string::npos);
  client.half_close();
  EXPECT_EQ(client.read_all(), "");
  EXPECT_EQ(flood.is_gone.wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace lmtp::server
