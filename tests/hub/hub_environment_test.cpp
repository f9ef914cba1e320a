#include "hub_environment.h"

#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <string>

#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace lmtp::hub {
namespace {

using testing::ScopedEnv;
using testing::TempFolder;

// Nothing is set but HOME.
class HubEnvironmentTest : public ::testing::Test {
 protected:
  HubEnvironmentTest() {
    for (const char* name :
         {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_ENDPOINT",
          "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
          "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_ETAG_TIMEOUT",
          "HF_HUB_DOWNLOAD_TIMEOUT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
      set(name, std::nullopt);
    }
    set("HOME", home_.path());
  }

  void set(const char* name, std::optional<std::string> value) {
    variables_.emplace_front(name, std::move(value));
  }

  static HubEnvironment read() {
    auto hub = read_hub_environment();
    EXPECT_TRUE(hub.ok()) << hub.error().message;
    return hub.ok() ? *hub : HubEnvironment{};
  }

  static std::string error() {
    const auto hub = read_hub_environment();
    EXPECT_FALSE(hub.ok());
    return hub.ok() ? "" : hub.error().message;
  }

  const TempFolder home_;
  std::list<ScopedEnv> variables_;  // the latest first: each restores what it found
};

TEST_F(HubEnvironmentTest, TheCacheFollowsTheVariablesInOrder) {
  set("HOME", "/h");
  EXPECT_EQ(cache_folder(), "/h/.cache/huggingface/hub");
  set("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(cache_folder(), "/x/huggingface/hub");
  set("HF_HOME", "/f");
  EXPECT_EQ(cache_folder(), "/f/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(cache_folder(), "/old");
  set("HF_HUB_CACHE", "/c");
  EXPECT_EQ(cache_folder(), "/c");
  set("HF_HUB_CACHE", "~/c");
  EXPECT_EQ(cache_folder(), "/h/c");
}

TEST_F(HubEnvironmentTest, TheEndpointIsAWebAddress) {
  EXPECT_EQ(read().endpoint, "https://huggingface.co");
  EXPECT_EQ(read().origin, "https://huggingface.co:443");
  set("HF_ENDPOINT", "http://Mirror.Example:8081/hf//");
  EXPECT_EQ(read().endpoint, "http://Mirror.Example:8081/hf");
  EXPECT_EQ(read().origin, "http://mirror.example:8081");
  for (const char* wrong : {"file:///etc/passwd", "ftp://example.org", "example.org", "http://",
                            "https://user:secret@example.org"}) {
    set("HF_ENDPOINT", wrong);
    EXPECT_NE(error().find("HF_ENDPOINT="), std::string::npos) << wrong;
  }
}

TEST_F(HubEnvironmentTest, TheTokenIsFoundWhereHuggingFaceKeepsIt) {
  EXPECT_EQ(read().token, "");
  home_.write(".cache/huggingface/token", "hf_file\n");
  EXPECT_EQ(read().token, "hf_file");
  EXPECT_EQ(read().token_from, home_.path() + "/.cache/huggingface/token");
  home_.write("mine", " hf_mine ");
  set("HF_TOKEN_PATH", "~/mine");
  EXPECT_EQ(read().token, "hf_mine");
  set("HUGGING_FACE_HUB_TOKEN", "hf_old");
  EXPECT_EQ(read().token, "hf_old");
  set("HF_TOKEN", "hf_new");
  EXPECT_EQ(read().token, "hf_new");
  EXPECT_EQ(read().token_from, "HF_TOKEN");
  set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(read().token, "");
}

TEST_F(HubEnvironmentTest, ATokenCannotEndItsHeader) {
  set("HF_TOKEN", "hf_a\r\nX-Evil: 1");
  const std::string message = error();
  EXPECT_NE(message.find("HF_TOKEN"), std::string::npos);
  EXPECT_EQ(message.find("Evil"), std::string::npos) << "it is not shown";
}

TEST_F(HubEnvironmentTest, OfflineAsHuggingFaceReadsIt) {
  EXPECT_EQ(offline_variable(), "");
  set("TRANSFORMERS_OFFLINE", "yes");
  EXPECT_EQ(offline_variable(), "TRANSFORMERS_OFFLINE");
  set("HF_HUB_OFFLINE", "0");
  EXPECT_EQ(offline_variable(), "");
  for (const char* value : {"1", "on", "True"}) {
    set("HF_HUB_OFFLINE", value);
    EXPECT_EQ(offline_variable(), "HF_HUB_OFFLINE") << value;
  }
}

TEST_F(HubEnvironmentTest, TimeoutsAreWholeSeconds) {
  EXPECT_LT(read().answer_timeout, std::chrono::seconds(5));
  set("HF_HUB_ETAG_TIMEOUT", "30");
  EXPECT_EQ(read().answer_timeout, std::chrono::seconds(30));
  set("HF_HUB_DOWNLOAD_TIMEOUT", "7");
  EXPECT_EQ(read().stall_timeout, std::chrono::seconds(7));
  for (const char* wrong : {"0", "-1", "2s", "99999999999"}) {
    set("HF_HUB_DOWNLOAD_TIMEOUT", wrong);
    EXPECT_NE(error().find("HF_HUB_DOWNLOAD_TIMEOUT"), std::string::npos) << wrong;
  }
}

TEST_F(HubEnvironmentTest, TheFirstBundleOfCertificatesCounts) {
  set("SSL_CERT_FILE", "/third");
  EXPECT_EQ(read().ca_bundle, "/third");
  set("REQUESTS_CA_BUNDLE", "/first");
  EXPECT_EQ(read().ca_bundle, "/first");
}

}  // namespace
}  // namespace lmtp::hub
