#include "lmtp/hub/model_source.h"
#include "lmtp/base/text.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "hub_cache.h"
#include "hub_environment.h"
#include "local_model.h"
#include "model_files.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDemo = "demo";
constexpr const char* kRandom = "random";
constexpr const char* kRandomPrefix = "random:";
constexpr const char* kAuto = "auto";
constexpr const char* kDefaultShape = "gpt2";
constexpr int kFoldersUpMax = 4;  // from bin/ to the root of a source tree

void add_name(ModelSource& source, std::string_view name) {
  if (name.empty() || name == "." || name == "..") return;
  if (std::find(source.names.begin(), source.names.end(), name) != source.names.end()) return;
  source.names.emplace_back(name);
}

Result<ModelSource> from_random(std::string_view model) {
  ModelSource source;
  source.kind = SourceKind::kRandom;
  source.name = model;
  source.shape = kDefaultShape;
  std::string_view rest = model.substr(std::string_view(kRandom).size());
  if (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t colon = rest.find(':');
    source.shape = rest.substr(0, colon);
    if (colon != std::string_view::npos) {
      const std::string_view seed = rest.substr(colon + 1);
      const auto [end, error] =
          std::from_chars(seed.data(), seed.data() + seed.size(), source.seed);
      if (error != std::errc() || end != seed.data() + seed.size()) {
        return Error{ErrorCode::kNotFound,
                     "'" + std::string(model) + "': the seed '" + std::string(seed) +
                         "' is not a whole number of 64 bits; random[:SHAPE[:SEED]] is allowed"};
      }
    }
    if (source.shape.empty()) {
      return Error{ErrorCode::kNotFound,
                   "'" + std::string(model) + "': random[:SHAPE[:SEED]] is allowed"};
    }
  }
  add_name(source, source.name);
  add_name(source, kRandom);
  return source;
}

// As what a file is called, without links: in the hub's cache they lead to names that are hashes.
Result<ModelSource> from_gguf(std::string_view model, const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(fs::absolute(path).parent_path(), error);
  if (error) return Error{ErrorCode::kNotFound, path.string() + ": " + error.message()};
  ModelSource source;
  source.name = model;
  source.folder = (folder / path.filename()).string();
  add_name(source, source.name);
  add_name(source, source.folder);
  add_name(source, last_component(model));
  add_name(source, path.stem().string());
  return source;
}

// The GGUF file of a folder that holds one and no other model.
Result<fs::path> find_gguf(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_gguf_file(entry.path())) found.push_back(entry.path());
  }
  if (found.size() == 1) return found.front();
  return Error{
      ErrorCode::kNotFound,
      folder.string() + " holds no config.json" +
          (found.empty()
               ? ": give the folder of a Hugging Face style model, or a GGUF file"
               : ", and " + std::to_string(found.size()) + " GGUF files: name one of them")};
}

Result<ModelSource> from_folder(std::string_view name, const std::string& folder, Purpose purpose) {
  std::error_code error;
  const fs::path canonical = fs::canonical(folder, error);
  if (error) return Error{ErrorCode::kNotFound, folder + ": " + error.message()};
  if (!is_file(canonical / "config.json")) {
    const auto gguf = find_gguf(canonical);
    if (gguf) return from_gguf(name, *gguf);
    if (purpose == Purpose::kServe) return gguf.error();
  }
  ModelSource source;
  source.name = name;
  source.folder = canonical.string();
  add_name(source, source.name);
  add_name(source, source.folder);
  return source;
}

Result<std::string> find_demo_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return Error{ErrorCode::kNotFound,
                 "the demo model cannot be looked for: /proc/self/exe: " + error.message()};
  }
  const fs::path bin = program.parent_path();
  std::vector<fs::path> places = {bin.parent_path() / "share/lmtp/models/demo"};
  fs::path up = bin;
  for (int i = 0; i < kFoldersUpMax && up.has_relative_path(); ++i) {
    up = up.parent_path();
    places.push_back(up / "models/demo");
  }
  std::string looked_at;
  for (const fs::path& place : places) {
    if (is_folder(place)) return place.string();
    looked_at += (looked_at.empty() ? "" : ", ") + place.string();
  }
  return Error{ErrorCode::kNotFound, "the demo model is not there (looked at " + looked_at +
                                         "): install it with the program, or give another model"};
}

