// Compares a checkpoint's tensors with those that its model requests.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/model/causal_lm.h"

namespace lmtp::model {
namespace {

// Ignored: tables that other programs save with the weights and that are computed from the config
// here, masks of a cross-attention without weights, and a format's version (fairseq's, in OPT).
constexpr std::string_view kHarmless[] = {
    ".rotary_emb.inv_freq",   ".rotary_emb.cos_cached",
    ".rotary_emb.sin_cached", ".attn.bias",
    ".attn.masked_bias",      ".attention.bias",
    ".attention.masked_bias", ".attn.causal_mask",
    ".crossattention.bias",   ".crossattention.masked_bias",
    "decoder.version",        ".position_ids",
};

// Forwards requests for their errors, records the names, and returns no data.
class AskingSource : public TensorSource {
 public:
  explicit AskingSource(TensorSource& source) : source_(source) {}

  std::string origin() const override { return source_.origin(); }
  std::vector<std::string> names() const override { return source_.names(); }
  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    auto tensor = source_.tensor(spec);
    if (!tensor.ok()) return tensor.error();
    if (asked.empty()) first = spec.name;
    asked.insert(spec.name);
    return SourceTensor{.type = tensor->type, .read = nullptr};
  }
  std::optional<StoredTensor> stored(const std::string& name) const override {
    return source_.stored(name);
  }

  std::set<std::string> asked;
  std::string first;

 private:
  TensorSource& source_;
};

// The prefix of the language model's names: that of its embedding, which is requested first, or
// "language_model.".
std::string_view stem_of(std::string_view embedding) {
  constexpr std::string_view kLanguageModel = "language_model.";
  if (const auto at = embedding.find(kLanguageModel); at != std::string_view::npos) {
    return embedding.substr(0, at + kLanguageModel.size());
  }
  const auto leaf = embedding.rfind('.');
  const auto module = leaf == 0 || leaf == std::string_view::npos ? std::string_view::npos
                                                                  : embedding.rfind('.', leaf - 1);
  return module == std::string_view::npos ? std::string_view() : embedding.substr(0, module + 1);
}

// "vision_tower" of "model.vision_tower.layers.0.weight".
std::string part_of(std::string_view name) {
  for (const std::string_view wrapper : {"_orig_mod.", "module.", "model."}) {
    if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  }
  return std::string(name.substr(0, name.find('.')));
}

// Whether it belongs to heads that predict further tokens ahead, which are no part of the language
// model: "mtp." or ERNIE's "mtp_block." and its kin, or a layer more than config.json says, with
// their projection.
bool is_of_further_tokens(const std::string& name, const std::vector<std::string>& names,
                          int num_layers) {
  if (name.starts_with("mtp.") || name.find(".mtp.") != std::string::npos ||
      name.find(".mtp_") != std::string::npos) {
    return true;
  }
  const std::string layer = "layers." + std::to_string(num_layers) + ".";
  const std::size_t at = name.find(layer);
  return at != std::string::npos &&
         std::ranges::binary_search(names, name.substr(0, at) + layer + "eh_proj.weight");
}

}  // namespace

bool is_empty_tensor(const TensorSource& weights, const std::string& name) {
  const auto stored = weights.stored(name);
  return stored.has_value() && std::ranges::find(stored->shape, 0) != stored->shape.end();
}

bool is_ignorable_tensor(std::string_view name, bool has_tied_head) {
  const auto ends_so = [&](std::string_view ending) { return name.ends_with(ending); };
  return std::ranges::any_of(kHarmless, ends_so) ||
         (has_tied_head && (ends_so("lm_head.weight") || ends_so("embed_out.weight") ||
                            ends_so("output_projection.weight")));
}

Result<std::vector<std::string>> check_tensors(const ModelConfig& config, TensorSource& checkpoint,
                                               bool force) {
  AskingSource source(checkpoint);
  if (const auto asked = request_tensors(config, source); !asked.ok()) return asked.error();
  const std::string_view stem = stem_of(source.first);
  const bool is_part =
      !stem.empty() && (!config.outer_model_type.empty() || stem.ends_with("language_model."));
  std::set<std::string> parts;
  std::vector<std::string> unknown;
  bool has_further_tokens = false;
  const std::vector<std::string> names = checkpoint.names();
  for (const std::string& name : names) {
    if (source.asked.contains(name) || is_ignorable_tensor(name, config.tied_embeddings) ||
        is_empty_tensor(checkpoint, name)) {
      continue;
    }
    if (is_of_further_tokens(name, names, config.num_layers)) {
      has_further_tokens = true;
    } else if (is_part && !name.starts_with(stem)) {
      parts.insert(part_of(name));
    } else {
      unknown.push_back(name);
    }
  }
  std::vector<std::string> notes;
  if (!parts.empty()) {
    notes.push_back("the weights of " + list_names({parts.begin(), parts.end()}) + " are left out");
  }
  if (has_further_tokens) {
    notes.emplace_back("the heads that predict further tokens ahead (mtp) are left out");
  }
  if (!unknown.empty()) {
    const std::string what = "tensors that a " + config.model_type + " model has no use for (" +
                             std::to_string(unknown.size()) + ": " + list_names(unknown) +
                             "); without them it is another model";
    if (!force) {
      return Error{ErrorCode::kInvalid,
                   checkpoint.origin() + ": holds " + what + " (--force serves it all the same)"};
    }
    notes.push_back("served by --force: the weights hold " + what);
  }
  return notes;
}

}  // namespace lmtp::model
