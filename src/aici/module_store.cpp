#include "module_store.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "hex.h"
#include "lmtp/base/installed.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "process/child_process.h"

namespace lmtp::aici {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIdDigits = 64;
constexpr std::size_t kTagBytesMax = 50;
constexpr std::size_t kHexTagBytesMax = 20;
constexpr std::size_t kLoadedMax = 64;
constexpr const char* kCompileFolder = "compile-";
// Tags of all, where one more is no admin's, and of one who is no admin.
constexpr std::size_t kTagsMax = 10'000;
constexpr std::size_t kTagsOfOneMax = 256;

bool is_module_id(std::string_view text) { return text.size() == kIdDigits && is_hex(text); }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_tag(std::string_view text) {
  const auto fits = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= kTagBytesMax && is_letter(text[0]) &&
         std::ranges::all_of(text, fits);
}

Error not_found(const std::string& controller) {
  return {ErrorCode::kNotFound, "controller: " + quoted_name(controller) +
                                    " is unknown; allowed is a tag, or the module_id of a "
                                    "controller that was uploaded"};
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Others that read see the whole file, or that before.
Result<void> write_file(const std::string& path, std::string_view text) {
  const fs::path folder = fs::path(path).parent_path();
  const auto failed = [&](const std::string& why) {
    return Error{ErrorCode::kUnavailable, "controller: " + path + " cannot be written: " + why};
  };
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failed(error.message());
  std::string temporary = (folder / "tmp_XXXXXX").string();
  const int file = mkstemp(temporary.data());
  if (file < 0) return failed(std::strerror(errno));
  std::size_t num_written = 0;
  while (num_written < text.size()) {
    const ssize_t num = ::write(file, text.data() + num_written, text.size() - num_written);
    if (num < 0 && errno == EINTR) continue;
    if (num <= 0) break;
    num_written += static_cast<std::size_t>(num);
  }
  const bool is_whole = num_written == text.size();
  const int why = errno;
  close(file);
  if (is_whole && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int last = is_whole ? errno : why;
  unlink(temporary.c_str());
  return failed(std::strerror(last));
}

// What a process that was killed has left.
void sweep(const std::string& cache) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache, error)) {
    const bool is_one = entry.path().filename().string().starts_with(kCompileFolder);
    const auto written = fs::last_write_time(entry, error);
    if (is_one && !error && fs::file_time_type::clock::now() - written > std::chrono::hours(1)) {
      fs::remove_all(entry, error);
    }
  }
}

std::int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::string text_of(const TagInfo& info) {
  OrderedJson text = {{"tag", info.tag},
                      {"module_id", info.module_id},
                      {"updated_at", info.updated_at},
                      {"updated_by", info.updated_by},
                      {"wasm_size", info.wasm_size},
                      {"compiled_size", info.compiled_size}};
  text["owner"] = owner_of(info);
  return text.dump();
}

std::optional<TagInfo> read_tag(const std::string& path) {
  const Result<Json> object = read_json_object(path);
  if (!object) return {};
  const auto text = [&](std::string_view key) {
    const std::string* const found = find_json_text(*object, key);
    return found == nullptr ? std::string() : *found;
  };
  const auto number = [&](std::string_view key) {
    const Json* const found = find_json(*object, key);
    return found == nullptr ? 0 : json_integer(*found).value_or(0);
  };
  TagInfo info{text("tag"),        text("module_id"),   number("updated_at"),
               text("updated_by"), number("wasm_size"), number("compiled_size"),
               text("owner")};
  if (!is_tag(info.tag) || !is_module_id(info.module_id)) return {};
  // Without an owner in its file, KEY.NAME is KEY's, whoever has set it last.
  const std::size_t dot = info.tag.rfind('.');
  if (info.owner.empty() && dot != std::string::npos) info.owner = info.tag.substr(0, dot);
  return info;
}

}  // namespace

std::string tag_obstacle(const std::string& tag, const Auth& auth) {
  if (tag.size() > kTagBytesMax) {
    return "it is too long; allowed are " + std::to_string(kTagBytesMax) + " bytes";
  }
  if (!is_tag(tag)) {
    return "it is no name; allowed is a letter, then letters, digits, '_', '-' and '.'";
  }
  if (tag.size() > kHexTagBytesMax && is_hex(tag)) return "it looks like a module_id";
  if (!auth.is_admin && tag.substr(0, tag.rfind('.') + 1) != auth.user + ".") {
    return "it is not yours; allowed is " + quoted_name(auth.user + ".") +
           " and a name without a dot";
  }
  return {};
}

