// What a key may know and have of the server: models, tags, streams, pages.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "keys_fixture.h"
#include "lmtp/request/request.h"
#include "route_table.h"
#include "scripted_runtime.h"

namespace lmtp::server {
namespace {

using lmtp::testing::generate;
using Fields = KeyFields;

class KeyRights : public Keys {};

// Every route that answers without a body, and what a model that is not there for the key is told.
TEST_F(KeyRights, WithoutModelsNothingIsLearntOfThem) {
  options_.aici = true;
  start(R"(, "models": ["other"])");
  const auto client = connect(kAdmin);
  client->send(generate(1, 1));
  EXPECT_EQ(client->collect(1).error, "") << "it is loaded";
  for (const Route& route : route_table()) {
    if (route.method != "GET") continue;
    const std::string path(route.path.substr(0, route.path.find('{')));
    for (const std::string& line : {path, path + "x", path + "?model=other", path + "other"}) {
      const std::string user = ask("GET " + line, bearer(kUser)).body;
      EXPECT_EQ(user.find("fake"), std::string::npos) << line << ": " << user;
    }
  }
  EXPECT_EQ(ask("GET /info", bearer(kUser)).status, 404);
  EXPECT_NE(ask("GET /info", bearer(kAdmin)).body.find("fake"), std::string::npos);
  EXPECT_EQ(ask("GET /ping", bearer(kUser)).body, "{\"status\": \"ready\", \"model\": \"\"}\n");
  EXPECT_EQ(ask("GET /v1/models", bearer(kUser)).body, "{\"object\": \"list\", \"data\": []}\n");
  const auto user = connect(kUser);
  for (const char* model : {"", "other", "x", "tgi"}) {
    for (const char* verb : {"MODEL_INFO", "GENERATE"}) {
      user->send(std::string(verb) + R"( {"stream_id": 1, "prompt": [1], "max_tokens": 99999, )" +
                 R"("model": ")" + model + "\"}");
      const auto entry = user->next();
      ASSERT_TRUE(entry) << model;
      EXPECT_EQ(entry->error_code, "unknown_model") << model;
      EXPECT_EQ(user->last_message().find("fake"), std::string::npos) << user->last_message();
      if (!entry->is_msg) user->next();  // LMQL reads one of the two
    }
  }
}

TEST_F(KeyRights, ForksOfAControllerAreStreamsOfTheirKey) {
  const auto runtime = std::make_shared<lmtp::testing::ScriptedRuntime>(
      lmtp::testing::kFakeVocabSize, [](const std::string& what) { ADD_FAILURE() << what; });
  options_.aici = true;
  start(R"(, "max_streams": 2)", lmtp::testing::with_controllers(runtime));
  const auto client = connect(kUser);
  // The errors of all samples, of which there are so many.
  const auto run = [&](const std::string& forks, int num_samples) {
    client->send(R"(GENERATE {"stream_id": 1, "prompt": [1], "controller": "script", )"
                 R"("controller_arg": "[{\"fork\": [)" +
                 forks + "]}]\"}");
    std::string errors;
    while (num_samples > 0) {
      const auto entry = client->next();
      if (!entry) return std::string("closed");
      errors += entry->error;
      const bool is_end = !entry->error.empty() || entry->finish_reason != FinishReason::kNone;
      num_samples -= is_end ? 1 : 0;
    }
    return errors;
  };
  EXPECT_EQ(run("[], []", 2), "");
  EXPECT_NE(run("[], [], []", 1).find("2 streams of the key 'alice'"), std::string::npos);
  EXPECT_EQ(run("[], []", 2), "") << "all places are free again";
}

TEST_F(KeyRights, TagsOfOtherKeysAreToldToNobody) {
  const auto runtime = std::make_shared<lmtp::testing::ScriptedRuntime>(
      lmtp::testing::kFakeVocabSize, [](const std::string& what) { ADD_FAILURE() << what; });
  options_.aici = true;
  start("", lmtp::testing::with_controllers(runtime));
  EXPECT_EQ(ask("POST /v1/controllers", bearer(kAdmin), "abc").status, 200);  // tags it root.last
  const std::string all = ask("GET /v1/controllers/tags", bearer(kAdmin)).body;
  EXPECT_NE(all.find("\"tag\": \"root.last\""), std::string::npos) << all;
  const std::string seen = ask("GET /v1/controllers/tags", bearer(kUser)).body;
  EXPECT_NE(seen.find("\"tag\": \"script\""), std::string::npos) << seen << ", which is nobody's";
  EXPECT_EQ(seen.find("root"), std::string::npos) << seen;
  const auto client = connect(kUser);
  client->send(R"(CONTROLLER {"stream_id": 1, "op": "list"})");
  ASSERT_TRUE(client->next());
  EXPECT_EQ(client->last_message().find("root"), std::string::npos) << client->last_message();
}

TEST_F(KeyRights, OtherModelsAreNotThere) {
  start(R"(, "models": ["other*"])");
  const auto client = connect(kUser);
  for (const char* message :
       {"GENERATE {\"stream_id\": 1, \"prompt\": [1]}",
        "GENERATE {\"stream_id\": 1, \"model\": \"fake\", \"prompt\": \"a b\"}",
        "SCORE {\"stream_id\": 1, \"model\": \"/models/fake\", \"prompt\": [1], \"scored\": [2]}",
        "TOKENIZE {\"stream_id\": 1, \"text\": \"a\"}", "MODEL_INFO {\"stream_id\": 1}",
        "BUFFER {\"stream_id\": 1, \"buffer\": \"b\", \"text\": \"a\"}"}) {
    client->send(message);
    const auto entry = client->next();
    ASSERT_TRUE(entry) << message;
    EXPECT_NE(entry->error.find("is not served with this key, allowed are 'other*'"),
              std::string::npos)
        << message << ": " << entry->error;
    EXPECT_EQ(entry->error_code, "unknown_model") << message;
    if (!entry->is_msg) client->next();  // LMQL reads one of the two
  }
  const auto root = connect(kAdmin);
  root->send(generate(1, 1));
  EXPECT_EQ(root->collect(1).error, "");
}

TEST_F(KeyRights, TokensAreThoseOfAModelThatTheKeyMayUse) {
  const auto status = [&](const char* path, const std::string& body) {
    Fields fields = bearer(kUser);
    fields.emplace_back("Content-Type", "application/json");
    return ask(std::string("POST ") + path, fields, body).status;
  };
  for (const auto& [more, expected] : {std::pair(R"(, "models": [])", 404), std::pair("", 200)}) {
    start(more);
    EXPECT_EQ(status("/tokenize", R"({"inputs": "a"})"), expected);
    EXPECT_EQ(status("/tokenize", R"({"prompt": "a", "model": "fake"})"), expected);
    EXPECT_EQ(status("/detokenize", R"({"tokens": [97]})"), expected);
    EXPECT_EQ(status("/chat_tokenize", R"({"messages": [{"role": "user", "content": "a"}]})"),
              expected == 200 ? 422 : 404)
        << "the model has no template";
  }
}

TEST_F(KeyRights, APageOfAnyOriginSendsNoneInItsAddress) {
  options_.allowed_origins = {"*", "https://app.example"};
  start();
  const auto upgraded = [&](const std::string& target, const std::string& origin,
                            const Fields& more = {}) {
    Fields fields = {{"Connection", "Upgrade"},
                     {"Upgrade", "websocket"},
                     {"Sec-WebSocket-Version", "13"},
                     {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="},
                     {"Origin", origin}};
    fields.insert(fields.end(), more.begin(), more.end());
    return ask("GET " + target, fields);
  };
  const std::string with_key = std::string("/?key=") + kUser;
  EXPECT_EQ(upgraded(with_key, "https://app.example").status, 101);
  const auto refused = upgraded(with_key, "https://other.example");
  EXPECT_EQ(refused.status, 401);
  EXPECT_NE(refused.body.find("--allow-origin SCHEME://HOST"), std::string::npos) << refused.body;
  EXPECT_EQ(upgraded("/", "https://other.example", bearer(kUser)).status, 101);
  Fields page = bearer(kUser);
  page.emplace_back("Origin", "https://other.example");
  const auto answered = ask("GET /v1/who", page);
  EXPECT_EQ(answered.body, "alice?");
  EXPECT_NE(answered.head.find("Access-Control-Allow-Origin: https://other.example"),
            std::string::npos)
      << answered.head;
}

TEST_F(KeyRights, APageOfAnAllowedOriginMaySendOne) {
  options_.allowed_origins = {"https://app.example"};
  start();
  const Fields page = {{"Origin", "https://app.example"}};
  Fields preflight = page;
  preflight.emplace_back("Access-Control-Request-Method", "POST");
  preflight.emplace_back("Access-Control-Request-Headers", "authorization,content-type");
  const auto may = ask("OPTIONS /who", preflight);
  EXPECT_EQ(may.status, 200);
  for (const char* field : {"Access-Control-Allow-Origin: https://app.example\r\n",
                            "Vary: Origin\r\n", "Access-Control-Allow-Methods: POST\r\n",
                            "Access-Control-Allow-Headers: authorization,content-type\r\n"}) {
    EXPECT_NE(may.head.find(field), std::string::npos) << may.head;
  }
  EXPECT_EQ(may.head.find("Allow-Credentials"), std::string::npos) << may.head;
  EXPECT_EQ(ask("OPTIONS /none", preflight).status, 401);
  EXPECT_EQ(ask("OPTIONS /who", page).status, 401) << "no preflight";

  Fields with_key = page;
  with_key.emplace_back("Authorization", std::string("Bearer ") + kUser);
  const auto answer = ask("POST /who", with_key, "{}");
  EXPECT_EQ(answer.body, "alice?");
  EXPECT_NE(answer.head.find("Access-Control-Allow-Origin: https://app.example"),
            std::string::npos);
  EXPECT_NE(answer.head.find("Access-Control-Expose-Headers: *"), std::string::npos);
  const auto without = ask("POST /who", page, "{}");
  EXPECT_EQ(without.status, 401);
  EXPECT_NE(without.head.find("Access-Control-Allow-Origin"), std::string::npos)
      << "so that the page can read it";
  EXPECT_NE(ask("POST /who", bearer(kUser), "{}").head.find("Vary: Origin"), std::string::npos);
  preflight[0].second = "https://other.example";
  const auto other = ask("OPTIONS /who", preflight);
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(other.head.find("Access-Control"), std::string::npos) << other.head;
}

}  // namespace
}  // namespace lmtp::server
