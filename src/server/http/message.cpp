#include "message.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <iterator>
#include <optional>

namespace lmtp::server {
namespace {

namespace http = boost::beast::http;

void add_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

// Of a target in absolute form, http://HOST:PORT/PATH, which every server has to take (RFC 9112,
// 3.2.2), leaves "/PATH" and returns "HOST:PORT", which stands in the place of the field Host.
std::optional<std::string> take_authority(std::string& target) {
  const std::size_t scheme_end = target.find("://");
  if (scheme_end == std::string::npos) return std::nullopt;
  const std::string_view scheme = std::string_view(target).substr(0, scheme_end);
  if (!equal_names(scheme, "http") && !equal_names(scheme, "https")) return std::nullopt;
  const std::size_t begin = scheme_end + 3;
  const std::size_t end = std::min(target.find_first_of("/?", begin), target.size());
  std::string authority = target.substr(begin, end - begin);
  authority.erase(0, authority.rfind('@') + 1);  // npos + 1 is 0
  target.erase(0, end);
  if (!target.starts_with('/')) target.insert(0, "/");
  return authority;
}

}  // namespace

HttpRequest plain_request(const http::request_header<>& header) {
  HttpRequest request;
  request.method = text_of(header.method_string());
  std::string target = text_of(header.target());
  const std::optional<std::string> authority = take_authority(target);
  const std::size_t path_end = target.find('?');
  request.path = target.substr(0, path_end);
  if (path_end != std::string::npos) request.query = target.substr(path_end + 1);
  while (request.path.size() > 2 && request.path.ends_with('/')) request.path.pop_back();
  for (const auto& field : header) {
    const bool is_host = authority && field.name() == http::field::host;
    request.fields.push_back(
        {text_of(field.name_string()), is_host ? *authority : text_of(field.value())});
  }
  return request;
}

bool is_json(const HttpRequest& request) {
  const std::string* const type = request.field("Content-Type");
  if (type == nullptr) return false;
  const std::string_view media = std::string_view(*type).substr(0, type->find_first_of("; \t"));
  constexpr std::string_view kStart = "application/";
  constexpr std::string_view kEnd = "json";
  if (media.size() < kStart.size() + kEnd.size()) return false;
  const std::string_view kind = media.substr(kStart.size());
  return equal_names(media.substr(0, kStart.size()), kStart) &&
         equal_names(kind.substr(kind.size() - kEnd.size()), kEnd) &&
         (kind.size() == kEnd.size() || kind[kind.size() - kEnd.size() - 1] == '+');
}

HttpResponse plain_text(int status, std::string_view sentence) {
  return {status, "text/plain; charset=utf-8", std::string(sentence) + "\n"};
}

void set_retry_after(int wait_ms, HttpResponse& response) {
  if (wait_ms <= 0) return;
  response.fields.push_back({"Retry-After", std::to_string((wait_ms + 999) / 1000)});
}

HttpResponse too_many_requests(int retry_after_s, std::string_view sentence) {
  HttpResponse response = plain_text(429, sentence);
  set_retry_after(retry_after_s * 1000, response);
  return response;
}

std::string head_text(const HttpResponse& response, const std::vector<HttpField>& more,
                      std::string_view version, Framing framing, bool keep_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
  const http::status known = http::int_to_status(static_cast<unsigned>(response.status));
  if (known != http::status::unknown) out.append(http::obsolete_reason(known));
  out += "\r\n";
  add_field(out, "Server", "lmtp-serve/" + std::string(version));
  add_field(out, "Content-Type", response.type);
  const auto keeps = [](const HttpField& field) { return field.name == "Cache-Control"; };
  if (std::ranges::none_of(response.fields, keeps)) add_field(out, "Cache-Control", "no-store");
  for (const HttpField& field : response.fields) add_field(out, field.name, field.value);
  for (const HttpField& field : more) add_field(out, field.name, field.value);
  if (!keep_alive) add_field(out, "Connection", "close");
  constexpr int kNotModified = 304;  // is about the length of what the client has
  if (framing == Framing::kLength && response.status != kNotModified) {
    add_field(out, "Content-Length", std::to_string(response.body.size()));
  } else if (framing == Framing::kChunks) {
    add_field(out, "Transfer-Encoding", "chunked");
  }
  return out + "\r\n";
}

std::string chunk_text(std::string_view piece) {
  char length[2 * sizeof(piece.size())];
  const char* const end = std::to_chars(std::begin(length), std::end(length), piece.size(), 16).ptr;
  std::string out;
  out.reserve(piece.size() + sizeof(length) + 4);
  return out.append(length, static_cast<std::size_t>(end - length))
      .append("\r\n")
      .append(piece)
      .append("\r\n");
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out.push_back(static_cast<char>(byte));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool equal_names(std::string_view a, std::string_view b) { return boost::beast::iequals(a, b); }

}  // namespace lmtp::server
