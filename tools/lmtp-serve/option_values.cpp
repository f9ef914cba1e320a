#include "option_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace lmtp::tools {
namespace {

constexpr double kMaxSizeBytes = 1e15;

struct Unit {
  std::string_view name;
  double num_bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", kKi},
                                          {"kib", kKi},
                                          {"m", kKi* kKi},
                                          {"mib", kKi* kKi},
                                          {"g", kKi* kKi* kKi},
                                          {"gib", kKi* kKi* kKi},
                                          {"t", kKi* kKi* kKi* kKi},
                                          {"tib", kKi* kKi* kKi* kKi},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12}}};

constexpr double kMaxDurationS = 10 * 365 * 86'400.0;
constexpr std::array<std::pair<std::string_view, double>, 5> kDurations = {
    {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86'400}}};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

Result<std::int64_t> parse_size(std::string_view text) {
  const std::string allowed =
      "'" + std::string(text) + "' is not a size; write 512MiB, 4GiB or a number of bytes";
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0.0)) return Error{ErrorCode::kInvalid, allowed};
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto* const unit = std::find_if(
      kUnits.begin(), kUnits.end(), [&](const Unit& known) { return known.name == lower(rest); });
  if (unit == kUnits.end()) return Error{ErrorCode::kInvalid, allowed};
  const double num_bytes = number * unit->num_bytes;
  if (num_bytes > kMaxSizeBytes) {
    return Error{ErrorCode::kInvalid, "'" + std::string(text) + "' is too large"};
  }
  return static_cast<std::int64_t>(num_bytes);
}

Result<std::int64_t> parse_duration_ms(std::string_view text) {
  if (lower(text) == "never") return 0;
  const Error wrong{ErrorCode::kInvalid,
                    "'" + std::string(text) + "' is not a time; write 90s, 30m, 2h, 0 or never"};
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0.0)) return wrong;
  const std::string unit = lower({end, static_cast<std::size_t>(text.data() + text.size() - end)});
  const auto* const found = std::find_if(kDurations.begin(), kDurations.end(),
                                         [&](const auto& known) { return known.first == unit; });
  if (found == kDurations.end()) return wrong;
  const double seconds = number * found->second;
  if (seconds > kMaxDurationS) {
    return Error{ErrorCode::kInvalid, "'" + std::string(text) + "' is too long"};
  }
  // A tiny time must not be rounded to 0, "never".
  return seconds > 0.0 ? std::max<std::int64_t>(1, std::llround(seconds * 1000)) : 0;
}

}  // namespace lmtp::tools
