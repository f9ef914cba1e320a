// make-checkpoint SHAPE[:SEED] FOLDER
//
// Writes the weights of `lmtp-serve random:SHAPE:SEED` as a Hugging Face folder, with a made-up
// byte-level BPE tokenizer of the shape's vocabulary, so that other engines can load the same
// model.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/random.h"
#include "kernels/worker_pool.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/base/utf8.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"

namespace lmtp {
namespace {

// Elements that are made and written at a time.
constexpr std::int64_t kElementsPerWrite = std::int64_t{1} << 22;
constexpr std::int64_t kElementsPerTask = std::int64_t{1} << 16;

Result<void> write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    return Error{ErrorCode::kUnavailable, path.string() + ": cannot be written"};
  }
  return {};
}

// ---- weights ----

std::string safetensors_header(const std::vector<model::TensorSpec>& tensors,
                               kernels::ElementType type) {
  const char* type_name = type == kernels::ElementType::kBF16 ? "BF16" : "F32";
  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t begin = 0;
  for (const model::TensorSpec& tensor : tensors) {
    const std::int64_t end = begin + tensor.num_elements() * kernels::element_size(type);
    header[tensor.name] = {
        {"dtype", type_name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

Result<void> write_weights(const std::filesystem::path& path, std::uint64_t seed,
                           const std::vector<model::TensorSpec>& tensors,
                           kernels::ElementType type) {
  std::ofstream file(path, std::ios::binary);
  const std::string header = safetensors_header(tensors, type);
  const std::int64_t element_bytes = kernels::element_size(type);
  const std::uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << header;
  kernels::WorkerPool pool(
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 64));
  std::vector<char> values;
  for (const model::TensorSpec& tensor : tensors) {
    const kernels::RandomTensor made = model::random_tensor(seed, tensor, type);
    for (std::int64_t first = 0; first < tensor.num_elements(); first += kElementsPerWrite) {
      const std::int64_t count = std::min(kElementsPerWrite, tensor.num_elements() - first);
      values.resize(static_cast<std::size_t>(count * element_bytes));
      const auto num_tasks = static_cast<int>((count + kElementsPerTask - 1) / kElementsPerTask);
      pool.parallel_for(num_tasks, [&](int task, int) {
        const std::int64_t at = task * kElementsPerTask;
        kernels::fill_random({.tensor = made,
                              .first = first + at,
                              .count = std::min(kElementsPerTask, count - at),
                              .to = values.data() + at * element_bytes});
      });
      file.write(values.data(), static_cast<std::streamsize>(values.size()));
    }
  }
  file.close();
  if (!file) {
    return Error{ErrorCode::kUnavailable,
                 path.string() + ": cannot be written (is the disk full?)"};
  }
  return {};
}

// ---- tokenizer ----

std::string utf8(char32_t code) {
  std::string text;
  append_utf8(code, text);
  return text;
}

// GPT-2's letters for the 256 bytes, in the order of its ids: the printable ones stand for
// themselves, the others follow as the letters from 256 on.
std::vector<std::string> byte_letters() {
  const auto printable = [](std::uint32_t byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  };
  std::vector<std::string> letters;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (printable(byte)) letters.push_back(utf8(byte));
  }
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (!printable(byte)) letters.push_back(utf8(next++));
  }
  return letters;
}

struct MadeUpTokenizer {
  std::vector<std::string> vocabulary;
  std::vector<std::string> merges;
};

// Words of growing length: each is an earlier one with a letter a-z behind it.
MadeUpTokenizer make_tokenizer(int vocab_size) {
  MadeUpTokenizer made{.vocabulary = byte_letters(), .merges = {}};
  std::vector<std::string> words = {utf8(0x120)};  // the letter that stands for a space
  for (char letter = 'a'; letter <= 'z'; ++letter) words.emplace_back(1, letter);
  const auto num_merges = static_cast<std::size_t>(vocab_size) - made.vocabulary.size() - 1;
  for (std::size_t i = 0; made.merges.size() < num_merges; ++i) {
    for (char letter = 'a'; letter <= 'z' && made.merges.size() < num_merges; ++letter) {
      made.merges.push_back(words[i] + " " + letter);
      words.push_back(words[i] + letter);
      made.vocabulary.push_back(words.back());
    }
  }
  made.vocabulary.emplace_back("<|endoftext|>");
  return made;
}

Result<void> write_tokenizer(const std::filesystem::path& folder,
                             const model::ModelConfig& config) {
  const MadeUpTokenizer made = make_tokenizer(config.vocab_size);
  OrderedJson::object_t vocabulary;
  for (const std::string& word : made.vocabulary) vocabulary.emplace_back(word, vocabulary.size());
  std::string merges = "#version: 0.2\n";
  for (const std::string& merge : made.merges) merges += merge + "\n";
  const OrderedJson tokenizer_config = {
      {"tokenizer_class", "GPT2Tokenizer"}, {"model_max_length", config.context_length},
      {"bos_token", "<|endoftext|>"},       {"eos_token", "<|endoftext|>"},
      {"unk_token", "<|endoftext|>"},       {"add_prefix_space", false}};
  for (const auto& [name, text] :
       {std::pair{"vocab.json", json_text(vocabulary) + "\n"}, std::pair{"merges.txt", merges},
        std::pair{"tokenizer_config.json", json_text(tokenizer_config) + "\n"}}) {
    if (auto written = write_text(folder / name, text); !written.ok()) return written;
  }
  return {};
}

// ---- the command ----

Result<void> make_checkpoint(std::string_view what, const std::filesystem::path& folder) {
  std::uint64_t seed = 0;
  const std::size_t colon = what.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view digits = what.substr(colon + 1);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (code != std::errc() || end != digits.data() + digits.size()) {
      return Error{ErrorCode::kInvalid,
                   "SEED is a whole number from 0 on, not '" + std::string(digits) + "'"};
    }
  }
  const std::string shape(what.substr(0, colon));
  const auto config = model::shape_config(shape);
  if (!config.ok()) return config.error();
  const auto tensors = model::describe_tensors(*config);
  if (!tensors.ok()) return tensors.error();
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    return Error{ErrorCode::kUnavailable, folder.string() + ": " + code.message()};
  }
  if (auto done = write_text(folder / "config.json", *model::shape_config_json(shape));
      !done.ok()) {
    return done;
  }
  if (auto done = write_text(folder / "generation_config.json",
                             json_text({{"bos_token_id", config->eos_ids.front()},
                                        {"eos_token_id", config->eos_ids.front()}}) +
                                 "\n");
      !done.ok()) {
    return done;
  }
  if (auto done = write_tokenizer(folder, *config); !done.ok()) return done;
  return write_weights(folder / "model.safetensors", seed, *tensors, config->weight_type);
}

}  // namespace
}  // namespace lmtp

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make-checkpoint SHAPE[:SEED] FOLDER\n");
    return 1;
  }
  if (const auto made = lmtp::make_checkpoint(argv[1], argv[2]); !made.ok()) {
    std::fprintf(stderr, "make-checkpoint: %s\n", made.error().message.c_str());
    return 1;
  }
  return 0;
}
