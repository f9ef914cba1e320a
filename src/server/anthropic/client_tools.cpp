#include "client_tools.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "generation/ordered_members.h"

namespace lmtp::server {
namespace {

struct KnownTool {
  std::string_view type;  // all that begin so
  std::string_view description;
  std::string_view schema;
};

constexpr KnownTool kKnownTools[] = {
    {"bash_",
     "Runs a command in a bash shell that keeps its state from call to call. `restart` starts it "
     "anew.",
     R"({"type": "object", "properties": {
  "command": {"type": "string", "description": "The command. Needed unless restart is true."},
  "restart": {"type": "boolean", "description": "Starts the shell anew."}}})"},
    {"text_editor_",
     "Views, creates and edits files. `view` shows a file, or the names in a folder; `create` "
     "writes a file; `str_replace` replaces old_str, which the file has once, by new_str; `insert` "
     "puts a text after the line insert_line.",
     R"({"type": "object", "properties": {
  "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
  "path": {"type": "string", "description": "Of the file or folder, absolute."},
  "file_text": {"type": "string", "description": "create: the whole file."},
  "old_str": {"type": "string", "description": "str_replace: what is replaced."},
  "new_str": {"type": "string", "description": "str_replace: what stands there then."},
  "insert_line": {"type": "integer", "description": "insert: the line's number; 0: before all."},
  "insert_text": {"type": "string", "description": "insert: the text."},
  "view_range": {"type": "array", "items": {"type": "integer"},
                 "description": "view: the first and the last line; -1: the file's last."}},
 "required": ["command", "path"]})"},
    {"memory_",
     "Views, creates, edits, deletes and renames files below /memories, which stay for later "
     "conversations.",
     R"({"type": "object", "properties": {
  "command": {"type": "string",
              "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
  "path": {"type": "string", "description": "Of the file or folder, from /memories on."},
  "file_text": {"type": "string", "description": "create: the whole file."},
  "old_str": {"type": "string", "description": "str_replace: what is replaced."},
  "new_str": {"type": "string", "description": "str_replace: what stands there then."},
  "insert_line": {"type": "integer", "description": "insert: the line's number; 0: before all."},
  "insert_text": {"type": "string", "description": "insert: the text."},
  "view_range": {"type": "array", "items": {"type": "integer"},
                 "description": "view: the first and the last line."},
  "old_path": {"type": "string", "description": "rename: the file."},
  "new_path": {"type": "string", "description": "rename: its new name."}},
 "required": ["command"]})"},
};

// Versions before these took the text of `insert` as new_str and could undo.
bool is_old_editor(std::string_view type) {
  return type == "text_editor_20241022" || type == "text_editor_20250124";
}

}  // namespace

OrderedJson known_client_tool(const OrderedJson& tool) {
  const std::string* const type = find_ordered_text(tool, "type");
  const std::string* const name = find_ordered_text(tool, "name");
  if (type == nullptr || name == nullptr || tool.contains("input_schema")) return tool;
  for (const KnownTool& known : kKnownTools) {
    if (!type->starts_with(known.type)) continue;
    OrderedJson schema = OrderedJson::parse(known.schema);
    if (is_old_editor(*type)) {
      OrderedJson& properties = schema["properties"];
      properties["command"]["enum"].push_back("undo_edit");
      properties.erase("insert_text");
      properties["new_str"]["description"] = "str_replace, insert: what stands there then.";
    }
    return {{"name", *name}, {"description", known.description}, {"input_schema", schema}};
  }
  return tool;
}

}  // namespace lmtp::server
