#include "keygen.h"

#include <cstdio>

#include "lmtp/server/fresh_key.h"

namespace lmtp::tools {

int print_fresh_key(const std::vector<std::string>& words) {
  constexpr int kMistake = 2;
  if (!words.empty() && (words.front() == "--help" || words.front() == "-h")) {
    std::puts(
        "lmtp-serve keygen [NAME] prints a fresh API key and, in the next line, its element of the "
        "file of\n--api-key-file, for a client that is called NAME [client].");
    return 0;
  }
  if (words.size() > 1 || (!words.empty() && words.front().starts_with('-'))) {
    std::fputs("lmtp-serve: keygen: one NAME is needed, or none; it does not begin with '-'\n",
               stderr);
    return kMistake;
  }
  const auto fresh = server::make_fresh_key(words.empty() ? "client" : words.front());
  if (!fresh) {
    std::fprintf(stderr, "lmtp-serve: keygen: %s\n", fresh.error().message.c_str());
    return kMistake;
  }
  std::fputs(
      "The first line is the key, for the client; it is kept nowhere. The second is for the server:"
      " an element of\n{\"keys\": [...]} in the file of --api-key-file, to which admin,"
      " max_streams, tokens_per_minute\nand models may be added.\n",
      stderr);
  std::printf("%s\n%s\n", fresh->key.c_str(), fresh->entry.c_str());
  return 0;
}

}  // namespace lmtp::tools
