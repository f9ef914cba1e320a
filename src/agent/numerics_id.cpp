#include "numerics_id.h"

#include <gnu/libc-version.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "kernels/device.h"
#include "load_model.h"

namespace lmtp::agent {
namespace {

namespace fs = std::filesystem;

// FNV-1a: Fowler, Noll and Vo, 1991.
class Hash {
 public:
  void add(std::string_view part) {
    for (const char c : part) add_byte(c);
    add_byte('\n');
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(char c) { value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL; }

  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

// Another training gives other bytes everywhere: of a large file its size and samples are enough.
void add_file(const fs::path& path, Hash& hash) {
  constexpr std::uintmax_t kSamples = 64;
  constexpr std::uintmax_t kSampleBytes = 4096;
  std::error_code failed;
  const std::uintmax_t size = fs::file_size(path, failed);
  if (failed) return;
  hash.add(std::to_string(size));
  std::ifstream file(path, std::ios::binary);
  std::string sample;
  const std::uintmax_t step = std::max(size / kSamples, kSampleBytes);
  for (std::uintmax_t at = 0; at < size; at += step) {
    sample.resize(std::min(kSampleBytes, size - at));
    file.seekg(static_cast<std::streamoff>(at));
    file.read(sample.data(), static_cast<std::streamsize>(sample.size()));
    hash.add(sample);
  }
}

// What a model is read from: its config, and its weights in the format that is preferred.
void add_model(const ModelSource& source, Hash& hash) {
  if (source.kind == SourceKind::kRandom) {
    hash.add(source.shape);
    return hash.add(std::to_string(source.seed));
  }
  if (is_gguf(source.folder)) return add_file(source.folder, hash);
  add_file(fs::path(source.folder) / "config.json", hash);
  add_file(fs::path(source.folder) / "hf_quant_config.json", hash);  // few have it
  for (const fs::path& path : weight_files(source.folder)) add_file(path, hash);
}

}  // namespace

std::string numerics_id(const AgentOptions& options, const kernels::Backend& backend) {
  Hash hash;
  hash.add(kBuildHash);
  hash.add(gnu_get_libc_version());
  hash.add(dtype_name(options.weight_type));
  hash.add(kv_dtype_name(kv_type(options)));
  hash.add(backend.name);
  if (options.config.tied_embeddings) hash.add("tied");
  if (options.num_ranks > 1) hash.add("ranks " + std::to_string(options.num_ranks));
  if (options.cuda_device.has_value()) {
    const kernels::cuda::Probe probe = kernels::cuda::probe(*options.cuda_device);
    hash.add(probe.name);
    hash.add(std::to_string(probe.compute_capability));
  }
  add_model(options.source, hash);
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

}  // namespace lmtp::agent
