// What gpu-bench needs of a device beside its ops, on the emulation.
#include "bench/probe_device.h"
#include "bench/read_device.h"
#include "cuda/backend.h"
#include "kernels/device.h"

namespace lmtp {

kernels::cuda::Probe kernels::cuda::probe(int) {
  return {.available = true, .reason = {}, .name = "the emulation"};
}

const kernels::Backend& kernels::cuda::backend() { return device_backend(); }

void bench::probe_device(const kernels::Stream&, const ProbeFigure&) {}
void bench::probe_chain(kernels::Stream&, const ProbeFigure&) {}
void bench::read_on_device(const kernels::Stream&, const void*, std::size_t, const ReadShape&) {}

}  // namespace lmtp
