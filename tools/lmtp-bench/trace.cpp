#include "trace.h"

#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace lmtp::tools {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <typename T>
bool read_number(std::string_view text, T lowest, T highest, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= lowest &&
         value <= highest;
}

// The index of each column in a line.
struct Columns {
  std::size_t count = 0;
  std::size_t arrival_s = 0;
  std::size_t prompt_tokens = 0;
  std::size_t output_tokens = 0;
  std::optional<std::size_t> prefix_blocks;
};

Result<Columns> read_header(std::string_view line) {
  const auto names = split(line, ',');
  const auto place = [&names](std::string_view name) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return i;
    }
    return std::nullopt;
  };
  for (const char* name : {"arrival_s", "prompt_tokens", "output_tokens"}) {
    if (!place(name)) {
      return Error{ErrorCode::kInvalid,
                   "has no column " + std::string(name) + " in its first line"};
    }
  }
  return Columns{names.size(), *place("arrival_s"), *place("prompt_tokens"),
                 *place("output_tokens"), place("prefix_blocks")};
}

// The error; empty if `row` is valid.
std::string read_row(std::string_view line, const Columns& columns, double earliest_s,
                     TraceRow& row) {
  const auto fields = split(line, ',');
  if (fields.size() != columns.count) {
    return "has " + std::to_string(fields.size()) + " fields, the first line " +
           std::to_string(columns.count);
  }
  if (!read_number(fields[columns.arrival_s], earliest_s, 1e9, row.arrival_s)) {
    return "arrival_s is no time in seconds, or earlier than the line before";
  }
  if (!read_number(fields[columns.prompt_tokens], 1, kTraceTokensMax, row.prompt_tokens)) {
    return "prompt_tokens is not in 1 to " + std::to_string(kTraceTokensMax);
  }
  if (!read_number(fields[columns.output_tokens], 1, kTraceTokensMax, row.output_tokens)) {
    return "output_tokens is not in 1 to " + std::to_string(kTraceTokensMax);
  }
  if (!columns.prefix_blocks || fields[*columns.prefix_blocks].empty()) return "";
  for (const std::string_view text : split(fields[*columns.prefix_blocks], ' ')) {
    std::int32_t block = 0;
    if (!read_number(text, 0, std::numeric_limits<std::int32_t>::max(), block)) {
      return "prefix_blocks holds '" + std::string(text) + "', which is no block id";
    }
    row.prefix_blocks.push_back(block);
  }
  return "";
}

}  // namespace

Result<std::vector<TraceRow>> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{ErrorCode::kNotFound, "cannot read " + path};
  std::string line;
  const auto next_line = [&] {
    if (!std::getline(file, line)) return false;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  };
  if (!next_line()) return Error{ErrorCode::kInvalid, path + " is empty"};
  const auto columns = read_header(line);
  if (!columns) return Error{columns.error().code, path + " " + columns.error().message};
  std::vector<TraceRow> rows;
  for (std::size_t number = 2; next_line(); ++number) {
    if (line.empty()) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    if (rows.size() == kTraceRowsMax) {
      return Error{ErrorCode::kInvalid,
                   where + "more than " + std::to_string(kTraceRowsMax) + " rows"};
    }
    TraceRow row;
    const double earliest_s = rows.empty() ? 0.0 : rows.back().arrival_s;
    const std::string wrong = read_row(line, *columns, earliest_s, row);
    if (!wrong.empty()) return Error{ErrorCode::kInvalid, where + wrong};
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return Error{ErrorCode::kInvalid, path + " holds no rows"};
  return rows;
}

}  // namespace lmtp::tools
