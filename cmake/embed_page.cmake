# cmake -DROOT=... -DOUTPUT=... -P embed_page.cmake
# Writes the source of what src/server/ui/page.h declares: the page's files below ROOT as they are.
# The module is its parts, in the order of their names.
file(GLOB parts ${ROOT}/*.js)
list(SORT parts)
set(out "#include \"ui/page.h\"\n\nnamespace lmtp::server {\n")
foreach(name IN ITEMS html css js)
  if(name STREQUAL "js")
    set(files ${parts})
  else()
    set(files ${ROOT}/page.${name})
  endif()
  set(bytes "")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(APPEND bytes "${text}")
  endforeach()
  string(SHA256 hash "${bytes}")
  string(SUBSTRING "${hash}" 0 16 hash)
  string(APPEND out "const PageFile kPage_${name}{R\"lmtp_page(${bytes})lmtp_page\", "
    "\"\\\"${hash}\\\"\"};\n")
endforeach()
string(APPEND out "}  // namespace lmtp::server\n")
file(WRITE ${OUTPUT} "${out}")
