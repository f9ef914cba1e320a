// NCCL's functions that ranks need. The library is loaded on first use, so that a machine without
// it serves; declared here as NCCL has them since 2.7, so that a build needs nothing of it.
#pragma once

#include <cstddef>

#include "lmtp/base/result.h"

namespace lmtp::model {

struct NcclApi {
  using Comm = void*;                 // ncclComm_t
  static constexpr int kFloat = 7;    // ncclFloat32
  static constexpr int kSuccess = 0;  // ncclSuccess; any other is an error

  int (*comm_init_all)(Comm* comms, int num_devices, const int* devices);
  int (*comm_abort)(Comm comm);
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, Comm comm,
                    void* stream);
  int (*send)(const void* from, std::size_t count, int type, int peer, Comm comm, void* stream);
  int (*receive)(void* to, std::size_t count, int type, int peer, Comm comm, void* stream);
  int (*group_start)();
  int (*group_end)();
  const char* (*error_text)(int result);
};

// Never unloaded. The error says where it was looked for, and what to do. Any thread.
Result<const NcclApi*> load_nccl();

}  // namespace lmtp::model
