// Files of keys, rings of keys, and the keys that a request brings.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/credentials.h"
#include "access/key_file.h"
#include "access/key_ring.h"
#include "lmtp/server/fresh_key.h"
#include "temp_folder.h"

namespace lmtp::server {
namespace {

constexpr const char* kSecret = "sk-do-not-show-4711";

Result<std::vector<KeyEntry>> parse(const std::string& keys) {
  return parse_key_file("{\"keys\": [" + keys + "]}", "keys.json");
}

void write_file(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path, std::ios::trunc) << text;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(KeyFile, NamesRightsAndLimits) {
  const auto entries = parse(
      R"({"name": "a", "key": "k1", "admin": true},
         {"name": "b@x",
          "key_sha256": "2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE",
          "max_streams": 3, "tokens_per_minute": 1e4, "models": ["demo", "org/*"]})");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ(entries->at(0).name, "a");
  EXPECT_EQ(entries->at(0).digest, digest_of("k1"));
  EXPECT_TRUE(entries->at(0).limits.is_admin);
  EXPECT_EQ(entries->at(0).limits.max_streams, 0);
  EXPECT_FALSE(entries->at(0).limits.models);
  EXPECT_EQ(entries->at(1).digest, digest_of("foo"));
  EXPECT_FALSE(entries->at(1).limits.is_admin);
  EXPECT_EQ(entries->at(1).limits.max_streams, 3);
  EXPECT_EQ(entries->at(1).limits.tokens_per_minute, 10'000);
  EXPECT_EQ(entries->at(1).limits.models->size(), 2U);
}

TEST(KeyFile, EveryMistakeIsNamedAndNoKeyIsShown) {
  const std::string key = std::string(R"("key": ")") + kSecret + "\"";
  const std::pair<std::string, std::string> wrong[] = {
      {"", "at least one key"},
      {"1", "keys[0]: is no object"},
      {"{" + key + "}", "keys[0].name"},
      {R"({"name": "a b", )" + key + "}", "keys[0].name"},
      {R"({"name": ")" + std::string(65, 'a') + "\", " + key + "}", "keys[0].name"},
      {R"({"name": "a"})", "keys[0].key"},
      {R"({"name": "a", "key": ""})", "keys[0].key"},
      {R"({"name": "a", "key": 1})", "keys[0].key"},
      {R"({"name": "a", "key": "with space"})", "keys[0].key"},
      {R"({"name": "a", "key_sha256": "12"})", "keys[0].key_sha256"},
      {R"({"name": "a", "key_sha256": ")" + std::string(64, 'g') + "\"}", "keys[0].key_sha256"},
      {R"({"name": "a", "key_sha256": "12", )" + key + "}", "keys[0].key"},
      {R"({"name": "a", "admin": 1, )" + key + "}", "keys[0].admin"},
      {R"({"name": "a", "max_streams": 0, )" + key + "}", "keys[0].max_streams"},
      {R"({"name": "a", "tokens_per_minute": "9", )" + key + "}", "keys[0].tokens_per_minute"},
      {R"({"name": "a", "models": "demo", )" + key + "}", "keys[0].models"},
      {R"({"name": "a", "models": [""], )" + key + "}", "keys[0].models"},
      {R"({"name": null, )" + key + "}", "keys[0].name: is null"},
      {R"({"name": "a", "key_sha256": null, )" + key + "}", "keys[0].key_sha256: is null"},
      {R"({"name": "a", "admin": null, )" + key + "}", "keys[0].admin: is null"},
      {R"({"name": "a", "max_streams": null, )" + key + "}", "keys[0].max_streams: is null"},
      {R"({"name": "a", "tokens_per_minute": null, )" + key + "}", "tokens_per_minute: is null"},
      {R"({"name": "a", "models": null, )" + key + "}", "keys[0].models: is null"},
      {R"({"name": "a", "max_stream": 1, )" + key + "}", "allowed are name, key,"},
      {std::string(R"({"name": "a", ")") + kSecret + R"(": 1, "key": "x"})", "allowed are name"},
      {R"({"name": "a", )" + key + R"(}, {"name": "a", "key": "x"})", "keys[1]"},
      {R"({"name": "a", )" + key + R"(}, {"name": "b", )" + key + "}", "keys[1]"},
      {R"({"name": "a", )" + key + " " + kSecret, "keys.json"},
      {std::string("\"") + kSecret, "keys.json"},
  };
  for (const auto& [keys, part] : wrong) {
    const auto entries = parse(keys);
    ASSERT_FALSE(entries.ok()) << keys;
    EXPECT_NE(entries.error().message.find(part), std::string::npos) << entries.error().message;
    EXPECT_EQ(entries.error().message.find("do-not-show"), std::string::npos)
        << entries.error().message;
  }
  for (const char* text : {"", "[]", "{}", R"({"keys": {}})", R"({"keys": [], "more": 1})"}) {
    EXPECT_FALSE(parse_key_file(text, "keys.json").ok()) << text;
  }
}

// Random changes: none crashes, and no error shows the key, which stays whole in most of them.
TEST(KeyFile, FuzzedItBreaksNothingAndShowsNothing) {
  const std::string whole =
      R"({"keys": [{"name": "a", "key": "sk-do-not-show-4711", "admin": true, "max_streams": 3,)"
      R"( "tokens_per_minute": 1e4, "models": ["demo", "org/*"]}, {"name": "b", "key_sha256": ")" +
      std::string(64, 'a') + "\"}]}";
  constexpr std::string_view kPieces = "{}[]:,\"\\ 0e-\x01\xFF\xC3nt";
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int num_read = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string text = whole;
    for (std::size_t change = 0; change < 1 + below(4) && !text.empty(); ++change) {
      const std::size_t at = below(text.size());
      const std::size_t length = below(8);
      if (below(2) == 0) text.erase(at, length);
      text.insert(std::min(at, text.size()), 1 + below(2), kPieces[below(kPieces.size())]);
    }
    const auto entries = parse_key_file(text, "keys.json");
    num_read += entries.ok() ? 1 : 0;
    if (entries.ok()) continue;
    ASSERT_EQ(entries.error().message.find("do-not-show"), std::string::npos)
        << entries.error().message;
    ASSERT_LT(entries.error().message.size(), 1000U);
  }
  EXPECT_GT(num_read, 100) << "some changes are inside of texts";
}

TEST(Credentials, FuzzedFieldsAndQueriesBreakNothing) {
  constexpr std::string_view kPieces = "key=&%4B2=:Basic earABzZ/+ ";
  std::mt19937 random(8);
  for (int i = 0; i < 30'000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = kPieces[random() % kPieces.size()];
    HttpRequest request;
    request.fields = {{"Authorization", text}, {"Authorization", "Basic " + text}};
    if (i % 3 == 0) request.fields.push_back({"api-key", text});
    request.query = text;
    const auto keys = take_keys(request, true);
    for (const std::string& key : keys ? *keys : std::vector<std::string>()) {
      EXPECT_TRUE(is_sendable(key)) << text;
    }
    EXPECT_TRUE(request.fields.empty());
    EXPECT_EQ(without_key(request.query), request.query) << text;
  }
}

TEST(KeyFile, AFreshKeyIsTakenByItsEntry) {
  const auto one = make_fresh_key("alice@x");
  const auto other = make_fresh_key("bob");
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_TRUE(is_sendable(one->key));
  EXPECT_GE(one->key.size(), 64U);
  EXPECT_NE(one->key, other->key);
  EXPECT_EQ(one->entry.find(one->key), std::string::npos);
  const auto entries = parse(one->entry + "," + other->entry);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(entries->at(0).name, "alice@x");
  EXPECT_EQ(entries->at(0).digest, digest_of(one->key));
  EXPECT_EQ(entries->at(1).digest, digest_of(other->key));
  EXPECT_FALSE(entries->at(0).limits.is_admin);
  for (const char* name : {"", "a b", "a\"b"}) EXPECT_FALSE(make_fresh_key(name).ok()) << name;
}

TEST(KeyFile, OthersShouldNotReadIt) {
  const lmtp::testing::TempFolder folder;
  const std::string path = folder.path() + "/keys.json";
  const std::string text = R"({"keys": [{"name": "a", "key": "k"}]})";
  for (const auto& [mode, is_open] : {std::pair(0600, false), {0640, true}, {0604, true}}) {
    write_file(path, text, static_cast<mode_t>(mode));
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(read_key_file(path).ok());
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("chmod 600") != std::string::npos, is_open) << log;
  }
  EXPECT_EQ(read_key_file(path + "x").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(read_key_file(folder.path()).ok());
}

TEST(KeyRing, FindsEachKeyAndNoOther) {
  KeyRing ring({"one", "two"}, "");
  EXPECT_TRUE(ring.is_required());
  EXPECT_EQ(ring.find("one"), nullptr) << "not before they are read";
  ASSERT_TRUE(ring.load().ok());
  EXPECT_EQ(ring.find("one")->name(), "api-key-1");
  EXPECT_EQ(ring.find("two")->name(), "api-key-2");
  EXPECT_TRUE(ring.find("one")->is_admin());
  EXPECT_NE(ring.find("one")->share(), ring.find("two")->share());
  for (const std::string key : {"", "on", "one ", "One", "three"}) {
    EXPECT_EQ(ring.find(key), nullptr) << key;
  }
  EXPECT_EQ(ring.find(std::string(100'000, 'x')), nullptr);
  EXPECT_FALSE(KeyRing({}, "").is_required());
  EXPECT_FALSE(KeyRing({}, "/no/such/file").load().ok());
}

TEST(KeyRing, AFileIsReadAgain) {
  const lmtp::testing::TempFolder folder;
  const std::string path = folder.path() + "/keys.json";
  write_file(path, R"({"keys": [{"name": "a", "key": "ka"}, {"name": "b", "key": "kb"}]})");
  KeyRing ring({"given"}, path);
  ASSERT_TRUE(ring.load().ok());
  const auto a = ring.find("ka");
  const auto b = ring.find("kb");
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);

  write_file(path, R"({"keys": [{"name": "a", "key": )");
  EXPECT_FALSE(ring.load().ok());
  EXPECT_EQ(ring.find("ka"), a) << "what was read before stays";
  EXPECT_FALSE(a->is_revoked());

  write_file(path, R"({"keys": [{"name": "b", "key": "new"},
                                {"name": "a", "key": "ka", "admin": true}]})");
  ASSERT_TRUE(ring.load().ok());
  EXPECT_EQ(ring.find("ka"), a) << "with all that it has under way";
  EXPECT_TRUE(a->is_admin());
  EXPECT_FALSE(a->is_revoked());
  EXPECT_EQ(ring.find("kb"), nullptr);
  EXPECT_TRUE(b->is_revoked()) << "the name has another key";
  EXPECT_EQ(ring.find("new")->name(), "b");
  EXPECT_NE(ring.find("given"), nullptr);
}

std::vector<std::string> keys_of(std::vector<HttpField> fields, bool begins_websocket = false,
                                 const std::string& query = {}) {
  HttpRequest request;
  request.fields = std::move(fields);
  request.query = query;
  const auto taken = take_keys(request, begins_websocket);
  EXPECT_TRUE(taken.ok()) << taken.error().message;
  std::vector<std::string> keys = taken ? *taken : std::vector<std::string>();
  for (const HttpField& field : request.fields) EXPECT_EQ(field.name, "Accept");
  EXPECT_EQ(request.query.find("key="), std::string::npos);
  return keys;
}

TEST(Credentials, KeysComeInFields) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of({{"authorization", "bearer  k"}, {"Accept", "x"}}), Keys({"k"}));
  EXPECT_EQ(keys_of({{"Api-Key", "k"}, {"X-API-Key", "l"}}), Keys({"k", "l"}));
  EXPECT_EQ(keys_of({{"Authorization", "Basic dXNlcjprZXk="}}), Keys({"key"}));
  EXPECT_EQ(keys_of({{"Authorization", "Basic OmE6Yg=="}}), Keys({"a:b"})) << "the first colon";
  EXPECT_EQ(keys_of({{"Authorization", "Basic a2V5Og=="}}), Keys({"key"})) << "as the user's name";
  for (const char* value : {"", "k", "Bearer", "Bearer ", "Bearerk", "Digest k", "Basic", "Basic ?",
                            "Basic dXNlcjprZXk", "Basic ====", "Basic YQ==="}) {
    EXPECT_EQ(keys_of({{"Authorization", value}}), Keys()) << value;
  }
}

TEST(Credentials, OfAWebSocketAlsoInTheQuery) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of({}, true, "key=k"), Keys({"k"}));
  EXPECT_EQ(keys_of({}, true, "a=1&key=%6B%2b%&b"), Keys({"k+%"}));
  EXPECT_EQ(keys_of({}, false, "key=k"), Keys());
  EXPECT_EQ(without_key("key=k"), "");
  EXPECT_EQ(without_key("key=k&a=1&key=&b"), "a=1&b");
  EXPECT_EQ(without_key("keys=k"), "keys=k");
}

TEST(Credentials, OfManyFieldsNoneIsLookedAt) {
  HttpRequest request;
  request.fields = {{"api-key", "a"}, {"Authorization", "Bearer b"}};
  request.query = "key=c&x=1";
  EXPECT_FALSE(take_keys(request, true).ok()) << "three";
  EXPECT_TRUE(request.fields.empty());
  EXPECT_EQ(request.query, "x=1");
  request.fields.assign(1'400, {"Authorization", "Digest x"});
  request.fields.push_back({"api-key", "a"});
  const auto one = take_keys(request, false);
  EXPECT_TRUE(one.ok() && one->size() == 1) << "others hold no key";
  request.fields.assign(1'400, {"api-key", "x"});
  const auto many = take_keys(request, false);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("1400 fields with API keys; allowed are at most 2"),
            std::string::npos)
      << many.error().message;
  EXPECT_TRUE(request.fields.empty());
}

TEST(Credentials, RefusalsSayWhichKeysAreTaken) {
  const HttpResponse wrong = no_access(true);
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(wrong.body, "This API key is not accepted here.\n");
  EXPECT_EQ(wrong.fields.at(0).name, "WWW-Authenticate");
  EXPECT_EQ(wrong.fields.at(0).value.rfind("Bearer ", 0), 0U);
  EXPECT_EQ(no_access(false).body.rfind("An API key is needed: ", 0), 0U);
  EXPECT_EQ(no_right().status, 403);
}

}  // namespace
}  // namespace lmtp::server
