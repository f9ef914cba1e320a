#include "lmtp/catalog/device_choice.h"

#include <charconv>
#include <string_view>

namespace lmtp::catalog {

Result<std::optional<int>> parse_device(const std::string& name) {
  if (name == "cpu") return std::optional<int>();
  if (name == "cuda") return std::optional<int>(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    int number = -1;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0) return std::optional<int>(number);
  }
  return Error{ErrorCode::kInvalid,
               "--device: '" + name + "' is unknown; allowed are cpu, cuda and cuda:N"};
}

Result<model::Transport> parse_communicator(const std::string& name, int num_ranks,
                                            bool on_device) {
  if (name == "auto" || name == "local") return model::Transport::kLocal;
  if (name != "gloo" && name != "nccl") {
    return Error{ErrorCode::kInvalid, "--communicator: '" + name +
                                          "' is unknown; allowed are auto, local, gloo and nccl"};
  }
  if (name == "nccl" && !on_device) {
    return Error{ErrorCode::kInvalid,
                 "--communicator: nccl is of CUDA devices; give --cuda, or on a CPU local or gloo"};
  }
  if (num_ranks > 1) return name == "gloo" ? model::Transport::kGloo : model::Transport::kNccl;
  return Error{ErrorCode::kInvalid,
               "--communicator: a model that is not divided has no ranks to connect; give "
               "--tensor-parallel-size, or leave it out"};
}

Result<void> check_communicator(const std::string& name, int num_ranks, bool on_device) {
  const Result<model::Transport> transport = parse_communicator(name, num_ranks, on_device);
  if (!transport) return transport.error();
  if (*transport == model::Transport::kLocal) return {};
  const Result<void> there = model::check_transport(*transport, num_ranks);
  if (there) return {};
  return Error{there.error().code, "--communicator: " + there.error().message};
}

}  // namespace lmtp::catalog
