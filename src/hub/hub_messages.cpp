#include "hub_messages.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace lmtp::hub {
namespace {

std::string timeout_text(std::chrono::milliseconds timeout) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(timeout.count()) / 1000.0);
  return text.data();
}

std::string where(const HttpAnswer& answer) {
  std::string origin = answer.origin;
  for (const char* default_port : {":443", ":80"}) {
    const std::string_view ending(default_port);
    if (origin.ends_with(ending)) origin.resize(origin.size() - ending.size());
  }
  return origin;
}

std::string asked_for(const Subject& subject) {
  const std::string repo = "'" + subject.repo + "'";
  return subject.file.empty() ? repo : subject.file + " of " + repo;
}

std::string expired(const HubEnvironment& hub) {
  return "the login whose token is in " + hub.token_from +
         " has run out: `hf auth whoami` renews it, or log in again with `hf auth login`";
}

// The remedy for missing permissions: how to log in, or with another account.
std::string login_remedy(const HubEnvironment& hub) {
  if (hub.token_expired) return expired(hub);
  return hub.token.empty()
             ? "set HF_TOKEN, or log in with `hf auth login`"
             : "the token in " + hub.token_from + " must be of an account that may read it";
}

std::string said(const HttpAnswer& answer) {
  return answer.error_message.empty() ? "" : " (the hub says: " + answer.error_message + ")";
}

// A refusal without the hub's own headers may come from a proxy.
std::string proxy_hint(const HttpAnswer& answer) {
  return answer.error_code.empty() && answer.error_message.empty()
             ? "; as it does not answer like a hub, check HF_ENDPOINT and the proxy too"
             : "";
}

Error explain_transport(const HttpAnswer& answer, const Subject& subject,
                        const HubEnvironment& hub) {
  const std::string what = asked_for(subject) + " cannot be fetched: ";
  const std::string detail = " (" + answer.detail + ")";
  constexpr const char* kNetwork =
      "check the network, https_proxy, or HF_ENDPOINT where a mirror is used";
  switch (answer.transport) {
    case Transport::kNoName:
      return Error{ErrorCode::kUnavailable, what + "the hub cannot be reached, as the name in " +
                                                where(answer) + " cannot be resolved" + detail +
                                                ": " + kNetwork};
    case Transport::kNoHost:
      return Error{ErrorCode::kUnavailable,
                   what + "no connection to " + where(answer) + detail + ": " + kNetwork};
    case Transport::kNoProxy:
      return Error{ErrorCode::kUnavailable, what + "the proxy on the way to " + where(answer) +
                                                " does not work" + detail +
                                                ": check http_proxy, https_proxy and no_proxy"};
    case Transport::kHandshake:
    case Transport::kTls:
      return Error{
          ErrorCode::kUnavailable,
          what + "TLS with " + where(answer) + " failed" + detail +
              ": check the clock and the system's certificates; where a proxy has its own, "
              "name their file in REQUESTS_CA_BUNDLE"};
    case Transport::kTimeout:
      return Error{ErrorCode::kUnavailable,
                   what + where(answer) + " did not answer within " +
                       timeout_text(subject.file.empty() ? hub.answer_timeout : hub.stall_timeout) +
                       detail + ": " + kNetwork +
                       "; HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT give it more seconds"};
    case Transport::kRefused:
      return Error{ErrorCode::kUnavailable, what + "the hub sends " + answer.detail +
                                                ", which is not followed: check HF_ENDPOINT"};
    case Transport::kCut:
    case Transport::kBodyStopped:
    case Transport::kOk:
      break;
  }
  return Error{ErrorCode::kUnavailable, what + "the connection to " + where(answer) + " broke off" +
                                            detail + ": try again, what has come is kept"};
}

Error no_such_repo(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub) {
  return Error{ErrorCode::kNotFound,
               "the hub at " + hub.endpoint + " has no model '" + subject.repo +
                   "', or it is private (HTTP " + std::to_string(answer.status) +
                   "): check the name (organization/name); for a private one " + login_remedy(hub) +
                   proxy_hint(answer)};
}

