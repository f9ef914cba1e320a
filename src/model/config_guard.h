// Finds what a config.json asks for and this server does not support, before anything is loaded.
#pragma once

#include <string_view>

#include "archs/archs.h"
#include "config_reader.h"

namespace lmtp::model {

// Whether it is the class without the head: "Qwen3Model" where `architecture` is Qwen3ForCausalLM.
bool is_body(std::string_view name, const Architecture& architecture);

// Refuses, unless forced, everything but the plain causal LM of `architecture`, and that without
// its head: another class in `architectures`, quantised weights, code of the repository.
void check_supported(ConfigReader& json, const Architecture& architecture);

// The same for a larger model of which only the text model is served; notes the other parts.
void check_outer(ConfigReader& outer, ConfigReader& text, const Architecture& architecture);

}  // namespace lmtp::model
