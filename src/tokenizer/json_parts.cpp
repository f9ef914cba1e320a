#include "json_parts.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base64.h"
#include "json_file.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// GPT-2's own pattern, which has an implementation of its own.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMetaspaceMark = "\xE2\x96\x81";  // U+2581

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

std::string_view type_of(const object& part) { return string_or(part, "type", "of no type"); }

// Calls take(part) for the object itself or, where it is a Sequence, for each of its parts under
// `list_key`, however deep.
template <typename Take>
Result<void> for_each_part(const object& part, const char* list_key, Take take) {
  if (type_of(part) != "Sequence") return take(part);
  array parts;
  if (part[list_key].get_array().get(parts) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "a Sequence has no " + quoted(list_key)};
  }
  for (const element item : parts) {
    object inner;
    if (item.get_object().get(inner) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid,
                   "a Sequence's " + quoted(list_key) + " holds something that is no object"};
    }
    if (auto taken = for_each_part(inner, list_key, take); !taken) return taken;
  }
  return {};
}

// The part's object; empty if it is null or missing.
Result<std::optional<object>> part_of(const object& root, const char* key) {
  element value;
  if (root[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::optional<object>();
  object part;
  if (value.get_object().get(part) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, quoted(key) + " is not an object"};
  }
  return std::optional<object>(part);
}

// {"String": "x"} or {"Regex": "x"}
Result<SplitPattern> read_pattern(const object& part) {
  object pattern;
  std::string_view text;
  if (part["pattern"].get_object().get(pattern) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "a " + quoted(type_of(part)) + " has no 'pattern'"};
  }
  if (pattern["Regex"].get_string().get(text) == simdjson::SUCCESS) {
    auto regex = SplitPattern::regex(text);
    if (!regex) return unsupported(regex.error().message);
    return regex;
  }
  if (pattern["String"].get_string().get(text) == simdjson::SUCCESS && !text.empty()) {
    return SplitPattern::literal(text);
  }
  return Error{ErrorCode::kInvalid,
               "the 'pattern' of a " + quoted(type_of(part)) + " is neither String nor Regex"};
}

Result<NormalizerStep> read_precompiled(const object& part) {
  const auto bytes = from_base64(string_or(part, "precompiled_charsmap", ""));
  if (!bytes) {
    return Error{ErrorCode::kInvalid,
                 "the 'precompiled_charsmap' of a 'Precompiled' is not base64"};
  }
  auto charsmap = Charsmap::parse(*bytes);
  if (!charsmap) {
    return Error{charsmap.error().code, "a 'Precompiled': " + charsmap.error().message};
  }
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kCharsmap;
  step.charsmap = std::make_shared<const Charsmap>(std::move(*charsmap));
  return step;
}

Result<NormalizerStep> read_normalizer_step(const object& part) {
  using Kind = NormalizerStep::Kind;
  const std::string_view type = type_of(part);
  NormalizerStep step;
  const auto form = [&step](UnicodeForm which) {
    step.kind = Kind::kForm;
    step.form = std::make_shared<const UnicodeFormer>(which);
    return step;
  };
  if (type == "NFC") return form(UnicodeForm::kNfc);
  if (type == "NFD") return form(UnicodeForm::kNfd);
  if (type == "NFKC") return form(UnicodeForm::kNfkc);
  if (type == "NFKD") return form(UnicodeForm::kNfkd);
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.content = string_or(part, "prepend", "");
    return step;
  }
  if (type == "Replace") {
    auto pattern = read_pattern(part);
    if (!pattern) return pattern.error();
    step.kind = Kind::kReplace;
    step.pattern = std::move(*pattern);
    step.content = string_or(part, "content", "");
    return step;
  }
  if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.strip_left = bool_or(part, "strip_left", true);
    step.strip_right = bool_or(part, "strip_right", true);
    return step;
  }
  if (type == "ByteLevel") {
    step.kind = Kind::kSpellBytes;
    return step;
  }
  if (type == "Precompiled") return read_precompiled(part);
  if (type == "Lowercase" || type == "Nmt") {
    step.kind = type == "Nmt" ? Kind::kNmt : Kind::kLowercase;
    return step;
  }
  return unsupported("the normalizer is " + quoted(type));
}

void read_byte_level(const object& part, PreTokenizerParts& parts) {
  if (bool_or(part, "add_prefix_space", true)) parts.steps.push_back(prefix_space_step());
  if (bool_or(part, "use_regex", true)) parts.steps.emplace_back();
  parts.steps.emplace_back().kind = PreTokenizerStep::Kind::kSpellBytes;
}