std::string ModuleStore::compiled_path(const std::string& id) const {
  return folder_ + "/" + id + "-" + wasm::kVersion + ".cwasm";
}

// By a process of its own, which is killed where it takes too long.
Result<void> ModuleStore::compile_apart(const std::string& wasm, const std::string& compiled) {
  const auto program = installed_path(wasm::kCompiler);
  if (!program) return program.error();
  const auto until = std::chrono::steady_clock::now() + compile_time_;
  const Result<std::string> said = output_of({program->string(), wasm, compiled}, compile_time_);
  if (!said) return said.error();
  if (*said == wasm::kCompiled) return {};
  std::string why = *said;
  if (why.starts_with(wasm::kUnavailable)) {  // whatever the module is
    return Error{ErrorCode::kUnavailable, "controller: " + why.substr(1)};
  }
  if (why.empty() && std::chrono::steady_clock::now() < until) {
    why = "its compiler has ended: the module takes too much memory; allowed are smaller ones";
  } else if (why.empty()) {
    why = "the module takes longer than " + std::to_string(compile_time_.count()) +
          " ms to compile; allowed are smaller ones";
  }
  return Error{ErrorCode::kInvalid, "controller: " + why};
}

ModuleStore::Loaded ModuleStore::compile(const std::string& id, const std::string& wasm) {
  sweep(folder_);
  std::error_code error;
  fs::create_directories(folder_, error);
  std::string folder = folder_ + "/" + kCompileFolder + "XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 "controller: " + folder + " cannot be made: " +
                     (error ? error.message() : std::string(std::strerror(errno)))};
  }
  const std::string module = folder + "/module.wasm";
  const std::string path = folder + "/module.cwasm";
  Result<void> done = write_file(module, wasm);
  if (done) done = compile_apart(module, path);
  const std::optional<std::string> compiled = done ? read_file(path) : std::nullopt;
  if (compiled) fs::rename(path, compiled_path(id), error);
  const bool is_kept = compiled && !error;
  fs::remove_all(folder, error);
  if (!done) return done.error();
  if (!is_kept) return Error{ErrorCode::kUnavailable, "controller: " + path + " cannot be kept"};
  return engine_->deserialize(wasm, *compiled);
}

Result<ModuleInfo> ModuleStore::upload(const std::string& wasm) {
  const auto begin = std::chrono::steady_clock::now();
  ModuleInfo info;
  info.module_id = sha256_hex(wasm);
  info.wasm_size = static_cast<std::int64_t>(wasm.size());
  if (!load(info.module_id)) {
    const Result<std::shared_ptr<const wasm::Module>> module = compile(info.module_id, wasm);
    if (!module) return module.error();
    if (Result<void> done = write_file(wasm_path(info.module_id), wasm); !done) return done.error();
  }
  info.compiled_size = size_of(compiled_path(info.module_id));
  info.compile_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::steady_clock::now() - begin)
                        .count();
  return info;
}

// Compiled before by this wasmtime, or now.
ModuleStore::Loaded ModuleStore::load(const std::string& id) {
  if (auto found = loaded(id)) return found;
  const std::optional<std::string> wasm = read_file(wasm_path(id));
  if (!wasm || sha256_hex(*wasm) != id) return not_found(id);
  Result<std::shared_ptr<const wasm::Module>> module = not_found(id);
  if (const std::optional<std::string> compiled = read_file(compiled_path(id)); compiled) {
    module = engine_->deserialize(*wasm, *compiled);
  }
  if (!module) module = compile(id, *wasm);
  if (!module) return module;
  const std::lock_guard lock(loaded_mutex_);
  if (loaded_.size() >= kLoadedMax) loaded_.clear();
  loaded_[id] = *module;
  return module;
}

std::shared_ptr<const wasm::Module> ModuleStore::loaded(const std::string& id) const {
  const std::lock_guard lock(loaded_mutex_);
  const auto found = loaded_.find(id);
  return found == loaded_.end() ? nullptr : found->second;
}

std::shared_ptr<const wasm::Module> ModuleStore::find_loaded(const std::string& controller) const {
  if (is_module_id(controller)) return loaded(controller);
  const auto info = is_tag(controller) ? read_tag(tag_path(controller)) : std::nullopt;
  return info ? loaded(info->module_id) : nullptr;
}

