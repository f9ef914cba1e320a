// DeviceSampling: from rows of logits on a device to a step's result. The sampling parameters of
// each row are uploaded, and one small record for each comes back. Two steps may be in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"
#include "step_sampling.h"

namespace lmtp::agent {

// A cache of logit biases on the device: LMQL sends the same mask of thousands of entries with
// every chunk, and equal ones are one object (protocol::BiasCache). Owner: DeviceSampling.
class DeviceBiases {
 public:
  // Where a bias lies on the device: num_ids ids, then as many values.
  struct Location {
    const std::int32_t* ids = nullptr;
    const float* values = nullptr;
    std::int64_t num_ids = 0;
  };

  // Allocates num_bytes() on the device. Throws DeviceError.
  DeviceBiases(kernels::Stream& stream, int vocab_size, int rows_max);

  // Of rows_max biases that are all different and have an entry for every token: the worst that
  // clients can send must not make a step fail.
  static std::int64_t num_bytes(int vocab_size, int rows_max);

  // Uploads the biases that are not on the device yet. Locations are valid until the next call.
  // REQUIRES: rows_max biases at most; the copies queued by the last call are done.
  void upload(std::span<const std::shared_ptr<const LogitBias>> biases);
  // REQUIRES: the last upload() was given this bias.
  Location at(const LogitBias& bias) const;

 private:
  struct Entry {
    std::weak_ptr<const LogitBias> bias;  // expired: the key's address may belong to another one
    std::size_t offset = 0;
  };

  bool holds(const std::shared_ptr<const LogitBias>& bias) const;
  std::int64_t num_ids(const LogitBias& bias) const;
  std::size_t bytes_of(const LogitBias& bias) const;

  kernels::Stream& stream_;
  const int vocab_size_;
  kernels::Memory memory_;  // filled from its front; when it is full, all are dropped
  std::size_t used_bytes_ = 0;
  kernels::Memory pinned_;  // staging for uploads; holds at least one bias
  std::unordered_map<const LogitBias*, Entry> entries_;
};

// Tokens that are being copied back from the device.
struct PendingTokens {
  struct Row {
    LogitTarget target;
    bool lists_top = true;
  };
  std::vector<Row> rows;
  int top_stride = 0;
  const std::byte* out = nullptr;  // in host memory: records, then top tokens
};

// Writes the tokens to the result's rows. A row whose logits are not numbers becomes the error of
// its plan row alone. REQUIRES: the stream has executed the copy.
void read_tokens(const PendingTokens& tokens, scheduler::StepResult& result);

// Sampling parameters of rows of logits, on the device.
struct SampleRows {
  const kernels::SampleRow* rows = nullptr;
  const std::int32_t* positions = nullptr;  // of the input token of each row
};

// Owner: an agent; one thread.
class DeviceSampling {
 public:
  // `stream` must outlive this. Allocates num_bytes() on the device. Throws DeviceError.
  DeviceSampling(kernels::Stream& stream, int vocab_size, const BatchLimits& batch);

  static std::int64_t num_bytes(int vocab_size, const BatchLimits& batch);

  // Makes a step's sample rows, one for each target, and uploads the biases that are not on the
  // device yet. REQUIRES: no step that uses other biases than this one is in flight.
  void prepare(const scheduler::StepPlan& plan, const std::vector<LogitTarget>& targets);
  // The sample rows made by prepare(), on the host: a ResidentBatch uploads them itself.
  std::span<const kernels::SampleRow> rows() const { return rows_; }
  // Uploads the sample rows (unless a ResidentBatch does) and the token counts (always); the Upload
  // must have room for rows_size() and counts_size() bytes.
  std::size_t rows_size() const { return Upload::size_of(rows_) + Upload::size_of(positions_); }
  SampleRows add_rows(Upload& upload) const;
  std::size_t counts_size() const { return Upload::size_of(counts_); }
  void add_counts(Upload& upload) { uploaded_counts_ = upload.add(counts_); }
  // Queues the sampling for the targets [first, first + logits.rows). `rows`: of all targets.
  // logits: [rows, vocab_size] on the device, edited in place. REQUIRES: the upload was sent.
  void choose(const SampleRows& rows, std::size_t first, kernels::Matrix<float> logits);
  // Queues the copy of the tokens to the host, where they are valid until the next fetch() but one.
  // REQUIRES: choose() was called for all targets; the copy of the fetch() before the last is done.
  PendingTokens fetch();

  // On the device, one for each target of the last choose(); valid for ops queued before the next
  // choose(). A prepare() for at most as many targets and top tokens does not move them.
  const kernels::SampleRecord* records() const {
    return reinterpret_cast<const kernels::SampleRecord*>(out_.device());
  }

 private:
  // Biases made of masks and of the biases that requests had besides, by both.
  struct MaskedBias {
    std::shared_ptr<const TokenMask> mask;
    std::shared_ptr<const LogitBias> bias;
    std::shared_ptr<const LogitBias> merged;
  };
  using MaskedBiases = std::map<std::pair<const TokenMask*, const LogitBias*>, MaskedBias>;

  void upload_biases(const scheduler::StepPlan& plan);
  const std::shared_ptr<const LogitBias>& bias_of(const SamplingParams& params) const;
  kernels::SampleRow make_sample_row(const scheduler::PlanRow& row, const LogitTarget& target);
  std::size_t record_bytes() const;
  std::size_t out_bytes() const;
  void count_tokens(const scheduler::Sequence& sequence, std::size_t num_tokens);

  kernels::Stream& stream_;
  const int vocab_size_;
  DeviceBiases biases_;
  std::vector<LogitTarget> targets_;
  std::vector<kernels::SampleRow> rows_;     // of the targets
  std::vector<std::int32_t> positions_;      // likewise
  std::vector<kernels::TokenCount> counts_;  // of all rows, concatenated
  std::vector<std::int32_t> count_of_;       // [vocab_size], all zero between two rows
  std::vector<std::shared_ptr<const LogitBias>> used_biases_;
  MaskedBiases masked_biases_;  // of the last step
  const kernels::Memory raw_;   // [rows_max, vocab_size] f32: SampleArgs::raw
  const kernels::TokenCount* uploaded_counts_ = nullptr;
  int top_stride_ = 0;
  StagedMemory out_;  // records of all targets, then their top tokens
};

}  // namespace lmtp::agent