Result<void> read_metaspace(const object& part, PreTokenizerParts& parts) {
  using Kind = PreTokenizerStep::Kind;
  const std::string mark(string_or(part, "replacement", kMetaspaceMark));
  if (mark.empty()) return Error{ErrorCode::kInvalid, "a Metaspace has an empty 'replacement'"};
  const bool adds = bool_or(part, "add_prefix_space", true);
  const std::string_view scheme = string_or(part, "prepend_scheme", adds ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return unsupported("Metaspace's prepend_scheme is " + quoted(scheme));
  }
  PreTokenizerStep step;
  step.content = mark;
  step.kind = Kind::kReplace;
  parts.steps.push_back(step);
  if (adds && scheme != "never") {
    step.kind = Kind::kPrepend;
    step.first_only = scheme == "first";
    parts.steps.push_back(step);
  }
  if (bool_or(part, "split", true)) {
    step.kind = Kind::kMarkStarts;
    parts.steps.push_back(step);
  }
  return {};
}

Result<SplitBehavior> read_behavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("a Split's behavior is " + quoted(name));
}

Result<void> read_split(const object& part, PreTokenizerParts& parts) {
  PreTokenizerStep step;
  const auto behavior = read_behavior(string_or(part, "behavior", ""));
  if (!behavior) return behavior.error();
  step.behavior = *behavior;
  step.invert = bool_or(part, "invert", false);
  object pattern;
  const bool is_gpt2 = part["pattern"].get_object().get(pattern) == simdjson::SUCCESS &&
                       string_or(pattern, "Regex", "") == kGpt2Pattern;
  // The matches cover the whole text.
  if (is_gpt2 && step.behavior == SplitBehavior::kIsolated) {
    parts.steps.emplace_back();
    return {};
  }
  auto read = read_pattern(part);
  if (!read) return read.error();
  step.kind = PreTokenizerStep::Kind::kSplit;
  step.pattern = std::move(*read);
  parts.steps.push_back(std::move(step));
  return {};
}

// A step that removes the gaps between words, or one that isolates the matches.
PreTokenizerStep split_step(SplitPattern pattern, SplitBehavior behavior, bool invert = false) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kSplit;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

Result<void> read_words(std::string_view type, const object& part, PreTokenizerParts& parts) {
  const auto spaces = [] { return SplitPattern::one_of(space_ranges()); };
  if (type == "Whitespace") {
    // Inside a set, Oniguruma's \w is Rust's except for these two.
    auto words = SplitPattern::regex(R"([\w\u200C\u200D]+|[^\w\s\u200C\u200D]+)");
    if (!words) return words.error();
    parts.steps.push_back(split_step(std::move(*words), SplitBehavior::kRemoved, true));
  } else if (type == "WhitespaceSplit") {
    parts.steps.push_back(split_step(spaces(), SplitBehavior::kRemoved));
  } else if (type == "BertPreTokenizer") {
    parts.steps.push_back(split_step(spaces(), SplitBehavior::kRemoved));
    parts.steps.push_back(
        split_step(SplitPattern::one_of(punctuation_ranges()), SplitBehavior::kIsolated));
  } else if (type == "CharDelimiterSplit") {
    const std::string_view delimiter = string_or(part, "delimiter", "");
    if (delimiter.empty()) {
      return Error{ErrorCode::kInvalid, "a CharDelimiterSplit has no 'delimiter'"};
    }
    parts.steps.push_back(split_step(SplitPattern::literal(delimiter), SplitBehavior::kRemoved));
  } else {
    return unsupported("the pre_tokenizer is " + quoted(type));
  }
  return {};
}

Result<void> read_pre_tokenizer_part(const object& part, PreTokenizerParts& parts) {
  const std::string_view type = type_of(part);
  if (type == "ByteLevel") {
    read_byte_level(part, parts);
    return {};
  }
  if (type == "Metaspace") return read_metaspace(part, parts);
  if (type == "Split") return read_split(part, parts);
  if (type == "Digits") {
    parts.steps.push_back(
        split_step(SplitPattern::one_of(digit_ranges()), bool_or(part, "individual_digits", false)
                                                             ? SplitBehavior::kIsolated
                                                             : SplitBehavior::kContiguous));
    return {};
  }
  if (type == "Punctuation") {
    const auto behavior = read_behavior(string_or(part, "behavior", "Isolated"));
    if (!behavior) return behavior.error();
    parts.steps.push_back(split_step(SplitPattern::one_of(punctuation_ranges()), *behavior));
    return {};
  }
  return read_words(type, part, parts);
}

