#include "process/wire.h"

#include <openssl/evp.h>

#include <charconv>
#include <limits>
#include <utility>

namespace lmtp::aici {
namespace {

std::string base64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::string bytes_of_hex(const WireValue& value) {
  const std::string hex = value.text();
  std::string bytes(hex.size() / 2, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned char byte = 0;
    const char* const at = hex.data() + 2 * i;
    if (std::from_chars(at, at + 2, byte, 16).ptr != at + 2) value.fail("must be hex");
    bytes[i] = static_cast<char>(byte);
  }
  if (hex.size() % 2 != 0) value.fail("must be hex");
  return bytes;
}

VariableWrite read_write(const WireValue& value) {
  VariableWrite write{.name = value.at("name").text(), .value = bytes_of_hex(value.at("value"))};
  const std::string op = value.at("op").text();
  if (op != "Set" && op != "Append") value.at("op").fail("must be Set or Append");
  write.op = op == "Set" ? VariableWrite::Op::kSet : VariableWrite::Op::kAppend;
  if (const auto version = value.find("when_version_is")) {
    write.when_version_is = version->integer();
  }
  return write;
}

TagInfo read_tag(const WireValue& tag) {
  return {tag.at("tag").text(),           tag.at("module_id").text(),
          tag.at("updated_at").integer(), tag.at("updated_by").text(),
          tag.at("wasm_size").integer(),  tag.at("compiled_size").integer()};
}

}  // namespace

Json auth_json(const Auth& auth) { return {{"user", auth.user}, {"is_admin", auth.is_admin}}; }

Json mk_module(const std::string& wasm) { return {{"op", "mk_module"}, {"binary", base64(wasm)}}; }

Json set_tags(const std::string& module_id, const std::vector<std::string>& tags) {
  return {{"op", "set_tags"}, {"module_id", module_id}, {"tags", tags}};
}

Json instantiate(const InstantiateRequest& request) {
  return {{"op", "instantiate"},
          {"req_id", request.request_id},
          {"prompt", request.prompt},
          {"module_id", request.controller},
          {"module_arg", request.arg}};
}

Result<Json> data_of(Json answer) {
  const std::string* const type = find_json_text(answer, "type");
  if (type == nullptr) {
    return Error{ErrorCode::kUnavailable, "the runtime's answer: type: must be a text"};
  }
  if (*type == "ok") return answer.contains("data") ? std::move(answer["data"]) : Json::object();
  const std::string* const error = find_json_text(answer, "error");
  const bool is_user = find_json_bool(answer, "is_user_error").value_or(false);
  return Error{is_user ? ErrorCode::kInvalid : ErrorCode::kUnavailable,
               error == nullptr ? "an answer of type " + *type : *error};
}

Result<ModuleInfo> read_module(const Json& data) {
  return read_wire([&] {
    const WireValue module(data, "");
    return ModuleInfo{module.at("module_id").text(), module.at("wasm_size").integer(),
                      module.at("compiled_size").integer(), module.at("time").integer()};
  });
}

Result<std::vector<TagInfo>> read_tags(const Json& data) {
  return read_wire([&] {
    std::vector<TagInfo> tags;
    const std::vector<WireValue> list = WireValue(data, "").at("tags").list();
    for (const WireValue& tag : list) tags.push_back(read_tag(tag));
    return tags;
  });
}

Result<InstantiateAnswer> read_instantiate(const Json& data, int vocab_size) {
  return read_wire([&] {
    InstantiateAnswer answer;
    const WireValue value(data, "");
    answer.is_plain = !value.find("error");
    if (answer.is_plain) return answer;
    const auto read = [&](const WireValue& result) {
      Instantiated made;
      if (const auto prompt = result.find("prompt")) made.prompt = prompt->tokens(vocab_size);
      if (const auto ff = result.find("ff_tokens")) made.appended = ff->tokens(vocab_size);
      return made;
    };
    SequenceResult<Instantiated> sequence = read_result<Instantiated>(value, read);
    answer.error = std::move(sequence.error);
    if (sequence.result) answer.value = *std::move(sequence.result);
    answer.value.log = std::move(sequence.log);
    return answer;
  });
}

CallLog read_log(const WireValue& sequence) {
  CallLog log;
  log.logs = sequence.at("logs").text();
  log.micros = sequence.at("micros").integer();
  for (const WireValue& command : sequence.at("storage").list()) {
    if (const auto write = command.find("WriteVar")) log.storage.push_back(read_write(*write));
  }
  return log;
}

Sequence read_id(const std::string& key, const WireValue& value) {
  Sequence id = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, id);
  if (error != std::errc() || stop != end) value.fail("the key must be the id of a sequence");
  return id;
}

}  // namespace lmtp::aici
