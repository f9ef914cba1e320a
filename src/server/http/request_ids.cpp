#include "request_ids.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "generation/fresh.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kIdBytesMax = 128;
constexpr const char* kRequestId = "X-Request-Id";
constexpr const char* kAnthropicRequestId = "request-id";  // which its clients read
constexpr std::string_view kAnthropicPath = "/v1/messages";
constexpr const char* kTraceParent = "traceparent";

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kIdBytesMax &&
         std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7F; });
}

bool is_lower_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view digits) {
  return digits.find_first_not_of('0') == std::string_view::npos;
}

// What TRACE is in VERSION-TRACE-PARENT-FLAGS, which have 2, 32, 16 and 2 digits; more may follow
// in later versions. Empty: it is none of these.
std::string_view trace_id_of(std::string_view text) {
  constexpr std::size_t kSize = 55;
  if (text.size() < kSize) return {};
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace = text.substr(3, 32);
  const std::string_view parent = text.substr(36, 16);
  const bool has_digits = is_lower_hex(version) && is_lower_hex(trace) && is_lower_hex(parent) &&
                          is_lower_hex(text.substr(53, 2));
  const bool has_dashes = text[2] == '-' && text[35] == '-' && text[52] == '-';
  const bool ends_well = text.size() == kSize || (version != "00" && text[kSize] == '-');
  if (!has_digits || !has_dashes || !ends_well || version == "ff") return {};
  return is_zero(trace) || is_zero(parent) ? std::string_view() : trace;
}

}  // namespace

void set_ids(const HttpRequest& request, Caller& caller) {
  const std::string* const id = request.field(kRequestId);
  const std::string* const trace = request.field(kTraceParent);
  caller.has_own_id = id != nullptr && is_request_id(*id);
  caller.request_id = caller.has_own_id ? *id : fresh_id("req-");
  caller.trace_id = trace != nullptr ? trace_id_of(*trace) : std::string_view();
}

void rename_request(const std::string& id, std::vector<HttpField>& fields) {
  for (HttpField& field : fields) {
    if (field.name == kRequestId || field.name == kAnthropicRequestId) field.value = id;
  }
}

std::vector<HttpField> id_fields(const HttpRequest& request, const Caller& caller) {
  std::vector<HttpField> fields = {{kRequestId, caller.request_id}};
  if (request.path.starts_with(kAnthropicPath)) {
    fields.push_back({kAnthropicRequestId, caller.request_id});
  }
  if (!caller.trace_id.empty()) fields.push_back({kTraceParent, *request.field(kTraceParent)});
  return fields;
}

}  // namespace lmtp::server
