#include "llguidance_library.h"
#include "lmtp/base/installed.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmtp::constraint {
namespace {

constexpr const char* kLibraryFolder = "lib/lmtp";  // beside the program's bin/
// The library names functions of Python that it calls only inside Python; here they lead nowhere.
constexpr const char* kStubsFile = "/liblmtp_python_stubs.so";
constexpr const char* kLibraryFile = "/libllguidance.so";

Error cannot_load(const std::string& why) {
  return {ErrorCode::kUnavailable, "llguidance cannot be loaded (" + why +
                                       "): install all of a build with -DLMTP_GRAMMAR=ON"};
}

// Sets `function` to the symbol of that name; what is missing is noted in `missing`.
template <typename Function>
void look_up(void* library, const char* name, Function& function, std::string& missing) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  function = reinterpret_cast<Function>(symbol);
}

// Whether it makes the right mask of three tokens: a wrong structure would show here.
Result<void> check_mask(const llg::Api& api) {
  constexpr std::array<std::uint32_t, 3> kLengths = {1, 1, 4};
  constexpr std::string_view kBytes = "ab\xff</>";
  llg::TokenizerInit init;
  init.vocab_size = kLengths.size();
  init.tok_eos = 2;
  init.token_lens = kLengths.data();
  init.token_bytes = reinterpret_cast<const std::uint8_t*>(kBytes.data());
  init.use_approximate_greedy_tokenize_fn = true;
  std::array<char, 256> error{};
  llg::Tokenizer* const table = api.new_tokenizer_v2(&init, error.data(), error.size());
  if (table == nullptr) return cannot_load(std::string("a test of it failed: ") + error.data());
  llg::ConstraintInit grammar;
  api.constraint_init_set_defaults(&grammar, table);
  llg::Matcher* const matcher = api.new_matcher(&grammar, "regex", "b?");
  std::uint32_t mask = 0;
  const bool is_right = api.matcher_compute_mask_into(matcher, &mask, sizeof(mask)) == 0 &&
                        mask == 0b110 && api.matcher_consume_token(matcher, 1) == 0 &&
                        api.matcher_is_stopped(matcher);
  api.free_matcher(matcher);
  api.free_tokenizer(table);
  if (!is_right) return cannot_load("a test of it gave a wrong mask");
  return {};
}

Result<llg::Api> load() {
  const auto folder = installed_path(kLibraryFolder);
  if (!folder) return folder.error();
  return load_llguidance_from(*folder);
}

}  // namespace

Result<llg::Api> load_llguidance_from(const std::string& folder) {
  if (dlopen((folder + kStubsFile).c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return cannot_load(dlerror());
  }
  void* const library = dlopen((folder + kLibraryFile).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return cannot_load(dlerror());
  llg::Api api{};
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    look_up(library, name, function, missing);
  };
  find("llg_get_version", api.get_version);
  find("llg_new_tokenizer_v2", api.new_tokenizer_v2);
  find("llg_free_tokenizer", api.free_tokenizer);
  find("llg_constraint_init_set_defaults", api.constraint_init_set_defaults);
  find("llg_new_matcher", api.new_matcher);
  find("llg_clone_matcher", api.clone_matcher);
  find("llg_free_matcher", api.free_matcher);
  find("llg_matcher_get_error", api.matcher_get_error);
  find("llg_matcher_compute_mask_into", api.matcher_compute_mask_into);
  find("llg_matcher_compute_ff_tokens", api.matcher_compute_ff_tokens);
  find("llg_matcher_validate_tokens", api.matcher_validate_tokens);
  find("llg_matcher_consume_token", api.matcher_consume_token);
  find("llg_matcher_rollback", api.matcher_rollback);
  find("llg_matcher_is_stopped", api.matcher_is_stopped);
  if (!missing.empty()) return cannot_load("it lacks " + missing);
  // "llguidance@1.9.1 derivre@0.3.8": another one may have other structures.
  const std::string_view version = api.get_version();
  if (!version.starts_with(std::string("llguidance@") + llg::kVersion + " ")) {
    return cannot_load("it is " + std::string(version) + "; needed is " + llg::kVersion);
  }
  if (Result<void> checked = check_mask(api); !checked) return checked.error();
  return api;
}

Result<const llg::Api*> llguidance() {
  static const Result<llg::Api> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

}  // namespace lmtp::constraint
