# cmake --install: the two programs, the demo model, a man page each and a systemd unit. With
# -DLMTP_INSTALL_LIBTORCH=ON also libtorch, so that the result needs nothing of this build's place
# (a service's user cannot read an administrator's home).
include_guard(GLOBAL)
include(GNUInstallDirs)

option(LMTP_INSTALL_LIBTORCH "Install libtorch into lib/lmtp as well" OFF)

foreach(program lmtp-serve lmtp-client)
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

if(LMTP_INSTALL_LIBTORCH AND LMTP_TORCH)
  lmtp_libtorch_files(torch_files nvidia_files)
  install(FILES ${torch_files} DESTINATION lib/lmtp/torch/lib)
  # libtorch finds these by ../../nvidia/..., so the folders keep their places.
  foreach(file IN LISTS nvidia_files)
    file(RELATIVE_PATH folder ${LIBTORCH_SITE_PACKAGES} ${file})
    get_filename_component(folder ${folder} DIRECTORY)
    install(FILES ${file} DESTINATION lib/lmtp/${folder})
  endforeach()
endif()
