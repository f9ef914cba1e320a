// From rows of logits on a device to a step's result: what is wanted of each row lies there, and
// one small record a row comes back. Two steps may be under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"
#include "step_sampling.h"

namespace lmtp::agent {

// Biases that have been sent to the device: LMQL sends the same mask of thousands of entries with
// every chunk, and equal ones are one object (protocol::BiasCache). Owner: DeviceSampling.
class DeviceBiases {
 public:
  // Where a bias lies on the device: num_ids ids, then as many values.
  struct Place {
    const std::int32_t* ids = nullptr;
    const float* values = nullptr;
    std::int64_t num_ids = 0;
  };

  // Takes num_bytes() of the device. Throws DeviceError.
  DeviceBiases(kernels::Stream& stream, int vocab_size, int rows_max);

  // Room for biases of so many rows, each different and of every token: what one client sends must
  // not fail the step of the others.
  static std::int64_t num_bytes(int vocab_size, int rows_max);

  // Sends those that are not there. Places are valid until the next call.
  // REQUIRES: they are of rows_max rows at most; what the last call put into the stream is done.
  void place(std::span<const std::shared_ptr<const LogitBias>> biases);
  // REQUIRES: the last place() was given it.
  Place of(const LogitBias& bias) const;

 private:
  struct Entry {
    std::weak_ptr<const LogitBias> bias;  // another may come to lie at its address
    std::size_t offset = 0;
  };

  bool holds(const std::shared_ptr<const LogitBias>& bias) const;
  std::int64_t num_ids(const LogitBias& bias) const;
  std::size_t bytes_of(const LogitBias& bias) const;

  kernels::Stream& stream_;
  const int vocab_size_;
  kernels::Memory memory_;  // filled from its front; when it is full, everything goes
  std::size_t used_bytes_ = 0;
  kernels::Memory pinned_;  // of those on their way: one at least
  std::unordered_map<const LogitBias*, Entry> entries_;
};

// Tokens on their way back from the device.
struct PendingTokens {
  struct Row {
    LogitTarget target;
    bool is_score = false;
  };
  std::vector<Row> rows;
  int top_stride = 0;
  const std::byte* out = nullptr;  // of the host: records, then top tokens
};

// Writes them to the result's rows. A row without numbers becomes the error of its plan row alone.
// REQUIRES: the stream has come so far.
void read_tokens(const PendingTokens& tokens, scheduler::StepResult& result);

// What is wanted of rows of logits, on the device.
struct WantedRows {
  const kernels::SampleRow* rows = nullptr;
  const std::int32_t* positions = nullptr;  // of the tokens that the logits are of
};

// Owner: an agent; one thread.
class DeviceSampling {
 public:
  // `stream` must outlive this. For steps of rows_max sequences at most. Throws DeviceError.
  DeviceSampling(kernels::Stream& stream, int vocab_size, int rows_max);

  // For a step: what is wanted of each of the targets. Biases that are not on the device are sent.
  // REQUIRES: no step that uses other biases than this one is under way.
  void prepare(const scheduler::StepPlan& plan, const std::vector<LogitTarget>& targets);
  // The same, a target each; for those who keep it on the device themselves.
  std::span<const kernels::SampleRow> rows() const { return rows_; }
  // What add_rows() and add_counts() take of an Upload, and the adding. Counts go up in any case.
  std::size_t rows_size() const { return Upload::size_of(rows_) + Upload::size_of(positions_); }
  WantedRows add_rows(Upload& upload) const;
  std::size_t counts_size() const { return Upload::size_of(counts_); }
  void add_counts(Upload& upload) { uploaded_counts_ = upload.add(counts_); }
  // Puts the choice for the targets [first, first + logits.rows) into the stream. `wanted`: of all
  // targets. logits: [rows, vocab_size] on the device, edited in place. REQUIRES: the upload was
  // sent.
  void choose(const WantedRows& wanted, std::size_t first, kernels::Matrix<float> logits);
  // Puts the tokens' way back into the stream. They can be read until the next fetch() but one.
  // REQUIRES: all targets have been chosen for; the fetch() before the last one is over.
  PendingTokens fetch();

  // On the device, a target each, of the step that chose last; valid in the stream until the next
  // choose(). A prepare() for no more targets and top tokens leaves them where they are.
  const kernels::SampleRecord* records() const {
    return reinterpret_cast<const kernels::SampleRecord*>(out_.device());
  }

 private:
  void place_biases(const scheduler::StepPlan& plan);
  kernels::SampleRow wanted_of(const scheduler::PlanRow& row, const LogitTarget& target);
  std::size_t record_bytes() const;
  std::size_t out_bytes() const;
  void count_tokens(const scheduler::Sequence& sequence, std::size_t num_tokens);

  kernels::Stream& stream_;
  const int vocab_size_;
  DeviceBiases biases_;
  std::vector<LogitTarget> targets_;
  std::vector<kernels::SampleRow> rows_;     // of the targets
  std::vector<std::int32_t> positions_;      // likewise
  std::vector<kernels::TokenCount> counts_;  // of all rows, behind one another
  std::vector<std::int32_t> count_of_;       // [vocab_size], all zero between two rows
  std::vector<std::shared_ptr<const LogitBias>> used_biases_;
  const kernels::TokenCount* uploaded_counts_ = nullptr;
  int top_stride_ = 0;
  StagedMemory out_;  // records of all targets, then their top tokens
};

}  // namespace lmtp::agent
