#include "device_names.h"

#include <sstream>

namespace lmtp::tools {

std::vector<std::string> device_names(const char* variable, int num_devices) {
  std::vector<std::string> names;
  std::istringstream list(variable == nullptr ? "" : variable);
  for (std::string name; std::ssize(names) < num_devices && std::getline(list, name, ',');) {
    names.push_back(name);
  }
  for (int i = 0; variable == nullptr && i < num_devices; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace lmtp::tools
