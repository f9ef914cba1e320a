// Files that cannot be served with: each is refused with the file's name and what to do.
#include "lmtp/tls/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "certificates.h"

namespace lmtp::tls {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const testing::Certificate& good() {
  static const testing::Certificate certificate;
  return certificate;
}

std::string refusal(const std::string& certfile, const std::string& keyfile) {
  const auto context = server_context(certfile, keyfile);
  return context ? "" : context.error().message;
}

TEST(ServerContext, TakesACertificateAndItsKeyInTwoFilesOrInOne) {
  EXPECT_EQ(refusal(good().certfile(), good().keyfile()), "");
  const testing::Certificate other;
  other.run("pkey -in key.pem >> /dev/null; cat cert.pem key.pem > both.pem; openssl version");
  EXPECT_EQ(refusal(other.path("both.pem"), ""), "");
  EXPECT_THAT(refusal(other.certfile(), ""),
              AllOf(HasSubstr("--ssl-keyfile"), HasSubstr("no private key in PEM")));
}

TEST(ServerContext, RefusesWhatIsMissing) {
  EXPECT_THAT(refusal(good().path("no.pem"), good().keyfile()),
              AllOf(HasSubstr("--ssl-certfile: '" + good().path("no.pem")),
                    HasSubstr("No such file"), HasSubstr("name a PEM file")));
  EXPECT_THAT(
      refusal(good().certfile(), good().path("no.pem")),
      AllOf(HasSubstr("--ssl-keyfile: '" + good().path("no.pem")), HasSubstr("No such file")));
  const std::string folder = std::filesystem::path(good().certfile()).parent_path();
  EXPECT_THAT(refusal(folder, good().keyfile()), HasSubstr("Is a directory"));
}

TEST(ServerContext, RefusesWhatIsNoCertificateOrNoKey) {
  EXPECT_THAT(refusal(good().keyfile(), good().keyfile()),
              AllOf(HasSubstr("--ssl-certfile"), HasSubstr("is no certificate")));
  EXPECT_THAT(refusal(good().certfile(), good().certfile()),
              AllOf(HasSubstr("--ssl-keyfile"), HasSubstr("no private key in PEM")));
  EXPECT_THAT(refusal("/dev/null", good().keyfile()), HasSubstr("is no certificate"));
  EXPECT_THAT(refusal("/dev/zero", good().keyfile()), HasSubstr("too long"));
  const testing::Certificate cut;
  cut.run("version && head -c 300 cert.pem > cut.pem && openssl version");
  EXPECT_THAT(refusal(cut.path("cut.pem"), cut.keyfile()), HasSubstr("is no certificate"));
}

TEST(ServerContext, RefusesTheKeyOfAnotherCertificate) {
  const testing::Certificate other;
  EXPECT_THAT(refusal(good().certfile(), other.keyfile()),
              AllOf(HasSubstr("is not the key of the certificate"), HasSubstr(good().certfile())));
  other.run("genpkey -algorithm RSA -out rsa.pem");
  EXPECT_THAT(refusal(good().certfile(), other.path("rsa.pem")),
              HasSubstr("is not the key of the certificate"));
}

TEST(ServerContext, RefusesAnEncryptedKeyInBothForms) {
  const testing::Certificate locked;
  locked.run("pkcs8 -topk8 -in key.pem -out locked.pem -passout pass:secret");
  locked.run("ec -in key.pem -aes128 -out old.pem -passout pass:secret");
  for (const char* name : {"locked.pem", "old.pem"}) {
    EXPECT_THAT(refusal(locked.certfile(), locked.path(name)),
                AllOf(HasSubstr("is encrypted"), HasSubstr("openssl pkey -in ENCRYPTED")));
  }
}

TEST(ClientContext, RefusesAnAuthorityThatIsNone) {
  EXPECT_TRUE(client_context({}).ok());
  EXPECT_TRUE(client_context({good().certfile()}).ok());
  const auto missing = client_context({good().path("no.pem")});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("--cacert"), HasSubstr("No such file")));
  const auto wrong = client_context({good().keyfile()});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("has no certificate in PEM"));
}

}  // namespace
}  // namespace lmtp::tls
