// The pages of the server itself, and which route is whose.
#include "http/pages.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

#include "eventually.h"
#include "fake_model.h"
#include "recording_sink.h"

namespace lmtp::server {
namespace {

TEST(Http, HealthFollowsTheModel) {
  std::promise<void> gate;
  lmtp::testing::FakeModelOptions options;
  options.load_gate = gate.get_future().share();
  const auto models = lmtp::testing::make_fake_models(options);
  const HttpResponse loading = health({*models, nullptr});
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.body,
            "{\"status\": \"loading\", \"model\": \"fake\", \"error\": \"unhealthy\", "
            "\"error_type\": \"healthcheck\"}\n");
  gate.set_value();
  EXPECT_EQ(health({*models, nullptr}, false).body.find("fake"), std::string::npos);
  EXPECT_TRUE(lmtp::testing::eventually([&] { return models->healthy(); }));
  const HttpResponse ready = health({*models, nullptr});
  EXPECT_EQ(ready.status, 200);
  EXPECT_EQ(ready.body, "{\"status\": \"ready\", \"model\": \"fake\"}\n");
  models->stop(0);
  EXPECT_EQ(health({*models, nullptr}).status, 503);
}

TEST(Http, AServerOfAnyModelIsHealthyAtOnceAndNamesWhatIsLoaded) {
  auto factory = std::make_unique<lmtp::testing::FakeFactory>([](const std::string& name) {
    return Result<registry::ServedModel>(lmtp::testing::fake_served_model(name));
  });
  registry::Registry models(std::move(factory), registry::AutoOptions{});
  EXPECT_EQ(health({models, nullptr}).status, 200);
  EXPECT_EQ(health({models, nullptr}).body,
            "{\"status\": \"ready\", \"model\": \"auto\", \"loaded\": []}\n");
  EXPECT_NE(landing_page("box", false, {models, nullptr}, {}).body.find("Now: none."),
            std::string::npos);
  const auto sink = std::make_shared<lmtp::testing::RecordingSink>();
  Request wanted;
  wanted.sink = sink;
  wanted.model = "<one>";
  wanted.prompt = {1};
  models.submit(std::move(wanted));
  sink->wait_done(0);
  EXPECT_EQ(health({models, nullptr}).body,
            "{\"status\": \"ready\", \"model\": \"auto\", \"loaded\": [\"<one>\"]}\n");
  EXPECT_NE(
      landing_page("box", false, {models, nullptr}, {}).body.find("<code>&lt;one&gt;</code> ready"),
      std::string::npos);
  models.stop(0);
  EXPECT_EQ(health({models, nullptr}).status, 503);
}

TEST(Http, ThePageSaysHowToConnectAndEscapesTheHost) {
  const auto models = lmtp::testing::make_fake_models();
  ServerOptions options;
  options.version = "1.2.3";
  const HttpResponse page = landing_page("box:8080", false, {*models, nullptr}, options);
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("ws://box:8080/"), std::string::npos);
  EXPECT_NE(page.body.find("lmtp-serve 1.2.3"), std::string::npos);
  EXPECT_NE(page.body.find("<code>fake</code>"), std::string::npos);
  EXPECT_NE(page.body.find("<tr><td>POST<td><code>/v1/run</code><td>AICI<td>docs/http.md"),
            std::string::npos);
  EXPECT_EQ(page.body.find("lora_adapter"), std::string::npos) << "is not served";
  EXPECT_EQ(page.body.find('$'), std::string::npos) << "a placeholder is left";

  const HttpResponse escaped = landing_page("\"><script>$HOST", false, {*models, nullptr}, {});
  EXPECT_EQ(escaped.body.find("<script"), std::string::npos);
}

TEST(Http, ARouteIsFoundByMethodAndPathAndTheRestIsRefused) {
  HttpRoutes routes;
  routes.add({"GET", "/a", 0, nullptr});
  EXPECT_EQ(routes.find("HEAD", "/a"), routes.find("GET", "/a"));
  EXPECT_EQ(routes.find("GET", "/a")->max_body_bytes, 0U);
  for (const char* path : {"", "/", "/A", "/a/", "//a", "/a?x"}) {
    EXPECT_EQ(routes.find("GET", path), nullptr) << path;
    EXPECT_EQ(routes.refusal("GET", path).status, 404) << path;
  }
  // What no route takes is no method of this server, wherever it is tried.
  for (const char* path : {"/", "/a"}) {
    const HttpResponse refusal = routes.refusal("POST", path);
    EXPECT_EQ(refusal.status, 405);
    EXPECT_EQ(refusal.fields.at(0).value, "GET, HEAD");
    EXPECT_EQ(refusal.body, "Allowed are GET and HEAD; LMTP is spoken over a WebSocket at /.\n");
  }
  routes.add({"POST", "/b", 10, nullptr});
  routes.add({"POST", "/c", 20, nullptr});
  routes.add({"GET", "/c", 0, nullptr});
  EXPECT_EQ(routes.find("POST", "/b")->max_body_bytes, 10U);
  EXPECT_EQ(routes.find("POST", "/c")->max_body_bytes, 20U);
  EXPECT_EQ(routes.refusal("POST", "/").status, 404);
  EXPECT_EQ(routes.refusal("POST", "/a").fields.at(0).value, "GET, HEAD");
  EXPECT_EQ(routes.refusal("HEAD", "/b").fields.at(0).value, "POST");
  EXPECT_EQ(routes.refusal("PUT", "/c").fields.at(0).value, "GET, HEAD, POST");
  EXPECT_EQ(routes.refusal("PUT", "/c").body.rfind("Allowed are GET, HEAD and POST; ", 0), 0U);
  EXPECT_EQ(routes.refusal("get", "/a").status, 405);
}

}  // namespace
}  // namespace lmtp::server
