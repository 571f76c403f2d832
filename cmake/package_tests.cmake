# Tests of the package from outside: programs in C and C++ that know tessera.h or tessera.hpp only (one of them fails
# allocations, and for that shares a file with other tests) and link what users link, the library's symbols, and a
# scratch project built from an installation.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(tiny_model ${CMAKE_SOURCE_DIR}/tests/data/tiny/tiny-llama.gguf)

add_library(package_user_options INTERFACE)
target_compile_options(package_user_options INTERFACE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(package_user_options INTERFACE tessera::tessera)
if(TESSERA_SANITIZE)
  target_compile_options(package_user_options INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(package_user_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()

# The examples run as tests: simple_chat.c, the same over the C++ wrapper, and switch_placement.c.
foreach(source simple_chat.c simple_chat_cpp.cc switch_placement.c)
  cmake_path(GET source STEM name)
  add_executable(${name} ${CMAKE_SOURCE_DIR}/examples/${source})
  target_link_libraries(${name} PRIVATE package_user_options)
  add_test(NAME ${name} COMMAND ${name} ${tiny_model} "Once upon a time" 8)
endforeach()

file(GLOB walk_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/c_api/walk*.c)
add_executable(c_api_walk ${walk_sources})
target_link_libraries(c_api_walk PRIVATE package_user_options)
add_test(NAME c_api_walk COMMAND c_api_walk ${CMAKE_SOURCE_DIR}/tests/data)

tessera_quick(${CMAKE_SOURCE_DIR}/tests/c_api/wrapper_test.cc)
add_executable(c_api_wrapper_test ${CMAKE_SOURCE_DIR}/tests/c_api/wrapper_test.cc)
target_link_libraries(c_api_wrapper_test PRIVATE package_user_options GTest::gtest_main GTest::gmock)
target_compile_definitions(c_api_wrapper_test PRIVATE TESSERA_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
add_test(NAME c_api_wrapper COMMAND c_api_wrapper_test)

add_executable(c_api_no_memory ${CMAKE_SOURCE_DIR}/tests/c_api/no_memory.cc
  ${CMAKE_SOURCE_DIR}/tests/support/allocations.cc)
target_include_directories(c_api_no_memory PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(c_api_no_memory PRIVATE package_user_options)
add_test(NAME c_api_no_memory
  COMMAND c_api_no_memory ${tiny_model} ${CMAKE_SOURCE_DIR}/tests/data/tiny/tiny-qwen35.gguf)

add_executable(c_api_cycles ${CMAKE_SOURCE_DIR}/tests/c_api/cycles.cc)
target_link_libraries(c_api_cycles PRIVATE package_user_options)
add_test(NAME c_api_cycles COMMAND c_api_cycles ${tiny_model})

add_executable(c_api_logits ${CMAKE_SOURCE_DIR}/tests/c_api/logits.c)
target_link_libraries(c_api_logits PRIVATE package_user_options)
add_test(NAME c_api_logits COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/c_api/logits_test.py
  $<TARGET_FILE:c_api_logits> $<TARGET_FILE:tessera>)

add_test(NAME c_api_symbols COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/scripts/check_c_api.py
  --nm ${CMAKE_NM} ${package_library})
add_test(NAME c_api_symbols_self_test COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/scripts/check_c_api.py
  --self-test)

add_test(NAME package COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/c_api/package_test.py
  ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER} "${TESSERA_SANITIZE}")
