// Sets an environment variable and restores it at the end of a test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace lmtp::testing {

// Owner: one test, while no other thread reads the environment.
class ScopedEnv {
 public:
  // Without a value the variable is unset.
  ScopedEnv(std::string name, std::optional<std::string> value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    set(value);
  }
  ~ScopedEnv() { set(old_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  const std::string name_;
  std::optional<std::string> old_;
};

}  // namespace lmtp::testing
