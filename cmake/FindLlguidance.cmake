# llguidance from the PyPI wheel, which tools/setup keeps, copied
# into the build's lib/lmtp/, from where a program loads it:
#   LLGUIDANCE_FILES     the libraries, which are installed
#   LLGUIDANCE_LICENSE   its licence, which is installed with them
#   LLGUIDANCE_WHEEL     the folder of the wheel's content, for the tests
# It is looked for in LMTP_NATIVE_DIR or else there. The library is Python's extension as well as a
# C library, and names functions of Python, which it calls in Python alone: the target
# python_stubs, a second library, has these names and nothing behind them.
include_guard(GLOBAL)
include(LmtpSetupFolder)

set(LMTP_NATIVE_DIR "" CACHE PATH "The content of native wheels; empty means tools/setup's")
if(LMTP_NATIVE_DIR)
  set(native_dir ${LMTP_NATIVE_DIR})
else()
  lmtp_setup_folder(native_dir native requirements-native.txt)
endif()
set(llguidance_wheel_library ${native_dir}/llguidance/_lib.abi3.so)
file(GLOB LLGUIDANCE_LICENSE ${native_dir}/llguidance-*.dist-info/licenses/LICENSE)
if(NOT EXISTS ${llguidance_wheel_library} OR NOT LLGUIDANCE_LICENSE)
  message(FATAL_ERROR
    "llguidance was not found (looked in '${native_dir}'): run tools/setup, or give "
    "-DLMTP_NATIVE_DIR=FOLDER, or build without grammars by -DLMTP_GRAMMAR=OFF")
endif()

set(llguidance_folder ${PROJECT_BINARY_DIR}/lib/lmtp)
file(MAKE_DIRECTORY ${llguidance_folder})
file(COPY_FILE ${llguidance_wheel_library} ${llguidance_folder}/libllguidance.so
     ONLY_IF_DIFFERENT)

set(python_symbols_file ${PROJECT_SOURCE_DIR}/src/constraint/python_symbols.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${python_symbols_file})
file(STRINGS ${python_symbols_file} python_symbols)
set(python_stubs "")
foreach(symbol IN LISTS python_symbols)
  string(APPEND python_stubs "extern \"C\" void ${symbol}() { __builtin_trap(); }\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/python_stubs.cpp CONTENT "${python_stubs}" @ONLY)
add_library(python_stubs MODULE ${PROJECT_BINARY_DIR}/python_stubs.cpp)
set_target_properties(python_stubs PROPERTIES
  OUTPUT_NAME lmtp_python_stubs LIBRARY_OUTPUT_DIRECTORY ${llguidance_folder}
  CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
target_compile_options(python_stubs PRIVATE -w)

set(LLGUIDANCE_FILES ${llguidance_folder}/libllguidance.so $<TARGET_FILE:python_stubs>)
set(LLGUIDANCE_WHEEL ${native_dir})
message(STATUS "grammars: on (${native_dir})")
