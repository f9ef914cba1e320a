#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends.h"
#include "kernels/backend.h"

namespace lmtp::kernels {
namespace {

// gcc 12's __builtin_cpu_supports does not know AMX, and Linux allows a process to use tiles only
// on request (Documentation/arch/x86/xstate.rst).
bool request_amx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  // AMX-BF16, AMX-TILE and AMX-INT8; the compilers do not name them alike.
  constexpr unsigned kAll = 1U << 22 | 1U << 24 | 1U << 25;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAll) != kAll) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::vector<const Backend*> cpu_backends() {
  std::vector<const Backend*> result;
  if (LMTP_HAS_AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
      if (request_amx()) result.push_back(&amx_backend());
      result.push_back(&avx512_dot_backend());
    }
    result.push_back(&avx512_backend());
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    result.push_back(&avx2_backend());
  }
  result.push_back(&generic_backend());
  return result;
}

}  // namespace lmtp::kernels
