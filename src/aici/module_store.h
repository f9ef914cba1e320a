// The controllers that were uploaded, and their names, in a folder:
//   ID.wasm               as uploaded; ID is its SHA-256
//   ID-VERSION.cwasm      compiled by this wasmtime
//   tags/NAME.json        what a name means, as AICI's own runtime writes it
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"
#include "lmtp/wasm/wasm.h"

namespace lmtp::aici {

// Owner: one thread at a time, but for find_loaded(). It compiles, reads and writes, for seconds
// where a module is large.
class ModuleStore {
 public:
  // compile_time: of a module.
  ModuleStore(std::shared_ptr<wasm::Engine> engine, std::string folder,
              std::chrono::milliseconds compile_time)
      : engine_(std::move(engine)), folder_(std::move(folder)), compile_time_(compile_time) {}

  Result<ModuleInfo> upload(const std::string& wasm);
  Result<std::vector<TagInfo>> set_tags(const std::string& module_id,
                                        const std::vector<std::string>& tags, const Auth& auth);
  Result<std::vector<TagInfo>> remove_tags(const std::vector<std::string>& tags, const Auth& auth);
  Result<std::vector<TagInfo>> get_tags(const Auth& auth) const;
  // controller: a tag or a module's id.
  Result<std::shared_ptr<const wasm::Module>> find(const std::string& controller);
  // The same, of those that were used lately; null: it is to be sought. Any thread.
  std::shared_ptr<const wasm::Module> find_loaded(const std::string& controller) const;

 private:
  std::string wasm_path(const std::string& id) const { return folder_ + "/" + id + ".wasm"; }
  std::string compiled_path(const std::string& id) const;
  std::string tag_path(const std::string& tag) const { return folder_ + "/tags/" + tag + ".json"; }
  using Loaded = Result<std::shared_ptr<const wasm::Module>>;
  Loaded load(const std::string& id);
  std::shared_ptr<const wasm::Module> loaded(const std::string& id) const;
  Loaded compile(const std::string& id, const std::string& wasm);
  Result<void> compile_apart(const std::string& wasm, const std::string& compiled);
  std::size_t num_tags(const std::string& beginning) const;
  Result<void> check_room(const std::vector<std::string>& tags, const Auth& auth) const;

  const std::shared_ptr<wasm::Engine> engine_;
  const std::string folder_;
  const std::chrono::milliseconds compile_time_;
  mutable std::mutex loaded_mutex_;  // guards what follows
  // Those that were used; the last of kLoadedMax.
  std::map<std::string, std::shared_ptr<const wasm::Module>> loaded_;
};

// Why `tag` is no name that `auth` may give; empty: it is one.
std::string tag_obstacle(const std::string& tag, const Auth& auth);

}  // namespace lmtp::aici
