// The ops of rows on a device, as the table of backend.cu takes them.
#pragma once

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "kernels/lora.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace lmtp::kernels::cuda {

void layer_norm(Stream& stream, const LayerNormArgs& args);
void rms_norm(Stream& stream, const RmsNormArgs& args);
void rotary_angles(Stream& stream, const RotaryAnglesArgs& args);
void rotary(Stream& stream, const RotaryArgs& args);
void gated_activation(Stream& stream, const GatedActivationArgs& args);
void activate_rows(Stream& stream, Matrix<float> x, Activation activation);
// Not there yet: whoever reads adapters refuses them on devices.
void lora(Stream& stream, const LoraArgs& args);
void soft_cap(Stream& stream, Matrix<float> x, float cap);
void embedding(Stream& stream, const EmbeddingArgs& args);
void gather_rows(Stream& stream, const GatherRowsArgs& args);
void kv_copy(Stream& stream, const KvLayer& cache, const KvCopies& copies);

}  // namespace lmtp::kernels::cuda
