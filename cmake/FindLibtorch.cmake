# Libtorch from the PyPI wheel, as imported targets:
#   Libtorch::cpu    libtorch_cpu.so and libc10.so
#   Libtorch::cuda   libtorch_cuda.so and libc10_cuda.so as well, where the CUDA half is whole
# The wheel is looked for in LMTP_TORCH_DIR (a site-packages/torch folder) or else in .venv, the
# link that tools/setup makes. find_package(Torch) of the wheel itself fails with cmake 3.25 and
# nvcc 13. LIBTORCH_RPATH lists the folders in which a program looks for these libraries when it
# runs.
include_guard(GLOBAL)

set(LMTP_TORCH_DIR "" CACHE PATH "A site-packages/torch folder; empty means the one in .venv")
if(LMTP_TORCH_DIR)
  set(torch_dir ${LMTP_TORCH_DIR})
else()
  file(GLOB torch_dir ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
list(LENGTH torch_dir num_found)
if(NOT num_found EQUAL 1 OR NOT EXISTS ${torch_dir}/lib/libtorch_cpu.so)
  message(FATAL_ERROR
    "libtorch was not found (looked in '${torch_dir}' and .venv): run tools/setup, "
    "or give -DLMTP_TORCH_DIR=<site-packages/torch>, or build without it by -DLMTP_TORCH=OFF")
endif()

file(STRINGS ${torch_dir}/version.py torch_version_line REGEX "^__version__")
string(REGEX REPLACE ".*'([^']*)'.*" "\\1" Libtorch_VERSION "${torch_version_line}")

add_library(Libtorch::c10 SHARED IMPORTED GLOBAL)
set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${torch_dir}/lib/libc10.so)
target_include_directories(Libtorch::c10 SYSTEM INTERFACE ${torch_dir}/include)
target_compile_definitions(Libtorch::c10 INTERFACE AT_PER_OPERATOR_HEADERS)

# The CPU library needs the CUDA runtime and CUPTI even where no GPU is; its own search path finds
# them, but a linker that resolves indirect libraries does not follow it.
add_library(Libtorch::cpu SHARED IMPORTED GLOBAL)
set_target_properties(Libtorch::cpu PROPERTIES IMPORTED_LOCATION ${torch_dir}/lib/libtorch_cpu.so)
target_link_libraries(Libtorch::cpu INTERFACE Libtorch::c10)
target_link_options(Libtorch::cpu INTERFACE -Wl,--allow-shlib-undefined)

get_filename_component(LIBTORCH_SITE_PACKAGES ${torch_dir} DIRECTORY)
file(GLOB cudnn ${LIBTORCH_SITE_PACKAGES}/nvidia/cudnn/lib/libcudnn.so.*)
if(EXISTS ${torch_dir}/lib/libtorch_cuda.so AND cudnn)
  add_library(Libtorch::c10_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(Libtorch::c10_cuda PROPERTIES
    IMPORTED_LOCATION ${torch_dir}/lib/libc10_cuda.so)
  add_library(Libtorch::cuda SHARED IMPORTED GLOBAL)
  set_target_properties(Libtorch::cuda PROPERTIES
    IMPORTED_LOCATION ${torch_dir}/lib/libtorch_cuda.so)
  target_link_libraries(Libtorch::cuda INTERFACE Libtorch::cpu Libtorch::c10_cuda)
  # Nothing in our code names a symbol of libtorch_cuda: its kernels register themselves when it is
  # loaded.
  target_link_options(Libtorch::cuda INTERFACE
    "LINKER:--push-state,--no-as-needed,${torch_dir}/lib/libtorch_cuda.so,--pop-state")
endif()

# Through the link, so that a tree with another .venv works, and past it.
get_filename_component(real_torch_dir ${torch_dir} REALPATH)
set(LIBTORCH_RPATH ${torch_dir}/lib ${real_torch_dir}/lib)
list(REMOVE_DUPLICATES LIBTORCH_RPATH)

if(TARGET Libtorch::cuda)
  message(STATUS "libtorch: ${Libtorch_VERSION} with CUDA (${torch_dir})")
else()
  message(STATUS "libtorch: ${Libtorch_VERSION}, CPU half (${torch_dir})")
endif()

# lmtp_libtorch_files(cpu|cuda TORCH_FILES NVIDIA_FILES): the shared libraries that a program needs
# when it runs, torch's own and NVIDIA's, where it links Libtorch::cpu or Libtorch::cuda. All of
# NVIDIA's in the second case: torch opens some by name.
function(lmtp_libtorch_files half torch_files nvidia_files)
  set(own libtorch_cpu.so libc10.so libgomp.so.1)
  set(nvidia libcudart.so.13 libcupti.so.13)
  if(half STREQUAL "cuda")
    list(APPEND own libtorch_cuda.so libtorch_cuda_linalg.so libtorch_nvshmem.so libc10_cuda.so
                    libtorch.so)
    set(nvidia *.so.*)
  endif()
  list(TRANSFORM own PREPEND ${LIBTORCH_SITE_PACKAGES}/torch/lib/)
  set(found "")
  foreach(name IN LISTS nvidia)
    file(GLOB files ${LIBTORCH_SITE_PACKAGES}/nvidia/*/lib/${name})
    list(APPEND found ${files})
  endforeach()
  set(${torch_files} ${own} PARENT_SCOPE)
  set(${nvidia_files} ${found} PARENT_SCOPE)
endfunction()
