// A checkpoint whose tensors a model sees under other names than its files have.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/model/weights.h"

namespace lmtp::model {

// Owner: as the source's.
class SourceView : public TensorSource {
 public:
  explicit SourceView(std::unique_ptr<TensorSource> file) : file_(std::move(file)) {}

  std::string origin() const override { return file_->origin(); }
  std::vector<std::string> names() const override { return names_; }
  // As the files have it.
  std::optional<StoredTensor> stored(const std::string& name) const override {
    return file_->stored(name);
  }
  Result<void> check_unchanged() const override { return file_->check_unchanged(); }

 protected:
  const std::unique_ptr<TensorSource> file_;
  std::vector<std::string> names_;  // that a model sees, ascending
};

}  // namespace lmtp::model
