#include "process/trace.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace lmtp::aici {

Result<std::unique_ptr<Trace>> Trace::open(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return Error{errno_code(errno), path + ": " + std::strerror(errno)};
  return std::unique_ptr<Trace>(new Trace(file));
}

void Trace::write(const std::string& suffix, const Json& command, const Json& answer) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::chrono::duration<double, std::milli> timestamp = now;
  const std::string line = wire_text({{"timestamp", timestamp.count()},
                                      {"suff", suffix},
                                      {"cmd", command},
                                      {"resp", answer}}) +
                           "\n";
  const std::lock_guard lock(mutex_);
  (void)std::fwrite(line.data(), 1, line.size(), file_.get());
  (void)std::fflush(file_.get());
}

std::string wire_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lmtp::aici
