# cmake -D OUT=page_files.cc -D DIR=src/server/page -P embed_page.cmake: the files of DIR as the table of static_files.h.

file(GLOB paths RELATIVE ${DIR} ${DIR}/*)
set(arrays)
set(rows)
foreach(path ${paths})
  file(READ ${DIR}/${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER "k_${path}" name)
  string(APPEND arrays "constexpr unsigned char ${name}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", view(${name})},\n")
endforeach()
file(WRITE ${OUT} "// Made by cmake/embed_page.cmake.\n#include \"server/static_files.h\"\n\nnamespace tessera {\nnamespace {\n\n${arrays}
template <size_t n>
std::string_view view(const unsigned char (&bytes)[n]) {
  return {reinterpret_cast<const char*>(bytes), n};
}

}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {\n${rows}  };
  return kFiles;
}

}  // namespace tessera\n")
