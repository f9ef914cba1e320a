// Checkpoints in the safetensors format: eight bytes of header length (little endian), a JSON
// header {name: {dtype, shape, data_offsets}}, then the data.
// https://github.com/huggingface/safetensors
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "checkpoint_files.h"

namespace lmtp::model {
namespace {

// The format's own limit of a header.
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;
constexpr std::size_t kDimensionsMax = 8;

// One entry of the header; `data_begin` is where the data start in the file.
Result<TensorEntry> parse_entry(const simdjson::dom::element& element, const std::string& name,
                                const WeightsFile& file, std::uint64_t data_begin) {
  const auto broken = [&](const char* what) {
    return Error{ErrorCode::kInvalid, file.path() + ": header: tensor '" + name + "': " + what};
  };
  TensorEntry entry;
  entry.file = &file;
  std::string_view type;
  simdjson::dom::array shape;
  simdjson::dom::array offsets;
  if (element["dtype"].get(type) != simdjson::SUCCESS ||
      element["shape"].get(shape) != simdjson::SUCCESS ||
      element["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2) {
    return broken("dtype, shape or data_offsets is missing");
  }
  entry.type = type;
  for (const simdjson::dom::element dimension : shape) {
    std::int64_t size = 0;
    if (dimension.get(size) != simdjson::SUCCESS || size < 0 ||
        entry.shape.size() == kDimensionsMax) {
      return broken("shape is not a list of sizes");
    }
    entry.shape.push_back(size);
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.at(0).get(begin) != simdjson::SUCCESS ||
      offsets.at(1).get(end) != simdjson::SUCCESS || begin > end) {
    return broken("data_offsets are not two rising numbers");
  }
  if (end > file.size() - data_begin) {
    return broken("its data lie beyond the end of the file: the file is truncated");
  }
  entry.begin = data_begin + begin;
  entry.size = end - begin;
  return entry;
}

// As in the reference implementation: the tensors cover the data without gaps or overlaps.
Result<void> check_cover(const TensorEntries& entries, const WeightsFile& file,
                         std::uint64_t data_begin) {
  std::vector<const TensorEntries::value_type*> in_order;
  in_order.reserve(entries.size());
  for (const auto& entry : entries) in_order.push_back(&entry);
  std::ranges::sort(in_order, {}, [](const TensorEntries::value_type* entry) {
    return std::pair(entry->second.begin, entry->second.size);
  });
  std::uint64_t end = data_begin;
  for (const auto* entry : in_order) {
    if (entry->second.begin != end) {
      return Error{ErrorCode::kInvalid,
                   file.path() + ": header: tensor '" + entry->first +
                       "' does not begin where the one before it ends: the file is corrupt"};
    }
    end += entry->second.size;
  }
  if (end != file.size()) {
    return Error{ErrorCode::kInvalid, file.path() + ": " + std::to_string(file.size() - end) +
                                          " bytes lie behind its last tensor: the file is corrupt"};
  }
  return {};
}

}  // namespace

Result<TensorEntries> read_safetensors(const WeightsFile& file) {
  const std::string& path = file.path();
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    return Error{ErrorCode::kInvalid, path + ": not a safetensors file: shorter than its header"};
  }
  if (const auto read = file.read(0, sizeof(header_bytes), &header_bytes); !read.ok()) {
    return read.error();
  }
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - sizeof(header_bytes)) {
    return Error{ErrorCode::kInvalid,
                 path + ": not a safetensors file, or truncated: its header claims " +
                     std::to_string(header_bytes) + " bytes"};
  }
  simdjson::padded_string text(header_bytes);
  if (const auto read = file.read(sizeof(header_bytes), header_bytes, text.data()); !read.ok()) {
    return read.error();
  }
  simdjson::dom::parser parser;
  simdjson::dom::object header;
  if (parser.parse(text).get(header) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid,
                 path + ": the header is not a JSON object: the file is corrupt"};
  }
  const std::uint64_t data_begin = sizeof(header_bytes) + header_bytes;
  TensorEntries entries;
  for (const auto field : header) {
    const std::string name(field.key);
    if (name == "__metadata__") continue;
    auto entry = parse_entry(field.value, name, file, data_begin);
    if (!entry.ok()) return entry.error();
    if (!entries.emplace(name, std::move(*entry)).second) {
      return Error{ErrorCode::kInvalid, path + ": header: tensor '" + name + "' is there twice"};
    }
  }
  if (const auto covered = check_cover(entries, file, data_begin); !covered.ok()) {
    return covered.error();
  }
  return entries;
}

}  // namespace lmtp::model
