// Checkpoints that torch.save wrote: a zip of data.pkl and of one record for each storage, stored
// as they are, so that tensors can be read where they lie in the mapped file.
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <utility>

#include "checkpoint_files.h"

namespace lmtp::model {
namespace {

const char* type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kDouble:
      return "F64";
    case at::kByte:
      return "U8";
    case at::kBool:
      return "BOOL";
    case at::kLong:
      return "I64";
    default:
      return "of another kind";
  }
}

// Where the storages lie: first byte -> bytes of the record.
using Records = std::map<const unsigned char*, std::uint64_t>;

// Reads data.pkl; storages become views of the mapped file.
at::IValue unpickle(const MappedFile& file, const std::string& path, Records& records) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  const auto [pickle, size] = reader.getRecord("data.pkl");
  std::size_t position = 0;
  const auto read = [&, data = static_cast<const char*>(pickle.get()), size = size](
                        char* to, std::size_t count) -> std::size_t {
    const std::size_t taken = std::min(count, size - position);
    std::memcpy(to, data + position, taken);
    position += taken;
    return taken;
  };
  const auto refuse = [](const c10::QualifiedName& name) -> c10::StrongTypePtr {
    throw std::runtime_error("it asks for '" + name.qualifiedName() +
                             "', and nothing but tensors is read");
  };
  const auto refuse_object = [](const at::StrongTypePtr&,
                                const at::IValue&) -> c10::intrusive_ptr<c10::ivalue::Object> {
    throw std::runtime_error("it holds an object, and nothing but tensors is read");
  };
  const auto record = [&](const std::string& name) -> at::DataPtr {
    const std::uint64_t begin = reader.getRecordOffset("data/" + name);
    const std::uint64_t bytes = reader.getRecordSize("data/" + name);
    if (begin > file.size() || bytes > file.size() - begin) {
      throw std::runtime_error("a tensor lies beyond the end of the file: the file is truncated");
    }
    const unsigned char* data = file.data() + begin;
    records[data] = bytes;
    // Nobody writes to it: tensors are copied when they are packed.
    return {const_cast<unsigned char*>(data), at::kCPU};  // NOLINT(*-const-cast)
  };
  torch::jit::Unpickler unpickler(read, refuse, refuse_object, record, at::Device(at::kCPU));
  return unpickler.parse_ivalue();
}

// The entry of a tensor, or why it cannot be read.
Result<TensorEntry> make_entry(const MappedFile& file, const std::string& path,
                               const at::Tensor& tensor, const Records& records) {
  const auto* storage = static_cast<const unsigned char*>(tensor.storage().data());
  const auto record = records.find(storage);
  const auto item = static_cast<std::uint64_t>(tensor.itemsize());
  const std::uint64_t offset = static_cast<std::uint64_t>(tensor.storage_offset()) * item;
  const std::uint64_t size = static_cast<std::uint64_t>(tensor.numel()) * item;
  if (tensor.storage_offset() < 0 || record == records.end() || offset > record->second ||
      size > record->second - offset) {
    return Error{"its data lie beyond the end of its storage: the file is corrupt"};
  }
  if (!tensor.is_contiguous()) {
    return Error{"its elements do not follow one another; save a contiguous copy"};
  }
  return TensorEntry{.file = &file,
                     .path = path,
                     .type = type_name(tensor.scalar_type()),
                     .shape = tensor.sizes().vec(),
                     .begin = static_cast<std::uint64_t>(storage - file.data()) + offset,
                     .size = size};
}

// The first line of what libtorch says; a trace of its stack follows.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<void> add_pickled(const MappedFile& file, const std::string& path, TensorEntries& entries) {
  if (file.size() < 4 || std::memcmp(file.data(), "PK", 2) != 0) {
    return Error{path +
                 ": not in PyTorch's zip format (it was saved by a version before 1.6, or is no "
                 "checkpoint); save it as model.safetensors with transformers' save_pretrained"};
  }
  try {
    Records records;
    const at::IValue root = unpickle(file, path, records);
    if (!root.isGenericDict()) {
      return Error{path + ": not a dictionary of tensors"};
    }
    const auto tensors = root.toGenericDict();
    for (const auto& item : tensors) {
      if (!item.key().isString() || !item.value().isTensor()) {
        continue;  // a number beside the tensors
      }
      const std::string& name = item.key().toStringRef();
      auto entry = make_entry(file, path, item.value().toTensor(), records);
      if (!entry.ok()) {
        return Error{path + ": tensor '" + name + "': " + entry.error().message};
      }
      entries[name] = std::move(*entry);
    }
    return {};
  } catch (const std::exception& exception) {
    return Error{path + ": cannot be read: " + first_line(exception.what())};
  }
}

}  // namespace lmtp::model
