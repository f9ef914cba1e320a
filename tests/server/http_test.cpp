// Plain HTTP on the port.
#include "http.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "fake_model.h"
#include "recording_sink.h"

namespace lmtp::server {
namespace {

namespace http = boost::beast::http;

HttpRequest request(http::verb verb, const char* target) {
  HttpRequest out(verb, target, 11);
  out.set(http::field::host, "box:8080");
  return out;
}

TEST(Http, HealthFollowsTheModel) {
  std::promise<void> gate;
  lmtp::testing::FakeModelOptions options;
  options.load_gate = gate.get_future().share();
  const auto models = lmtp::testing::make_fake_models(options);
  const HttpResponse loading = answer_http(request(http::verb::get, "/health"), *models, "1");
  EXPECT_EQ(loading.result_int(), 503U);
  EXPECT_EQ(loading.body(), "{\"status\": \"loading\", \"model\": \"fake\"}\n");
  gate.set_value();
  while (!models->healthy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const HttpResponse ready = answer_http(request(http::verb::get, "/health?x=1"), *models, "1");
  EXPECT_EQ(ready.result_int(), 200U);
  EXPECT_EQ(ready.body(), "{\"status\": \"ready\", \"model\": \"fake\"}\n");
  EXPECT_TRUE(ready.keep_alive());
  models->stop(0);
  EXPECT_EQ(answer_http(request(http::verb::get, "/health"), *models, "1").result_int(), 503U);
}

TEST(Http, AServerOfAnyModelIsHealthyAtOnceAndNamesWhatIsLoaded) {
  auto factory = std::make_unique<lmtp::testing::FakeFactory>([](const std::string& name) {
    return Result<engine::ServedModel>(lmtp::testing::fake_served_model(name));
  });
  engine::ModelManager models(std::move(factory), engine::AutoOptions{});
  const auto ask = [&](const char* target) {
    return answer_http(request(http::verb::get, target), models, "1");
  };
  EXPECT_EQ(ask("/health").result_int(), 200U);
  EXPECT_EQ(ask("/health").body(),
            "{\"status\": \"ready\", \"model\": \"auto\", \"loaded\": []}\n");
  EXPECT_NE(ask("/").body().find("Now: none."), std::string::npos);
  const auto sink = std::make_shared<lmtp::testing::RecordingSink>();
  Request wanted;
  wanted.sink = sink;
  wanted.model = "<one>";
  wanted.prompt = {1};
  models.submit(std::move(wanted));
  sink->wait_done(0);
  EXPECT_EQ(ask("/health").body(),
            "{\"status\": \"ready\", \"model\": \"auto\", \"loaded\": [\"<one>\"]}\n");
  EXPECT_NE(ask("/").body().find("<code>&lt;one&gt;</code> ready"), std::string::npos);
  models.stop(0);
  EXPECT_EQ(ask("/health").result_int(), 503U);
}

TEST(Http, ThePageSaysHowToConnectAndEscapesTheHost) {
  const auto models = lmtp::testing::make_fake_models();
  const HttpResponse page = answer_http(request(http::verb::get, "/"), *models, "1.2.3");
  EXPECT_EQ(page.result_int(), 200U);
  EXPECT_NE(page.body().find("ws://box:8080/"), std::string::npos);
  EXPECT_NE(page.body().find("lmtp-serve 1.2.3"), std::string::npos);
  EXPECT_NE(page.body().find("<code>fake</code>"), std::string::npos);
  EXPECT_EQ(page.body().find('$'), std::string::npos) << "a placeholder is left";

  HttpRequest evil = request(http::verb::get, "/");
  evil.set(http::field::host, "\"><script>$HOST");
  const HttpResponse escaped = answer_http(evil, *models, "1");
  EXPECT_EQ(escaped.body().find("<script"), std::string::npos);
}

TEST(Http, EverythingElseIsRefused) {
  const auto models = lmtp::testing::make_fake_models();
  EXPECT_EQ(answer_http(request(http::verb::get, "/nothing"), *models, "1").result_int(), 404U);
  EXPECT_EQ(answer_http(request(http::verb::get, "//"), *models, "1").result_int(), 404U);
  const HttpResponse post = answer_http(request(http::verb::post, "/"), *models, "1");
  EXPECT_EQ(post.result_int(), 405U);
  EXPECT_EQ(post[http::field::allow], "GET, HEAD");
  EXPECT_FALSE(post.keep_alive()) << "its body is not read";
  HttpRequest with_body = request(http::verb::get, "/health");
  with_body.set(http::field::content_length, "5");
  EXPECT_FALSE(answer_http(with_body, *models, "1").keep_alive());
}

TEST(Http, HeadHasTheLengthButNoBody) {
  const auto models = lmtp::testing::make_fake_models();
  // The page names the state, so its length changes while the model loads.
  while (!models->healthy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const HttpResponse head = answer_http(request(http::verb::head, "/"), *models, "1");
  const HttpResponse get = answer_http(request(http::verb::get, "/"), *models, "1");
  EXPECT_EQ(head.result_int(), 200U);
  EXPECT_TRUE(head.body().empty());
  EXPECT_EQ(head[http::field::content_length], std::to_string(get.body().size()));
}

}  // namespace
}  // namespace lmtp::server
