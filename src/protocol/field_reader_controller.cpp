// The fields of a CONTROLLER.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "field_reader.h"
#include "lmtp/base/text.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

using Op = ControllerMessage::Op;

constexpr std::array<std::pair<std::string_view, Op>, 4> kOps = {
    {{"upload", Op::kUpload}, {"tag", Op::kTag}, {"untag", Op::kUntag}, {"list", Op::kList}}};
constexpr std::string_view kOpsAllowed = "; allowed are upload, tag, untag and list";
constexpr std::size_t kShownOpBytesMax = 32;

}  // namespace

std::string_view controller_op_name(Op op) {
  const auto* const row =
      std::ranges::find(kOps, op, [](const auto& known) { return known.second; });
  return row->first;
}

Op FieldReader::controller_op() {
  if (!is_text(Field::kOp)) {
    fail(Field::kOp,
         (has(Field::kOp) ? seen(*element(Field::kOp)) : "is missing") + std::string(kOpsAllowed));
    return Op::kList;
  }
  const std::string_view name = element(Field::kOp)->get_string().value();
  const auto* const row =
      std::ranges::find(kOps, name, [](const auto& known) { return known.first; });
  if (row != kOps.end()) return row->second;
  fail(Field::kOp,
       "'" + shortened(name, kShownOpBytesMax) + "' is unknown" + std::string(kOpsAllowed));
  return Op::kList;
}

std::string FieldReader::base64(Field field) {
  constexpr std::string_view kAllowed = "; allowed is WebAssembly as base64";
  if (!is_text(field)) {
    fail(field, (has(field) ? seen(*element(field)) : "is missing") + std::string(kAllowed));
    return {};
  }
  std::optional<std::string> bytes = decode_base64(element(field)->get_string().value());
  if (!bytes || bytes->empty()) {
    fail(field, (bytes ? "is empty" : "is no base64") + std::string(kAllowed));
    return {};
  }
  return std::move(*bytes);
}

ControllerMessage FieldReader::controller() {
  ControllerMessage message;
  message.op = controller_op();
  if (message.op == Op::kUpload) message.binary = base64(Field::kBinary);
  if (message.op != Op::kTag && message.op != Op::kUntag) return message;
  if (message.op == Op::kTag && has(Field::kModuleId)) {
    message.module_id =
        as_short_text(field_name(Field::kModuleId), value(Field::kModuleId), kMaxModuleIdBytes);
  } else if (message.op == Op::kTag) {
    fail(Field::kModuleId, "is missing; allowed is what the upload gave");
  }
  message.tags = strings(Field::kTags, kMaxTags, kMaxTagBytes);
  if (message.tags.empty()) {
    fail(Field::kTags, (has(Field::kTags) ? "is empty" : "is missing") +
                           std::string("; allowed is a list of names"));
  }
  return message;
}

}  // namespace lmtp::protocol
