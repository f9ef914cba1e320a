// Bodies of requests over real sockets: whole, in chunks, too long, too slow, and wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::generate;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::no_timeouts;
using lmtp::testing::Running;
using lmtp::testing::WsClient;

constexpr std::size_t kLimit = std::size_t{3} << 20;
constexpr const char* kChunked = "Transfer-Encoding: chunked\r\n";

// POST /echo answers with what it is sent behind its query.
void add_echo(HttpRoutes& routes, registry::Registry& /*models*/) {
  routes.add({"POST", "/echo", kLimit, [](const HttpRequest& request, const auto& responder) {
                responder->send({200, "text/plain", request.query + request.body});
              }});
}

std::string chunk(const std::string& bytes) {
  char length[16];
  std::snprintf(length, sizeof(length), "%zX", bytes.size());
  return length + ("\r\n" + bytes) + "\r\n";
}

// What is answered to these bytes alone.
HttpClient::Answer answer_to(const Running& running, const std::string& bytes) {
  HttpClient client(running.server.port());
  client.send(bytes);
  return client.read_answer();
}

class HttpBody : public testing::OverBoth {};

INSTANTIATE_TEST_SUITE_P(, HttpBody, ::testing::Bool(), testing::transport_name);

TEST_P(HttpBody, ItIsReadWholeHoweverItComes) {
  Running running({}, {}, add_echo);
  HttpClient client(running.server.port());
  const std::string large(kLimit, 'x');  // beyond what is read without pacing
  client.send(http_request("POST /echo?a=b&c", "body"));
  EXPECT_EQ(client.read_answer().body, "a=b&cbody");
  client.send(http_request("POST /echo", large));
  EXPECT_EQ(client.read_answer().body, large) << "as long as the limit is allowed";
  client.send(http_request("POST /echo"));
  EXPECT_EQ(client.read_answer().body, "");
  const std::string head = http_request("POST /echo?", "", kChunked);
  client.send(head + chunk("one") + "3;x=y\r\ntwo\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "onetwo");
  client.send(head + chunk(large) + "0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, large);
  for (const char byte : head + chunk("slow") + "0\r\n\r\n") client.send({&byte, 1});
  EXPECT_EQ(client.read_answer().body, "slow");
}

TEST_P(HttpBody, RequestsSentAtOnceKeepTheirBodies) {
  Running running({}, {}, add_echo);
  HttpClient client(running.server.port());
  const std::string large(100'000, 'y');
  client.send(http_request("POST /echo", "1") + http_request("POST /echo", "", kChunked) +
              chunk("2") + "0\r\n\r\n" + http_request("POST /echo", large) +
              http_request("GET /x"));
  EXPECT_EQ(client.read_answer().body, "1");
  EXPECT_EQ(client.read_answer().body, "2");
  EXPECT_EQ(client.read_answer().body, large);
  EXPECT_EQ(client.read_answer().status, 404);
}

TEST_P(HttpBody, ALongerOneIsRefusedBeforeItIsRead) {
  Running running({}, {}, add_echo);
  const std::string post = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
  for (const std::string& length :
       {std::to_string(kLimit + 1), std::string("9223372036854775807")}) {
    const HttpClient::Answer answer = answer_to(running, post + length + "\r\n\r\nbegin");
    EXPECT_EQ(answer.status, 413);
    EXPECT_EQ(answer.body, "The body is longer than the 3145728 bytes that are read here.\n");
    EXPECT_NE(answer.head.find("Connection: close\r\n"), std::string::npos);
  }
  const std::string head = http_request("POST /echo", "", kChunked);
  EXPECT_EQ(answer_to(running, head + chunk(std::string(kLimit, 'x')) + "1\r\n").status, 413);
  EXPECT_EQ(answer_to(running, head + "FFFFFFFFFFFFFFF\r\n").status, 413);
}

TEST_P(HttpBody, WhoAsksFirstIsToldToSendIt) {
  Running running({}, {}, add_echo);
  HttpClient client(running.server.port());
  const std::string expect = "Expect: 100-Continue\r\n";
  client.send(http_request("POST /echo", "", expect + "Content-Length: 2\r\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.read_answer().body, "ok");
  client.send(http_request("POST /echo", "", expect));
  EXPECT_EQ(client.read_answer().status, 200) << "there is none to wait for";
  client.send(http_request("POST /echo", "", expect + "Content-Length: 9000000\r\n"));
  EXPECT_EQ(client.read_answer().status, 413);
  EXPECT_EQ(
      answer_to(running, "POST /echo HTTP/1.0\r\nContent-Length: 2\r\n" + expect + "\r\nok").status,
      200);
}

TEST_P(HttpBody, WhatIsNoHttpIsRefused) {
  Running running({}, {}, add_echo);
  const auto status = [&](const std::string& fields, const std::string& body) {
    return answer_to(running, http_request("POST /echo", "", fields) + body).status;
  };
  EXPECT_EQ(status(kChunked, "x\r\n"), 400);
  EXPECT_EQ(status(kChunked, "2\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status(kChunked, "-1\r\n\r\n"), 400);
  EXPECT_EQ(status("Content-Length: 2\r\n" + std::string(kChunked), "0\r\n\r\n"), 400);
  EXPECT_EQ(status("Content-Length: 2\r\nContent-Length: 3\r\n", "abc"), 400);
  EXPECT_EQ(status("Transfer-Encoding: gzip\r\n", "abc"), 501);
  EXPECT_EQ(status("Transfer-Encoding: chunked, gzip\r\n", "abc"), 501);
  EXPECT_EQ(status("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501);
  // Nothing is answered to what is cut off, and it does not reach the handler.
  HttpClient client(running.server.port());
  client.send(http_request("POST /echo", "", "Content-Length: 10\r\n") + "half");
  client.half_close();
  EXPECT_EQ(client.read_all(), "");
}

// Where a proxy in front sees a body, and here none is read, what follows must be no request.
TEST_P(HttpBody, WhatIsNotReadEndsTheConnection) {
  Running running({}, {}, add_echo);
  const auto answers = [&](const std::string& request) {
    HttpClient client(running.server.port());
    client.send(request + http_request("GET /x"));
    const std::string all = client.read_all();
    EXPECT_NE(all.find("Connection: close\r\n"), std::string::npos) << request << all;
    EXPECT_EQ(all.rfind("HTTP/1.1 "), 0U) << request << all;
  };
  for (const char* line : {"GET /health", "HEAD /health", "GET /nowhere", "PUT /x"}) {
    for (const char* coding :
         {"chunked, identity", "identity", "gzip", "xchunked", "", "chunked"}) {
      answers(http_request(line, "", "Transfer-Encoding: " + std::string(coding) + "\r\n"));
    }
    answers(http_request(line, "", "Transfer-Encoding: gzip\r\nContent-Length: 0\r\n"));
    answers(http_request(line, "", "Content-Length: 0\r\n"));
  }
  for (const char* line : {"GET /health", "HEAD /", "POST /health", "PUT /echo", "POST /x"}) {
    answers(http_request(line, "12345"));
  }
  answers(http_request("POST /health"));  // as for any method that is not taken there
  // HTTP/1.0 has no chunks: a proxy that passed this on did not parse them.
  answers("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\n" + std::string(kChunked) + "\r\n" +
          chunk("x") + "0\r\n\r\n");
}

TEST_P(HttpBody, OfOtherOriginsItIsNotRead) {
  Running running({}, {}, add_echo);
  const std::string origin = "Origin: https://attacker.example\r\nContent-Length: 5\r\n";
  EXPECT_EQ(answer_to(running, http_request("POST /echo", "", origin)).status, 403);
}

TEST_P(HttpBody, OneThatStallsIsToldSo) {
  ServerOptions options;
  options.timeouts = no_timeouts();
  options.timeouts.message = std::chrono::milliseconds(50);
  Running running({}, options, add_echo);
  for (const std::string& fields :
       {std::string("Content-Length: 100\r\n"), std::string(kChunked)}) {
    HttpClient client(running.server.port());
    client.send(http_request("POST /echo", "", fields) + "5\r\n");
    EXPECT_EQ(client.read_answer().status, 408);
    EXPECT_EQ(client.read_all(), "");
  }
}

// What stands around the bytes counts too.
TEST_P(HttpBody, ChunksThatAreNearlyAllExtensionAreRefused) {
  Running running({}, {}, [](HttpRoutes& routes, registry::Registry&) {
    routes.add({"POST", "/echo", 1000, [](const HttpRequest& request, const auto& responder) {
                  responder->send({200, "text/plain", request.body});
                }});
  });
  const std::string head = http_request("POST /echo", "", kChunked);
  std::string bytewise, extended;
  for (int i = 0; i < 1000; ++i) bytewise += "1\r\nx\r\n";
  for (int i = 0; i < 100; ++i) extended += "1;" + std::string(1000, 'y') + "\r\nx\r\n";
  EXPECT_EQ(answer_to(running, head + bytewise + "0\r\n\r\n").body, std::string(1000, 'x'));
  const HttpClient::Answer answer = answer_to(running, head + extended);
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.body.find("chunks"), std::string::npos) << answer.body;
}

// The buffer for a body counts before any byte of it has come.
TEST_P(HttpBody, OnesThatHaveNotBegunCountForTheLimit) {
  ServerOptions options;
  options.max_read_buffers_bytes = std::size_t{256} << 10;
  Running running({}, options, add_echo);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.server.port()));
    clients.back()->send(
        http_request("POST /echo", "", "Expect: 100-continue\r\nContent-Length: 10\r\n"));
    EXPECT_NE(clients.back()->read_until("\r\n\r\n").find(" 100 "), std::string::npos);
  }
  EXPECT_EQ(clients.front()->read_answer().status, 503);
}

TEST_P(HttpBody, UnfinishedOnesOfAllTogetherHaveALimit) {
  ServerOptions options;
  options.max_read_buffers_bytes = std::size_t{4} << 20;
  Running running({}, options, add_echo);
  const std::string head =
      http_request("POST /echo", "", "Expect: 100-continue\r\nContent-Length: 1000000\r\n");
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.server.port()));
    clients.back()->send(head);
    // The server has begun to read this body before the next one comes: the first is the oldest.
    EXPECT_NE(clients.back()->read_until("\r\n\r\n").find(" 100 "), std::string::npos);
    clients.back()->send(std::string(900'000, 'x'));
  }
  const HttpClient::Answer first = clients.front()->read_answer();
  EXPECT_EQ(first.status, 503);
  EXPECT_NE(first.body.find("is the oldest"), std::string::npos) << first.body;
  clients.back()->send(std::string(100'000, 'x'));
  EXPECT_EQ(clients.back()->read_answer().status, 200) << "the last one has room";
  WsClient other(running.server.port());
  other.send(generate(1, 2));
  EXPECT_EQ(other.collect(1).tokens.size(), 2U);
}

}  // namespace
}  // namespace lmtp::server
