// A server with keys, over real sockets: an admin's, and alice's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "temp_folder.h"
#include "ws_client.h"

namespace lmtp::server {

using KeyFields = std::vector<std::pair<std::string, std::string>>;

inline constexpr const char* kAdmin = "sk-admin-do-not-show";
inline constexpr const char* kUser = "sk-user-do-not-show";

inline void add_who_routes(HttpRoutes& routes, registry::Registry& /*models*/) {
  const auto who = [](const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder) {
    std::string said = responder->caller()->account != nullptr
                           ? responder->caller()->account->name()
                           : std::string("nobody");
    for (const HttpField& field : request.fields) {
      EXPECT_EQ(field.value.find("do-not-show"), std::string::npos) << field.name;
    }
    responder->send({200, "text/plain", said + "?" + request.query});
  };
  routes.add({"GET", "/v1/who", 0, who});
  routes.add({"POST", "/who", 1000, who});
}

class Keys : public ::testing::Test {
 protected:
  // Members of the user's key besides.
  void start(const std::string& user = {}, testing::FakeModelOptions model = {}) {
    write_keys(user);
    options_.api_key_file = path_;
    running_ = std::make_unique<testing::Running>(std::move(model), options_, add_who_routes);
  }
  void write_keys(const std::string& user) {
    std::ofstream(path_, std::ios::trunc)
        << R"({"keys": [{"name": "root", "admin": true, "key": ")" << kAdmin << "\"},\n"
        << R"({"name": "alice", "key": ")" << kUser << '"' << user << "}]}";
  }
  std::uint16_t port() const { return running_->server.port(); }

  testing::HttpClient::Answer ask(const std::string& line, const KeyFields& fields = {},
                                  const std::string& body = {}) const {
    std::string text;
    for (const auto& [name, value] : fields) text += name + ": " + value + "\r\n";
    testing::HttpClient client(port());
    client.send(testing::http_request(line, body, text));
    return client.read_answer();
  }
  static KeyFields bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }
  std::unique_ptr<testing::WsClient> connect(const std::string& key) const {
    return std::make_unique<testing::WsClient>(port(), 0, "/?key=" + key);
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/keys.json";
  ServerOptions options_;
  std::unique_ptr<testing::Running> running_;
};

}  // namespace lmtp::server
