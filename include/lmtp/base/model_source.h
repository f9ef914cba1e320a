// A model on the local disk: what the module `hub` finds and the module `model` reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp {

enum class SourceKind { kFolder, kRandom };

struct ModelSource {
  SourceKind kind = SourceKind::kFolder;
  std::string name;  // as given
  // All names by which requests may ask for it, without duplicates: as given, the absolute path
  // (kFolder), the last component ("tiny" of "models/tiny/" and of "org/tiny@main"), "random"
  // (kRandom).
  std::vector<std::string> names;
  std::string folder;      // kFolder: canonical absolute path, also that of a GGUF file
  std::string shape;       // kRandom: "gpt2", "gpt2-medium"; checked by the module `model`
  std::uint64_t seed = 0;  // kRandom
};

// Whether a source's folder is a GGUF file instead, by its name.
inline bool is_gguf(std::string_view path) { return path.ends_with(".gguf"); }

// The header of a safetensors file.
struct WeightHeader {
  std::string file;   // its name in the folder
  std::string bytes;  // the file's beginning: eight bytes of length, then JSON of that length
  std::int64_t file_size = 0;  // bytes
};

}  // namespace lmtp
