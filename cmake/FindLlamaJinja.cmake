# llama.cpp's Jinja engine as the target LlamaJinja::jinja, compiled from its sources:
#   LLAMA_JINJA_LICENSE     its licence, which is installed with it
#   LLAMA_JINJA_TEMPLATES   a folder of chat templates of real models, for the tests
# They are in LMTP_JINJA_DIR, laid out as llama.cpp's; or else `tools/setup --jinja` brings them
# while other files of the build compile: none of this is there when CMake configures. Whoever links
# the target defines ggml_abort, the one function of ggml that it calls.
include_guard(GLOBAL)

set(LMTP_JINJA_DIR "" CACHE PATH "llama.cpp's Jinja engine, sources; empty means tools/setup's")
set(jinja_dir ${LMTP_JINJA_DIR})
if(NOT jinja_dir)
  set(jinja_dir ${PROJECT_BINARY_DIR}/llama_jinja)
elseif(NOT EXISTS ${jinja_dir}/common/jinja/runtime.cpp)
  message(FATAL_ERROR
    "The Jinja engine of chat templates was not found in LMTP_JINJA_DIR (${jinja_dir}): leave that "
    "away, and the build fetches it, or build without it by -DLMTP_CHAT_TEMPLATES=OFF")
endif()

set(LLAMA_JINJA_LICENSE ${jinja_dir}/LICENSE)
set(LLAMA_JINJA_TEMPLATES ${jinja_dir}/models/templates)
set(jinja_sources jinja/caps.cpp jinja/lexer.cpp jinja/parser.cpp jinja/runtime.cpp jinja/string.cpp
                  jinja/value.cpp json.cpp unicode.cpp)
list(TRANSFORM jinja_sources PREPEND ${jinja_dir}/common/)
if(NOT LMTP_JINJA_DIR)
  add_custom_command(OUTPUT ${jinja_sources} ${LLAMA_JINJA_LICENSE}
    COMMAND ${PROJECT_SOURCE_DIR}/tools/setup --jinja ${jinja_dir}
    DEPENDS ${PROJECT_SOURCE_DIR}/tools/requirements-jinja.txt
    COMMENT "The Jinja engine's sources (tools/setup --jinja; fetched where they are not yet)")
endif()

add_library(llama_jinja STATIC EXCLUDE_FROM_ALL ${jinja_sources})
add_library(LlamaJinja::jinja ALIAS llama_jinja)
target_include_directories(llama_jinja SYSTEM PUBLIC ${jinja_dir}/common
                                              PRIVATE ${jinja_dir}/ggml/include)
target_link_libraries(llama_jinja PRIVATE nlohmann_json::nlohmann_json)
target_compile_options(llama_jinja PRIVATE -w)
if(LMTP_SANITIZE)
  target_compile_options(llama_jinja PRIVATE -O0)  # a third of the time to compile
endif()
message(STATUS "chat templates: on (${jinja_dir})")
