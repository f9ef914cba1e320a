#include "side_server.h"

#include <openssl/evp.h>

#include <utility>
#include <vector>

#include "json_io.h"

namespace lmtp::aicirt {
namespace {

std::string decode_base64(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || text.size() % 4 != 0) throw CommandError("binary: must be base64", true);
  const std::size_t end = text.find('=');
  if (end != std::string::npos) bytes.resize(bytes.size() - (text.size() - end));
  return bytes;
}

Json tag_json(const aici::TagInfo& tag) {
  return {{"tag", tag.tag},
          {"module_id", tag.module_id},
          {"updated_at", tag.updated_at},
          {"updated_by", tag.updated_by},
          {"wasm_size", tag.wasm_size},
          {"compiled_size", tag.compiled_size}};
}

Json error_for(const Json& command, const Error& error) {
  const bool is_user = error.code == ErrorCode::kInvalid || error.code == ErrorCode::kNotFound;
  return error_answer(command, error.message, is_user);
}

std::function<void(Result<std::vector<aici::TagInfo>>)> tags_reply(const Json& command,
                                                                   SideServer::Reply reply) {
  return [command, reply = std::move(reply)](const Result<std::vector<aici::TagInfo>>& tags) {
    if (!tags) return reply(error_for(command, tags.error()));
    Json list = Json::array();
    for (const aici::TagInfo& tag : *tags) list.push_back(tag_json(tag));
    reply(ok_answer(command, {{"tags", std::move(list)}}));
  };
}

}  // namespace

SideServer::SideServer(aici::Runtime& runtime, SideOptions options, Appended appended)
    : runtime_(runtime), options_(std::move(options)), appended_(std::move(appended)) {}

void SideServer::take(const std::string& message, const Reply& reply) {
  const Result<Json> command = parse_json(message, "command");
  if (!command) return reply({{"type", "json-error"}, {"error", command.error().message}});
  try {
    act(*command, reply);
  } catch (const CommandError& error) {
    reply(error_answer(*command, error.what(), error.is_user_error));
  }
}

void SideServer::act(const Json& command, const Reply& reply) {
  const std::string op = text_field(command, "op");
  const bool changes = op == "mk_module" || op == "set_tags";
  if (changes && options_.is_restricted) throw CommandError("not allowed (--restricted)", true);
  if (op == "ping") {
    reply(ok_answer(command, {{"pong", 1}}));
  } else if (op == "mk_module") {
    const Json id = Json{{"$rid", command.value("$rid", Json())}};
    runtime_.upload(decode_base64(text_field(command, "binary")), auth_of(command),
                    [id, reply](const Result<aici::ModuleInfo>& made) {
                      if (!made) return reply(error_for(id, made.error()));
                      reply(ok_answer(id, {{"module_id", made->module_id},
                                           {"wasm_size", made->wasm_size},
                                           {"compiled_size", made->compiled_size},
                                           {"time", made->compile_ms}}));
                    });
  } else if (op == "set_tags") {
    std::vector<std::string> tags;
    for (const Json& tag : field(command, "tags")) {
      if (!tag.is_string()) throw CommandError("tags: must be a list of texts", false);
      tags.push_back(tag.get<std::string>());
    }
    runtime_.set_tags(text_field(command, "module_id"), std::move(tags), auth_of(command),
                      tags_reply(command, reply));
  } else if (op == "get_tags") {
    runtime_.get_tags({.is_admin = true}, tags_reply(command, reply));
  } else if (op == "instantiate") {
    instantiate(command, reply);
  } else {
    throw CommandError("bad op", false);
  }
}

void SideServer::instantiate(const Json& command, const Reply& reply) {
  aici::InstantiateRequest request;
  request.request_id = text_field(command, "req_id");
  request.controller = text_field(command, "module_id");
  request.auth = auth_of(command);
  const Json& prompt = field(command, "prompt");
  if (!prompt.is_string()) {
    request.prompt = tokens_field(command, "prompt");
  } else if (options_.tokenize) {
    request.prompt = options_.tokenize(prompt.get<std::string>());
  } else {
    throw CommandError("prompt: must be a list of token ids", true);
  }
  if (const Json* const arg = find_json(command, "module_arg")) {
    request.arg = arg->is_string() ? arg->get<std::string>() : text_of(*arg);
  }
  const std::string id = request.request_id;
  const std::vector<TokenId> asked = request.prompt;
  runtime_.instantiate(
      std::move(request), [this, command, reply, id, asked](Result<aici::Instantiated> made) {
        if (!made) return reply(error_for(command, made.error()));
        const aici::CallLog log = made->log;
        if (options_.is_c) {
          std::vector<TokenId> tokens = made->prompt.value_or(asked);
          tokens.insert(tokens.end(), made->appended.begin(), made->appended.end());
          return reply(ok_answer(command, sequence_result("", {{"prompt", tokens}}, log)));
        }
        if (made->prompt) {
          runtime_.discard(id);
          return reply(error_answer(command, "this controller needs dialect C", true));
        }
        if (options_.is_a2) {
          const Json result = {{"suspend", false}, {"num_forks", 1}, {"ff_tokens", made->appended}};
          return reply(ok_answer(command, sequence_result("", result, log)));
        }
        appended_(id, *std::move(made));
        reply(ok_answer(command, Json::object()));
      });
}

}  // namespace lmtp::aicirt
