#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lmtp::model {

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{path + ": " + std::strerror(errno)};
  }
  struct stat status = {};
  const bool known = fstat(descriptor, &status) == 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data =
      known && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  if (data == MAP_FAILED) {
    return Error{path + ": empty, or cannot be mapped"};
  }
  return std::unique_ptr<MappedFile>(new MappedFile(data, size));
}

MappedFile::~MappedFile() { munmap(data_, size_); }

}  // namespace lmtp::model
