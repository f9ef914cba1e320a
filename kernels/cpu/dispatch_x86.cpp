#include "backends.h"
#include "kernels/backend.h"

namespace lmtp::kernels {

std::vector<const Backend*> cpu_backends() {
  std::vector<const Backend*> result;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
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
