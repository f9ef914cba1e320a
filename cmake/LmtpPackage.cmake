# cpack -G DEB: what cmake --install installs, as a Debian package for the release of Debian that it
# was built on. Of the preset `package` alone: with libtorch (gloo) it would have 0.5 GB more, and
# CUDA has a licence of its own. tools/dev/try-package installs it in a bare root.
include_guard(GLOBAL)

# Libraries that are compiled in, not linked, and whose licences ask to be passed on.
set(packages nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libspdlog-dev)
list(TRANSFORM packages REPLACE "(.+)" "/usr/share/doc/\\1/copyright" OUTPUT_VARIABLE licenses)
list(GET licenses 0 license)
if(TARGET lmtp_torch OR LMTP_CUDA_ENABLED OR NOT EXISTS ${license})
  return()
endif()

set(parts "")  # TITLE|FILE
if(LMTP_GRAMMAR)
  list(APPEND parts "llguidance, libllguidance.so|${LLGUIDANCE_LICENSE}")
endif()
if(LMTP_WASM)
  list(APPEND parts "wasmtime, libwasmtime.so|${WASMTIME_LICENSE}")
endif()
foreach(package file IN ZIP_LISTS packages licenses)
  list(APPEND parts "${package}, as Debian packages it|${file}")
endforeach()
set(copyright ${PROJECT_BINARY_DIR}/copyright)
install(CODE "
  set(parts \"${parts}\")
  file(READ \"${PROJECT_SOURCE_DIR}/packaging/copyright\" text)
  foreach(part IN LISTS parts)
    string(REPLACE \"|\" \";\" part \"\${part}\")
    list(POP_FRONT part title file)
    file(READ \"\${file}\" license)
    string(APPEND text \"\\n---- \${title}:\\n\\n\${license}\")
  endforeach()
  file(WRITE \"${copyright}\" \"\${text}\")")
install(FILES ${copyright} DESTINATION share/doc/lmtp)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lmtp)
set(CPACK_PACKAGE_CONTACT "The lmtp maintainers <lmtp@localhost>" CACHE STRING
    "The package's maintainer, NAME <ADDRESS>: who made it")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "server for language models: LMTP, OpenAI's API and TGI's")
set(CPACK_PACKAGE_DESCRIPTION
"lmtp-serve loads a language model once and streams tokens to many clients:
over LMTP, the protocol of LMQL, and by the APIs of OpenAI and of Text
Generation Inference. A small model to try it with, a client and a load
generator come along.
This build computes on the CPU, and connects ranks in memory, not by gloo.")
set(CPACK_STRIP_FILES ON)
# By DESTDIR, so that the systemd unit, which is made at installation, names /usr.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/compress.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)  # for the Hugging Face hub
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
foreach(script postinst prerm postrm)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/${script})
endforeach()
include(CPack)
