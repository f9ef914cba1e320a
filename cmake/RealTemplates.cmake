# Chat templates of real models, out of llama.cpp's sources, for the tests:
#   LMTP_REAL_TEMPLATES   the folder that has them. `tools/setup --jinja` brings them with
#                         lmtp-jinja, while other files of the build compile
include_guard(GLOBAL)

set(templates_dir ${PROJECT_BINARY_DIR}/llama_jinja)
set(LMTP_REAL_TEMPLATES ${templates_dir}/models/templates)
add_custom_command(OUTPUT ${templates_dir}/LICENSE
  COMMAND ${PROJECT_SOURCE_DIR}/tools/setup --jinja ${templates_dir}
  DEPENDS ${PROJECT_SOURCE_DIR}/tools/requirements-jinja.txt
  COMMENT "Chat templates of real models (tools/setup --jinja; fetched where they are not yet)")
add_custom_target(lmtp_real_templates DEPENDS ${templates_dir}/LICENSE)
add_dependencies(lmtp-jinja lmtp_real_templates)
