# What `cmake --install` brings: one static library with the symbols of tessera.h and no others of ours, the headers, the
# program, and what CMake and pkg-config need to find them.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All rooms in one object: symbols are bound inside it and then hidden, so that neither our names nor the inline
# functions of our libraries meet a user's; architectures, which register themselves, come along without further flags.
set(package_library ${CMAKE_BINARY_DIR}/libtessera.a)
set(package_object ${CMAKE_BINARY_DIR}/libtessera.o)
set(package_rooms base tensor gguf tokenizer device kernels placement transition memory program_build program_lower models runtime
  api)
list(TRANSFORM package_rooms PREPEND "tessera_")
set(package_objects)
foreach(room ${package_rooms})
  list(APPEND package_objects $<TARGET_OBJECTS:${room}>)
endforeach()
add_custom_command(OUTPUT ${package_library}
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${package_object} ${package_objects}
  # What is "unique" in a process (inline variables) must become weak before it can become local.
  COMMAND sh -c "${CMAKE_NM} --defined-only '${package_object}' | awk '$2 == \"u\" {print $3}' >'${package_object}.unique'"
  COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=${package_object}.unique ${package_object}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=tsr_* ${package_object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${package_library}
  COMMAND ${CMAKE_AR} rcs ${package_library} ${package_object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${package_object} ${package_object}.unique
  DEPENDS ${package_rooms} ${package_objects}
  COMMENT "Joining the rooms to libtessera.a"
  COMMAND_EXPAND_LISTS
  VERBATIM)
add_custom_target(tessera_package ALL DEPENDS ${package_library})

# The library as users see it, for examples and tests.
file(MAKE_DIRECTORY ${CMAKE_SOURCE_DIR}/include)
add_library(tessera::tessera STATIC IMPORTED GLOBAL)
set_target_properties(tessera::tessera PROPERTIES
  IMPORTED_LOCATION ${package_library}
  INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/include
  INTERFACE_LINK_LIBRARIES "fmt::fmt;PkgConfig::PCRE2;PkgConfig::UTF8PROC;Threads::Threads;stdc++;m")
add_dependencies(tessera::tessera tessera_package)

set(package_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
configure_package_config_file(cmake/tesseraConfig.cmake.in ${CMAKE_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_cmake_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The prefix is chosen when installing, and may be moved.
file(RELATIVE_PATH package_prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tessera.pc.in ${CMAKE_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/tesseraConfig.cmake ${CMAKE_BINARY_DIR}/tesseraConfigVersion.cmake
  DESTINATION ${package_cmake_dir})
install(FILES ${package_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS tessera RUNTIME)

# The manual page and the completions say what the flag table says: the program itself writes them.
if(NOT CMAKE_CROSSCOMPILING)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  # page(file, folder below the prefix, flags of `tessera help`)
  function(tessera_page file folder)
    list(JOIN ARGN " " flags)
    add_custom_command(OUTPUT ${pages}/${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
      COMMAND sh -c "'$<TARGET_FILE:tessera>' help ${flags} >'${pages}/${file}.partial'"
      COMMAND ${CMAKE_COMMAND} -E rename ${pages}/${file}.partial ${pages}/${file}
      DEPENDS tessera
      VERBATIM)
    install(FILES ${pages}/${file} DESTINATION ${folder})
    set(page_files ${page_files} ${pages}/${file} PARENT_SCOPE)
  endfunction()
  tessera_page(tessera.1 ${CMAKE_INSTALL_MANDIR}/man1 --man)
  tessera_page(tessera ${CMAKE_INSTALL_DATADIR}/bash-completion/completions --completion bash)
  tessera_page(_tessera ${CMAKE_INSTALL_DATADIR}/zsh/site-functions --completion zsh)
  tessera_page(tessera.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d --completion fish)
  add_custom_target(tessera_pages ALL DEPENDS ${page_files})
endif()