Result<ModelSource> from_demo(Purpose purpose) {
  const auto folder = find_demo_folder();
  if (!folder) return folder.error();
  return from_folder(kDemo, *folder, purpose);
}

Result<ModelSource> from_path(std::string_view model, Purpose purpose) {
  auto source = from_folder(model, std::string(model), purpose);
  if (!source) return source;
  add_name(*source, last_component(model));
  add_name(*source, last_component(source->folder));
  return source;
}

Result<ModelSource> from_cache(std::string_view model, Purpose purpose) {
  const auto name = parse_hub_name(model);
  const std::string nowhere = "'" + std::string(model) +
                              "' is neither a folder, nor 'demo', nor 'random', nor in the local "
                              "Hugging Face cache";
  if (!name) return Error{name.error().code, nowhere + "; and " + name.error().message};
  const std::string cache = cache_folder();
  if (cache.empty()) return Error{ErrorCode::kNotFound, nowhere + " (HOME is not set)"};
  const auto snapshot = find_snapshot(cache, *name);
  if (!snapshot) {
    return Error{snapshot.error().code,
                 nowhere + " (" + cache + ": " + snapshot.error().message + ")"};
  }
  return from_snapshot(model, *name, *snapshot, purpose);
}

bool looks_like_a_path(std::string_view model) {
  return model.front() == '/' || model.front() == '.' || model.front() == '~' ||
         model.back() == '/';
}

}  // namespace

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_gguf_file(const fs::path& path) { return path.extension() == ".gguf" && is_file(path); }

bool may_be_on_hub(std::string_view model) {
  return !model.empty() && model != kDemo && model != kRandom && model != kAuto &&
         !model.starts_with(kRandomPrefix) && !is_folder(model) && !is_file(model) &&
         !looks_like_a_path(model);
}

Result<ModelSource> from_snapshot(std::string_view model, const HubName& name,
                                  const std::string& snapshot, Purpose purpose) {
  if (const std::string missing = missing_in(snapshot, purpose); !missing.empty()) {
    return Error{ErrorCode::kNotFound, "'" + std::string(model) +
                                           "' is only partly in the local Hugging Face cache: " +
                                           snapshot + " lacks " + missing};
  }
  auto source = from_folder(model, snapshot, purpose);
  if (!source) return source;
  add_name(*source, name.repo);
  add_name(*source, last_component(name.repo));
  return source;
}

Result<ModelSource> resolve_model(std::string_view model, Purpose purpose) {
  if (model.empty()) {
    return Error{ErrorCode::kNotFound, "no model is named: give a folder, 'demo', or a name"};
  }
  if (model == kDemo) return from_demo(purpose);
  if (model == kRandom || model.starts_with(kRandomPrefix)) return from_random(model);
  if (is_folder(model)) return from_path(model, purpose);
  if (is_gguf_file(model)) return from_gguf(model, model);
  if (is_file(model)) {
    return Error{
        ErrorCode::kNotFound,
        "'" + std::string(model) + "' is a file, and no GGUF file: give the folder that holds it"};
  }
  if (looks_like_a_path(model)) {
    return Error{ErrorCode::kNotFound, "'" + std::string(model) + "': no such folder"};
  }
  if (model == kAuto) {
    return Error{
        ErrorCode::kNotFound,
        "'auto' is no model by itself: name one (a folder, 'demo', 'random', or a name on the "
        "Hugging Face hub)"};
  }
  return from_cache(model, purpose);
}

bool matches_any(std::string_view model, const std::vector<std::string>& patterns) {
  const auto name = parse_hub_name(model);
  return name && std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
           return fnmatch(pattern.c_str(), name->repo.c_str(), 0) == 0;
         });
}

}  // namespace lmtp::hub
