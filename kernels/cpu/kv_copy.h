// kv_store and kv_copy in plain code, the same for every instruction set.
#pragma once

#include "kernels/attention.h"

namespace lmtp::kernels::plain {

void kv_store(Stream& stream, const KvStoreArgs& args);
void kv_copy(Stream& stream, const KvLayer& cache, const KvCopies& copies);

}  // namespace lmtp::kernels::plain
