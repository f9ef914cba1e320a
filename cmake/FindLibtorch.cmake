# Libtorch from the PyPI wheel with c10d's gloo, as the imported target Libtorch::cpu
# (libtorch_cpu.so, libc10.so), and what that needs when it runs:
#   LIBTORCH_RPATH           the folders in which these two lie
#   LIBTORCH_SITE_PACKAGES   the folder of the wheel, and of NVIDIA's beside it
#   LIBTORCH_FILES           the shared libraries of torch that are needed
#   LIBTORCH_NVIDIA_FILES    and those of NVIDIA
# Where it is not found, LIBTORCH_MISSING says what is missing. The wheel has gloo, but not its
# headers, which c10d's include: those are Debian's (libgloo-dev).
# The wheel is looked for in LMTP_TORCH_DIR (a site-packages/torch folder) or else in .venv, the
# link that tools/setup makes. find_package(Torch) of the wheel itself fails with cmake 3.25 and
# nvcc 13.
include_guard(GLOBAL)

set(LMTP_TORCH_DIR "" CACHE PATH "A site-packages/torch folder; empty means the one in .venv")
if(LMTP_TORCH_DIR)
  set(torch_dir ${LMTP_TORCH_DIR})
else()
  file(GLOB torch_dir ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
find_path(LMTP_GLOO_INCLUDE_DIR gloo/rendezvous/store.h)
mark_as_advanced(LMTP_GLOO_INCLUDE_DIR)
set(Libtorch_FOUND OFF)
list(LENGTH torch_dir num_found)
if(NOT num_found EQUAL 1 OR NOT EXISTS ${torch_dir}/lib/libtorch_cpu.so)
  set(LIBTORCH_MISSING "libtorch was not found in .venv, nor is LMTP_TORCH_DIR its folder")
  return()
elseif(NOT LMTP_GLOO_INCLUDE_DIR)
  set(LIBTORCH_MISSING "gloo's headers were not found (Debian package libgloo-dev)")
  return()
endif()
set(Libtorch_FOUND ON)

file(STRINGS ${torch_dir}/version.py torch_version_line REGEX "^__version__")
string(REGEX REPLACE ".*'([^']*)'.*" "\\1" Libtorch_VERSION "${torch_version_line}")

# The CPU library needs the CUDA runtime and CUPTI even where no GPU is; its own search path finds
# them, but a linker that resolves indirect libraries does not follow it.
add_library(Libtorch::cpu SHARED IMPORTED GLOBAL)
set_target_properties(Libtorch::cpu PROPERTIES IMPORTED_LOCATION ${torch_dir}/lib/libtorch_cpu.so)
target_include_directories(Libtorch::cpu SYSTEM INTERFACE
  ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include ${LMTP_GLOO_INCLUDE_DIR})
target_compile_definitions(Libtorch::cpu INTERFACE USE_C10D_GLOO)
target_link_libraries(Libtorch::cpu INTERFACE ${torch_dir}/lib/libc10.so)
target_link_options(Libtorch::cpu INTERFACE -Wl,--allow-shlib-undefined)

# Through the link, so that a tree with another .venv works, and past it.
get_filename_component(real_torch_dir ${torch_dir} REALPATH)
set(LIBTORCH_RPATH ${torch_dir}/lib ${real_torch_dir}/lib)
list(REMOVE_DUPLICATES LIBTORCH_RPATH)

get_filename_component(LIBTORCH_SITE_PACKAGES ${torch_dir} DIRECTORY)
set(LIBTORCH_FILES libtorch_cpu.so libc10.so libgomp.so.1)
list(TRANSFORM LIBTORCH_FILES PREPEND ${torch_dir}/lib/)
file(GLOB LIBTORCH_NVIDIA_FILES
  ${LIBTORCH_SITE_PACKAGES}/nvidia/*/lib/libcudart.so.1[23]
  ${LIBTORCH_SITE_PACKAGES}/nvidia/*/lib/libcupti.so.1[23])
