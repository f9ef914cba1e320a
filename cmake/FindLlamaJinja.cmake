# llama.cpp's Jinja engine as the target LlamaJinja::jinja, compiled from the sources that
# tools/setup keeps beside the environments of .venv:
#   LLAMA_JINJA_LICENSE     its licence, which is installed with it
#   LLAMA_JINJA_TEMPLATES   a folder of chat templates of real models, for the tests
# They are looked for in LMTP_JINJA_DIR or else there. Whoever links the target defines
# ggml_abort, the one function of ggml that it calls.
include_guard(GLOBAL)
include(LmtpSetupFolder)

set(LMTP_JINJA_DIR "" CACHE PATH "llama.cpp's Jinja engine, sources; empty means tools/setup's")
if(LMTP_JINJA_DIR)
  set(jinja_dir ${LMTP_JINJA_DIR})
else()
  lmtp_setup_folder(jinja_dir jinja requirements-jinja.txt)
endif()
if(NOT EXISTS ${jinja_dir}/common/jinja/runtime.cpp)
  message(FATAL_ERROR
    "The Jinja engine of chat templates was not found (looked in '${jinja_dir}'): run tools/setup, "
    "or give -DLMTP_JINJA_DIR=FOLDER, or build without it by -DLMTP_CHAT_TEMPLATES=OFF")
endif()

file(GLOB jinja_sources ${jinja_dir}/common/jinja/*.cpp)
add_library(llama_jinja STATIC EXCLUDE_FROM_ALL
  ${jinja_sources} ${jinja_dir}/common/json.cpp ${jinja_dir}/common/unicode.cpp)
add_library(LlamaJinja::jinja ALIAS llama_jinja)
target_include_directories(llama_jinja SYSTEM PUBLIC ${jinja_dir}/common
                                              PRIVATE ${jinja_dir}/ggml)
target_link_libraries(llama_jinja PRIVATE nlohmann_json::nlohmann_json)
target_compile_options(llama_jinja PRIVATE -w)
if(LMTP_SANITIZE)
  target_compile_options(llama_jinja PRIVATE -O0)  # a third of the time to compile
endif()

set(LLAMA_JINJA_LICENSE ${jinja_dir}/LICENSE)
set(LLAMA_JINJA_TEMPLATES ${jinja_dir}/templates)
message(STATUS "chat templates: on (${jinja_dir})")