Error explain_denied(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub) {
  const std::string status = " (HTTP " + std::to_string(answer.status) + ")";
  if (answer.error_code == "GatedRepo") {
    return Error{ErrorCode::kUnavailable, "'" + subject.repo + "' is gated" + status +
                                              ": accept its terms at " + hub.endpoint + "/" +
                                              subject.repo + "; then " + login_remedy(hub)};
  }
  // Part of the hub's protocol: for this case it sends no error code.
  if (answer.error_message == "Access to this resource is disabled.") {
    return Error{ErrorCode::kUnavailable, "'" + subject.repo + "' is disabled on the hub" + status +
                                              ": nobody can fetch it any more"};
  }
  if (answer.status == 401 && hub.token_expired) {
    return Error{ErrorCode::kUnavailable,
                 asked_for(subject) + " cannot be fetched" + status + ": " + expired(hub)};
  }
  if (answer.status == 401 && !hub.token.empty()) {
    return Error{ErrorCode::kUnavailable, "the hub does not accept the token in " + hub.token_from +
                                              status + said(answer) + ": make a new one at " +
                                              hub.endpoint + "/settings/tokens, or remove it"};
  }
  if (answer.status == 401) return no_such_repo(answer, subject, hub);
  return Error{ErrorCode::kUnavailable, "the hub forbids to read " + asked_for(subject) + status +
                                            said(answer) + ": " + login_remedy(hub) +
                                            proxy_hint(answer)};
}

Error explain_missing(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub) {
  if (is_revision_missing(answer)) {
    return Error{ErrorCode::kNotFound, "'" + subject.repo + "' has no revision '" +
                                           subject.revision +
                                           "' on the hub: its branches and tags are at " +
                                           hub.endpoint + "/" + subject.repo + "/tree/main"};
  }
  if (!subject.file.empty()) {
    return Error{ErrorCode::kUnavailable, "'" + subject.repo + "' has no file " + subject.file +
                                              " at revision '" + subject.revision +
                                              "', though the hub lists it: try again"};
  }
  return no_such_repo(answer, subject, hub);
}

}  // namespace

bool is_revision_missing(const HttpAnswer& answer) {
  return answer.status == 404 && answer.error_code == "RevisionNotFound";
}

Error explain(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub) {
  if (answer.transport != Transport::kOk) return explain_transport(answer, subject, hub);
  const std::string status = " (HTTP " + std::to_string(answer.status) + ")";
  if (answer.error_code == "RepoNotFound") return no_such_repo(answer, subject, hub);
  if (answer.status == 401 || answer.status == 403) return explain_denied(answer, subject, hub);
  if (answer.status == 404) return explain_missing(answer, subject, hub);
  if (answer.status == 407) {
    return Error{ErrorCode::kUnavailable,
                 "the proxy wants a login" + status +
                     ": put it into https_proxy (http://user:password@host:port)"};
  }
  if (answer.status == 429) {
    return Error{ErrorCode::kUnavailable,
                 "the hub limits how often it is asked" + status + said(answer) +
                     ": try again in some minutes" +
                     (hub.token.empty() ? ", or set HF_TOKEN, which allows more" : "")};
  }
  if (answer.status >= 500) {
    return Error{ErrorCode::kUnavailable,
                 "the hub at " + where(answer) + " has trouble of its own" + status + said(answer) +
                     " with " + asked_for(subject) + ": try again later, what has come is kept"};
  }
  return Error{ErrorCode::kUnavailable,
               "the hub at " + where(answer) + " gives no usable answer for " + asked_for(subject) +
                   status + said(answer) + ": check HF_ENDPOINT and the proxy"};
}

Error explain_disk(const std::string& what, const std::string& path, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    return Error{ErrorCode::kUnavailable,
                 what + ": the disk is full at " + path +
                     ": make room, or put the cache elsewhere with HF_HUB_CACHE; what has come is "
                     "kept"};
  }
  return Error{ErrorCode::kUnavailable,
               what + ": " + path + ": " +
                   std::error_code(error_number, std::generic_category()).message() +
                   (error_number == EACCES || error_number == EROFS || error_number == EPERM
                        ? ": HF_HUB_CACHE must name a folder that can be written"
                        : "")};
}

}  // namespace lmtp::hub
