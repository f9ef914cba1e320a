# Decides LMTP_CUDA_ENABLED from LMTP_CUDA and nvcc, and enables the CUDA language. AUTO is where an
# NVIDIA driver is, or the link .cuda, by which tools/setup says that CUDA was asked for: a compiler
# that happens to be there is none of these.
include_guard(GLOBAL)

set(LMTP_CUDA_ENABLED OFF)
if(LMTP_CUDA STREQUAL "OFF")
  return()
endif()

find_program(LMTP_NVIDIA_SMI nvidia-smi)
mark_as_advanced(LMTP_NVIDIA_SMI)
if(LMTP_CUDA STREQUAL "AUTO" AND NOT EXISTS ${PROJECT_SOURCE_DIR}/.cuda
   AND NOT EXISTS /proc/driver/nvidia/version AND NOT LMTP_NVIDIA_SMI)
  message(STATUS "CUDA: off (there is no NVIDIA driver: -DLMTP_CUDA=ON or tools/setup --cuda)")
  return()
endif()

# .cuda is the compiler that tools/setup has fetched, where nothing else is.
find_program(LMTP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
             PATHS /usr/local/cuda ${PROJECT_SOURCE_DIR}/.cuda PATH_SUFFIXES bin)
if(NOT LMTP_NVCC)
  set(missing "nvcc was not found (PATH, CUDA_HOME, /usr/local/cuda): run tools/setup --cuda")
  if(LMTP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LMTP_CUDA=ON, but ${missing}")
  endif()
  message(STATUS "CUDA: off (${missing})")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${LMTP_NVCC})
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Ampere and Hopper as machine code; the PTX of 90 serves what comes later.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
# cmake 3.25 knows no C++20 for nvcc 13: required it is an error, and asked for it is dropped
# without a word, which leaves the place to our own flag.
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -std=c++20")
if(LMTP_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# As for other compilers (LmtpWarnings).
set(LMTP_CUDA_WERROR "")
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.1)
  set(LMTP_CUDA_WERROR -Werror=all-warnings)
endif()
set(LMTP_CUDA_ENABLED ON)
message(STATUS "CUDA: on (${LMTP_NVCC} ${CMAKE_CUDA_COMPILER_VERSION})")
