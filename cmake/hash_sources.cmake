# cmake -DROOT=... -DGLOBS=... -DSETTINGS=... -DOUTPUT=... -P hash_sources.cmake
# Writes the source of lmtp::agent::kBuildHash: a hash of the files that the globs below ROOT find,
# and of the settings.
string(REPLACE "," ";" GLOBS "${GLOBS}")
list(TRANSFORM GLOBS PREPEND ${ROOT}/)
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${GLOBS})
list(SORT sources)
set(all "${SETTINGS}")
foreach(source IN LISTS sources)
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "\n${source} ${hash}")
endforeach()
string(SHA256 hash "${all}")
set(text "#include \"numerics_id.h\"\n
const char* const lmtp::agent::kBuildHash = \"${hash}\";\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
