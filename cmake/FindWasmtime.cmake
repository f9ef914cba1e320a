# wasmtime from the PyPI wheel, which tools/setup keeps, copied
# into the build's lib/lmtp/, from where a program loads it:
#   WASMTIME_LIBRARY   the copy, which is installed
#   WASMTIME_LICENSE   its licence, which is installed with it
#   WASMTIME_WHEEL     the folder of the wheel's content, for the tests
# It is looked for in LMTP_NATIVE_DIR or else there.
include_guard(GLOBAL)
include(LmtpSetupFolder)

set(LMTP_NATIVE_DIR "" CACHE PATH "The content of native wheels; empty means tools/setup's")
if(LMTP_NATIVE_DIR)
  set(native_dir ${LMTP_NATIVE_DIR})
else()
  lmtp_setup_folder(native_dir native requirements-native.txt)
endif()
file(GLOB wasmtime_wheel_library ${native_dir}/wasmtime/linux-*/_libwasmtime.so)
file(GLOB WASMTIME_LICENSE ${native_dir}/wasmtime-*.dist-info/licenses/LICENSE)
if(NOT wasmtime_wheel_library OR NOT WASMTIME_LICENSE)
  message(FATAL_ERROR
    "wasmtime was not found (looked in '${native_dir}'): run tools/setup, or give "
    "-DLMTP_NATIVE_DIR=FOLDER, or build without AICI controllers by -DLMTP_WASM=OFF")
endif()

set(WASMTIME_LIBRARY ${PROJECT_BINARY_DIR}/lib/lmtp/libwasmtime.so)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/lib/lmtp)
file(COPY_FILE ${wasmtime_wheel_library} ${WASMTIME_LIBRARY} ONLY_IF_DIFFERENT)
set(WASMTIME_WHEEL ${native_dir})
message(STATUS "AICI controllers: on (${native_dir})")
