#include "config_guard.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lmtp::model {
namespace {

// The first conversions of Llama call their class LLaMAForCausalLM.
bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// Code for tokenizers and images is not used by a server, so it is ignored.
bool is_of_no_concern(std::string_view auto_class) {
  return auto_class.find("Tokenizer") != std::string_view::npos ||
         auto_class.find("Processor") != std::string_view::npos ||
         auto_class.find("FeatureExtractor") != std::string_view::npos;
}

// Repositories of Phi 3 and Falcon contain the code that transformers has adopted, InternLM's what
// is here.
bool is_the_librarys(std::string_view code, const Architecture& architecture) {
  if (const auto repository = code.rfind("--"); repository != std::string_view::npos) {
    code.remove_prefix(repository + 2);
  }
  for (const std::string_view beginning : {"modeling_", "configuration_"}) {
    if (code.starts_with(beginning)) {
      code.remove_prefix(beginning.size());
      break;
    }
  }
  const char* const published = architecture.published_code;
  return published != nullptr && code.starts_with(std::string(published) + ".");
}

void check_code(ConfigReader& json, const Architecture& architecture) {
  auto map = json.object("auto_map");
  if (!map.has_value()) return;
  for (const std::string& key : map->keys()) {
    if (is_of_no_concern(key)) continue;
    const std::string code = map->text(key.c_str(), "");  // [REPOSITORY--]MODULE.CLASS
    if (!is_the_librarys(code, architecture)) {
      json.refuse_unless_forced("auto_map: " + key + " is code of the repository's own (" + code +
                                "), which is not run: what it computes is not known");
      return;
    }
  }
}

void check_settings(ConfigReader& json, const Architecture& architecture) {
  check_code(json, architecture);
  if (!json.boolean("is_causal", true) || json.boolean("use_bidirectional_attention", false)) {
    json.refuse_unless_forced(
        "is_causal, use_bidirectional_attention: here no token sees a later one");
  }
  if (json.boolean("add_cross_attention", false)) {
    json.refuse_unless_forced("add_cross_attention: there is no other model to attend to");
  }
}

}  // namespace

bool is_body(std::string_view name, const Architecture& architecture) {
  for (const char* const known : {architecture.architecture, architecture.other_architecture}) {
    std::string_view stem = known == nullptr ? std::string_view() : known;
    for (const std::string_view head : {"ForCausalLM", "LMHeadModel"}) {
      if (!stem.ends_with(head)) continue;
      stem.remove_suffix(head.size());
      const std::string body(stem);
      if (name == body + "Model" || name == body + "TextModel") return true;
    }
  }
  return false;
}

void check_supported(ConfigReader& json, const Architecture& architecture) {
  for (const std::string& name : json.texts("architectures")) {
    const char* const other = architecture.other_architecture;
    if (is_body(name, architecture)) {
      json.note("'" + name + "' has no output head: it gives embeddings, and generates nothing");
      continue;
    }
    if (!same_name(name, architecture.architecture) && (other == nullptr || name != other)) {
      const bool classifies = name.ends_with("Classification");
      json.refuse_unless_forced(
          "architectures: '" + name + "' is not the language model of '" + architecture.model_type +
          "', which is " + architecture.architecture +
          (classifies ? "; a classifier's head is not computed here: for /rerank serve the "
                        "language model that it was made of, or an embedding model"
                      : ""));
      break;
    }
  }
  check_settings(json, architecture);
}

void check_outer(ConfigReader& outer, ConfigReader& text, const Architecture& architecture) {
  const std::string type = outer.text("model_type", "");
  for (const std::string& name : outer.texts("architectures")) {
    if (!name.ends_with("ForConditionalGeneration") || type == "paligemma") {
      outer.refuse_unless_forced("architectures: '" + name + "' of '" + type + "' may use its " +
                                 architecture.model_type +
                                 " for something else than to go on with a text");
      break;
    }
  }
  check_settings(outer, architecture);
  check_settings(text, architecture);
  std::string skipped;
  for (const std::string& key : outer.keys()) {
    if (key.ends_with("_config") && key != "text_config" && key != "quantization_config" &&
        outer.is_object(key)) {
      skipped += (skipped.empty() ? "" : ", ") + key.substr(0, key.size() - 7);
    }
  }
  outer.note("the text model (" + std::string(architecture.model_type) + ") of '" + type +
             "' alone, without " + (skipped.empty() ? "its other parts" : skipped));
}

}  // namespace lmtp::model
