// What a config.json asks for that is not served: found before anything is loaded.
#pragma once

#include "archs/archs.h"
#include "config_reader.h"

namespace lmtp::model {

// Doubts (ConfigReader::doubt) whatever is not the plain causal LM of `architecture`: another class
// in `architectures`, weights that are quantised, code that the repository brings along.
void check_understood(ConfigReader& json, const Architecture& architecture);

// The same for a larger model of whose parts only the text model is served; notes the others.
void check_outer(ConfigReader& outer, ConfigReader& text, const Architecture& architecture);

}  // namespace lmtp::model
