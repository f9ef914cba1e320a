// The table of one instruction set's ops; included last by backend_*.cpp.
#pragma once

#include "kernels/backend.h"
#include "kv_copy.h"
#include "linear_shape.h"
#include "plain_ops.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline Backend make_backend(const char* name) {
  return {.name = name,
          .device = nullptr,
          .packed_bytes = plain::packed_bytes,
          .pack = plain::pack,
          .pack_codes = nullptr,
          .fill_random = plain::fill_random,
          .reserve = plain::reserve,
          .linear = linear,
          .linear_shape = linear_shape_for(kRegisters, l2_cache_bytes()),
          .lora = lora,
          .layer_norm = layer_norm,
          .rms_norm = rms_norm,
          .rotary_angles = plain::rotary_angles,
          .rotary = rotary,
          .gated_activation = gated_activation,
          .activate = activate_rows,
          .soft_cap = soft_cap,
          .embedding = embedding,
          .gather_rows = gather_rows,
          .kv_store = plain::kv_store,
          .kv_copy = plain::kv_copy,
          .paged_attention = paged_attention,
          .sample = sample,
          .step_batch = plain::step_batch,
          .drawn_ids = plain::drawn_ids,
          .route = plain::route,
          .expert_rows = plain::expert_rows,
          .expert_linear = plain::expert_linear,
          .combine = combine};
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