Result<std::vector<TagInfo>> ModuleStore::set_tags(const std::string& module_id,
                                                   const std::vector<std::string>& tags,
                                                   const Auth& auth) {
  if (!is_module_id(module_id)) {
    return Error{ErrorCode::kInvalid, "module_id: it is no SHA-256; allowed are 64 hex digits"};
  }
  if (const auto module = load(module_id); !module) return module.error();
  for (const std::string& tag : tags) {
    const std::string obstacle = tag_obstacle(tag, auth);
    if (!obstacle.empty()) {
      return Error{ErrorCode::kInvalid, "tags: " + quoted_name(tag) + ": " + obstacle};
    }
  }
  if (const Result<void> room = check_room(tags, auth); !room) return room.error();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::vector<TagInfo> infos;
  for (const std::string& tag : tags) {
    const std::optional<TagInfo> before = read_tag(tag_path(tag));
    infos.push_back({tag, module_id, std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                     auth.user, size_of(wasm_path(module_id)), size_of(compiled_path(module_id)),
                     before ? owner_of(*before) : auth.user});
    if (Result<void> done = write_file(tag_path(tag), text_of(infos.back())); !done) {
      return done.error();
    }
  }
  return infos;
}

// Whether these may be set, as far as others have tags. An admin's always fit.
Result<void> ModuleStore::check_room(const std::vector<std::string>& tags, const Auth& auth) const {
  if (auth.is_admin) return {};
  std::size_t num_new = 0;
  for (const std::string& tag : std::set<std::string>(tags.begin(), tags.end())) {
    const std::optional<TagInfo> before = read_tag(tag_path(tag));
    if (!before) {
      ++num_new;
    } else if (owner_of(*before) != auth.user) {
      return Error{ErrorCode::kInvalid, "tags: " + quoted_name(tag) +
                                            ": it was set by another; allowed are other names"};
    }
  }
  if (num_new == 0) return {};
  const auto full = [](const std::string& whose, std::size_t allowed) {
    return Error{ErrorCode::kInvalid, "tags: there are too many" + whose + "; allowed are " +
                                          std::to_string(allowed) + "; untag what is not needed"};
  };
  if (num_tags(auth.user + ".") + num_new > kTagsOfOneMax) {
    return full(" of this key", kTagsOfOneMax);
  }
  return num_tags("") + num_new > kTagsMax ? full("", kTagsMax) : Result<void>();
}

// Whose names are BEGINNING and what has no dot; all where that is empty.
std::size_t ModuleStore::num_tags(const std::string& beginning) const {
  std::error_code error;
  std::size_t num = 0;
  for (const auto& entry : fs::directory_iterator(folder_ + "/tags", error)) {
    const std::string name = entry.path().stem().string();
    num += beginning.empty() || name.substr(0, name.rfind('.') + 1) == beginning ? 1 : 0;
  }
  return num;
}

Result<std::vector<TagInfo>> ModuleStore::remove_tags(const std::vector<std::string>& tags,
                                                      const Auth& auth) {
  std::vector<TagInfo> infos;
  for (const std::string& tag : tags) {
    std::optional<TagInfo> info = is_tag(tag) ? read_tag(tag_path(tag)) : std::nullopt;
    if (!info || (!auth.is_admin && owner_of(*info) != auth.user)) {
      return Error{ErrorCode::kInvalid,
                   "tags: " + quoted_name(tag) + ": is no tag of yours; allowed are those"};
    }
    infos.push_back(std::move(*info));
  }
  for (const TagInfo& info : infos) {
    std::error_code error;
    fs::remove(tag_path(info.tag), error);
    if (error) {
      return Error{ErrorCode::kUnavailable,
                   "controller: " + tag_path(info.tag) + " cannot be removed: " + error.message()};
    }
  }
  return infos;
}

Result<std::vector<TagInfo>> ModuleStore::get_tags(const Auth& auth) const {
  std::vector<TagInfo> infos;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_ + "/tags", error)) {
    if (entry.path().extension() != ".json") continue;
    std::optional<TagInfo> info = read_tag(entry.path());
    if (info && may_see(auth, *info)) infos.push_back(std::move(*info));
    if (infos.size() >= kTagsMax) break;
  }
  std::ranges::stable_sort(infos, std::greater<>(), &TagInfo::updated_at);
  return infos;
}

Result<std::shared_ptr<const wasm::Module>> ModuleStore::find(const std::string& controller) {
  if (is_module_id(controller)) return load(controller);
  if (!is_tag(controller)) return not_found(controller);
  const std::optional<TagInfo> info = read_tag(tag_path(controller));
  if (!info) return not_found(controller);
  return load(info->module_id);
}

}  // namespace lmtp::aici
