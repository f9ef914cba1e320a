// A model on this disk, as the module that finds it (hub) and the one that reads it (model) speak
// of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmtp {

enum class SourceKind { kFolder, kRandom };

struct ModelSource {
  SourceKind kind = SourceKind::kFolder;
  std::string name;  // as given
  // All that it answers to, without duplicates: as given, the absolute path (kFolder), the last
  // component ("tiny" of "models/tiny/" and of "org/tiny@main"), "random" (kRandom).
  std::vector<std::string> names;
  std::string folder;  // kFolder: canonical absolute path
  std::string shape;   // kRandom: "gpt2", "gpt2-medium"; whether it exists is the model's matter
  std::uint64_t seed = 0;  // kRandom
};

// What a safetensors file says of itself.
struct WeightHeader {
  std::string file;   // its name in the folder
  std::string bytes;  // its beginning: eight bytes of length, and a JSON text of that length
  std::int64_t file_size = 0;  // bytes
};

}  // namespace lmtp