Result<void> read_decoder_part(const object& part, std::vector<DecoderStep>& steps) {
  using Kind = DecoderStep::Kind;
  const std::string_view type = type_of(part);
  DecoderStep step;
  if (type == "Replace") {
    auto pattern = read_pattern(part);
    if (!pattern) return pattern.error();
    step.kind = Kind::kReplace;
    step.pattern = std::move(*pattern);
    step.content = string_or(part, "content", "");
  } else if (type == "ByteLevel") {
    step.kind = Kind::kBytes;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.content = string_or(part, "content", " ");
    step.start = size_or(part, "start", 0);
    step.stop = size_or(part, "stop", 0);
  } else if (type == "Metaspace") {
    const bool adds = bool_or(part, "add_prefix_space", true);
    step.kind = Kind::kMetaspace;
    step.content = string_or(part, "replacement", kMetaspaceMark);
    step.drops_first = adds && string_or(part, "prepend_scheme", "always") != "never";
  } else {
    return unsupported("the decoder is " + quoted(type));
  }
  const bool needs_content = step.kind == Kind::kMetaspace || step.kind == Kind::kStrip;
  if (needs_content && step.content.empty()) {
    return Error{ErrorCode::kInvalid,
                 "the decoder " + quoted(type) + " has no character to look for"};
  }
  steps.push_back(std::move(step));
  return {};
}

// TemplateProcessing's {"id": ..., "ids": [...]} of the special token `name`.
void append_template_ids(const object& part, std::string_view name,
                         std::vector<TemplateToken>& to) {
  object tokens;
  if (part["special_tokens"].get_object().get(tokens) != simdjson::SUCCESS) return;
  for (const auto [key, value] : tokens) {
    array ids;
    if (key != name || value["ids"].get_array().get(ids) != simdjson::SUCCESS) continue;
    for (const element id : ids) {
      std::int64_t number = -1;
      if (id.get_int64().get(number) == simdjson::SUCCESS) {
        to.push_back({std::string(name), number});
      }
    }
  }
}

// "cls" and "sep" of Roberta's and Bert's: ["<s>", 0].
void append_pair(const object& part, std::string_view key, std::vector<TemplateToken>& to) {
  array pair;
  std::string_view content;
  std::int64_t id = -1;
  if (part[key].get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get_string().get(content) != simdjson::SUCCESS ||
      pair.at(1).get_int64().get(id) != simdjson::SUCCESS) {
    return;
  }
  to.push_back({std::string(content), id});
}

void append_template(const object& part, TemplateTokens& to) {
  const std::string_view type = type_of(part);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    append_pair(part, "cls", to.prefix);
    append_pair(part, "sep", to.suffix);
    return;
  }
  array single;
  if (type != "TemplateProcessing" || part["single"].get_array().get(single) != simdjson::SUCCESS) {
    return;
  }
  bool is_behind = false;  // the text
  for (const element item : single) {
    std::string_view name;
    if (item["SpecialToken"]["id"].get_string().get(name) != simdjson::SUCCESS) {
      is_behind = true;
    } else {
      append_template_ids(part, name, is_behind ? to.suffix : to.prefix);
    }
  }
}

}  // namespace

Error unsupported(const std::string& what) {
  return Error{ErrorCode::kInvalid, what + "; " + kSupportedKinds};
}

PreTokenizerStep prefix_space_step() {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kPrepend;
  step.content = " ";
  return step;
}

Result<std::vector<NormalizerStep>> read_normalizer(const object& root) {
  std::vector<NormalizerStep> steps;
  const auto part = part_of(root, "normalizer");
  if (!part) return part.error();
  if (!*part) return steps;
  const auto read = for_each_part(**part, "normalizers", [&](const object& each) -> Result<void> {
    auto step = read_normalizer_step(each);
    if (!step) return step.error();
    steps.push_back(std::move(*step));
    return {};
  });
  if (!read) return read.error();
  return steps;
}

Result<PreTokenizerParts> read_pre_tokenizer(const object& root) {
  PreTokenizerParts parts;
  const auto part = part_of(root, "pre_tokenizer");
  if (!part) return part.error();
  if (!*part) return parts;
  const auto read = for_each_part(**part, "pretokenizers", [&](const object& each) {
    return read_pre_tokenizer_part(each, parts);
  });
  if (!read) return read.error();
  parts.byte_level_alone = type_of(**part) == "ByteLevel";
  return parts;
}

Result<std::vector<DecoderStep>> read_decoder(const object& root) {
  std::vector<DecoderStep> steps;
  const auto part = part_of(root, "decoder");
  if (!part) return part.error();
  if (!*part) {
    steps.emplace_back().kind = DecoderStep::Kind::kJoin;
    return steps;
  }
  const auto read = for_each_part(
      **part, "decoders", [&](const object& each) { return read_decoder_part(each, steps); });
  if (!read) return read.error();
  return steps;
}

TemplateTokens read_template(const object& root) {
  TemplateTokens tokens;
  const auto part = part_of(root, "post_processor");
  if (!part || !*part) return tokens;
  // Unknown post-processors are ignored.
  const auto read = for_each_part(**part, "processors", [&](const object& each) -> Result<void> {
    append_template(each, tokens);
    return {};
  });
  return read ? tokens : TemplateTokens();
}

}  // namespace lmtp::tokenizer
