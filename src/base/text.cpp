#include "lmtp/base/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lmtp {
namespace {

std::string printed(int num_digits, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f %s", num_digits, value, unit);
  return text;
}

}  // namespace

std::string gib_text(std::int64_t num_bytes) {
  const std::int64_t tenths = (num_bytes * 10 + (std::int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

std::string size_text(std::int64_t num_bytes) {
  auto value = static_cast<double>(num_bytes);
  const char* unit = "bytes";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return printed(value == std::floor(value) ? 0 : 2, value, unit);
}

std::string file_size_text(std::int64_t num_bytes) {
  if (num_bytes < 1000) return std::to_string(num_bytes) + " bytes";
  auto value = static_cast<double>(num_bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return printed(value < 99.95 ? 1 : 0, value, unit);
}

std::string_view utf8_prefix(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::string shortened(std::string_view text, std::size_t max_bytes) {
  return std::string(utf8_prefix(text, max_bytes)) + (text.size() > max_bytes ? "..." : "");
}

std::string quoted_name(std::string_view name) {
  return "'" + shortened(name, kNameBytesMax) + "'";
}

bool has_control_character(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

std::string address_text(const std::string& host, int port) {
  return host.starts_with(kUnixScheme) ? host : host + ":" + std::to_string(port);
}

std::string_view last_component(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace lmtp
