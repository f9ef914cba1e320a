// The options of LoRA adapters, under vLLM's names.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "raw_options.h"

namespace lmtp::tools {
namespace {

constexpr int kAdaptersMax = 4096;

bool is_name_of_model(const std::string& name, const ServeOptions& options) {
  return name == options.model ||
         std::ranges::find(options.served_names, name) != options.served_names.end();
}

// name=path, or {"name": ..., "path": ..., "base_model_name": ...}.
Result<AdapterSource> parse_module(const std::string& text, const ServeOptions& options) {
  if (!text.starts_with('{')) {
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && equals > 0 && equals + 1 < text.size()) {
      return AdapterSource{text.substr(0, equals), text.substr(equals + 1)};
    }
    return Error{ErrorCode::kInvalid, "'" + text + "' is not name=path"};
  }
  const Result<Json> json = parse_json_object(text, "JSON");
  if (!json) return json.error();
  const std::string* name = find_json_text(*json, "name");
  const std::string* path = find_json_text(*json, "path");
  const std::string* base = find_json_text(*json, "base_model_name");
  if (name == nullptr || path == nullptr || name->empty() || path->empty()) {
    return Error{ErrorCode::kInvalid, "'" + text + "' has no name, or no path"};
  }
  if (base != nullptr && !is_name_of_model(*base, options)) {
    return Error{ErrorCode::kInvalid, "'" + *name + "' is for the model '" + *base +
                                          "', and this server's is '" + options.shown_name() + "'"};
  }
  return AdapterSource{*name, *path};
}

}  // namespace

void add_lora_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("--lora-modules", raw.lora_modules,
                 "LoRA adapters (PEFT folders) that are served as models of these names, beside "
                 "the named MODEL; or as JSON, {\"name\": ..., \"path\": ...}; may be given "
                 "several times")
      ->type_name("NAME=PATH");
  app.add_flag("--enable-lora", raw.enables_lora,
               "Accepted and without effect: adapters need no switch");
  app.add_option("--max-loras", options.batch.max_adapters, "Different adapters in one step")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-lora-rank", options.max_lora_rank,
                 "The largest rank of an adapter; those beyond it are refused")
      ->check(CLI::Range(1, 512))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-cpu-loras", options.max_cpu_loras,
                 "Adapters of a model that are held in memory; of more, those that requests loaded "
                 "are read again when they are asked for")
      ->check(CLI::Range(1, kAdaptersMax))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--allow-runtime-lora", options.allow_runtime_lora,
               "Take POST /v1/load_lora_adapter and /v1/unload_lora_adapter, from keys with the "
               "right admin where there are keys");
}

// Throws CLI11's errors.
void finish_lora_options(const RawOptions& raw, ServeOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw CLI::ValidationError("--lora-modules", what);
  };
  if (!raw.lora_modules.empty() && options.device != "cpu") {
    refuse(
        "adapters are computed on CPUs alone so far; leave --cuda and --device out, or serve the "
        "model without adapters");
  }
  for (const std::string& text : raw.lora_modules) {
    const Result<AdapterSource> module = parse_module(text, options);
    if (!module) refuse(module.error().message);
    if (is_name_of_model(module->name, options) ||
        std::ranges::find(options.adapters, module->name, &AdapterSource::name) !=
            options.adapters.end()) {
      refuse("'" + module->name + "' is the name of two; each has one of its own");
    }
    options.adapters.push_back(*module);
  }
  if (options.adapters.size() > static_cast<std::size_t>(options.max_cpu_loras)) {
    refuse(std::to_string(options.adapters.size()) + " adapters are more than --max-cpu-loras " +
           std::to_string(options.max_cpu_loras));
  }
}

}  // namespace lmtp::tools
