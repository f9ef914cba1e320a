# cmake --install: the three programs, the demo model, a man page each, a systemd unit, and
# libtorch, so that the result needs nothing of this build's place: a service's user cannot read an
# administrator's home, where tools/setup puts libtorch. That is 0.5 GB, and 3.5 GB where a program
# links the CUDA half; -DLMTP_BUNDLE_LIBTORCH=OFF leaves it where it is.
include_guard(GLOBAL)
include(GNUInstallDirs)

option(LMTP_BUNDLE_LIBTORCH "Install libtorch into lib/lmtp as well" ON)

foreach(program lmtp-serve lmtp-client lmtp-bench)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION bin)
    install(FILES ${PROJECT_SOURCE_DIR}/packaging/${program}.1
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endforeach()

if(TARGET lmtp-serve)
  # Made at installation, because only then --prefix is known.
  install(CODE "
    set(LMTP_SERVE \"\${CMAKE_INSTALL_PREFIX}/bin/lmtp-serve\")
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/lmtp-serve.service.in\"
                   \"${PROJECT_BINARY_DIR}/lmtp-serve.service\" @ONLY)")
  install(FILES ${PROJECT_BINARY_DIR}/lmtp-serve.service DESTINATION lib/systemd/system)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo DESTINATION share/lmtp/models)

if(LMTP_BUNDLE_LIBTORCH AND LMTP_TORCH)
  set(half cpu)
  foreach(module IN LISTS lmtp_torch_modules)
    get_target_property(libraries lmtp_${module} LINK_LIBRARIES)
    if(Libtorch::cuda IN_LIST libraries)
      set(half cuda)
    endif()
  endforeach()
  lmtp_libtorch_files(${half} torch_files nvidia_files)
  install(FILES ${torch_files} DESTINATION lib/lmtp/torch/lib)
  # libtorch finds these by ../../nvidia/..., so the folders keep their places.
  foreach(file IN LISTS nvidia_files)
    file(RELATIVE_PATH folder ${LIBTORCH_SITE_PACKAGES} ${file})
    get_filename_component(folder ${folder} DIRECTORY)
    install(FILES ${file} DESTINATION lib/lmtp/${folder})
  endforeach()
endif()
