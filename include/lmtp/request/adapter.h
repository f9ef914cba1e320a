// A LoRA adapter as a request takes it along.
#pragma once

#include <string>
#include <utility>

namespace lmtp {

// An adapter by the name under which it is served, and where it lies.
struct AdapterSource {
  std::string name;
  std::string folder;
};

// Read, and checked against its model. Immutable; any thread. Owner: the registry, while it is
// served by its name, and requests and sequences that use it: these end with it, whatever has
// become of the name.
class Adapter {
 public:
  // num_blocks: of the KV cache, that hold its weights while it is used; >= 1.
  Adapter(std::string name, int num_blocks) : name_(std::move(name)), num_blocks_(num_blocks) {}
  virtual ~Adapter() = default;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const std::string& name() const { return name_; }
  int num_blocks() const { return num_blocks_; }

 private:
  const std::string name_;
  const int num_blocks_;
};

}  // namespace lmtp
