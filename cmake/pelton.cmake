# Build rules shared by every folder: one library a folder, tests beside their sources.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(simdjson REQUIRED)

# Contraction is off so that a product and a sum round the same in every kernel; kernels ask for FMA by name.
# nvcc takes its own options (cmake/pelton_cuda.cmake).
add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall;-Wextra;-Wpedantic;-ffp-contract=off>")
# Warnings of g++ 12 that its own standard library triggers when inlined.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wno-restrict;-Wno-maybe-uninitialized>")
endif()
if(PELTON_WERROR)
  add_compile_options("$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Werror>")
endif()
add_compile_definitions(PELTON_DEBUG_CHECKS=$<BOOL:${PELTON_DEBUG_CHECKS}>)
if(PELTON_SANITIZE)
  add_compile_options(-fsanitize=${PELTON_SANITIZE} -fno-omit-frame-pointer)
  string(REPLACE ",fuzzer-no-link" "" _link_sanitize "${PELTON_SANITIZE}")
  add_link_options(-fsanitize=${_link_sanitize})
  if(PELTON_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

if(PELTON_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# The folders that fuzz targets reach and whose branches they follow; a fifth of a sanitizer tree's minutes elsewhere.
set(PELTON_FUZZED base json core kv_blocks sched sched_testing weights weights_testing template text output server_api
  bench_serve stop_text formats)
set(PELTON_UNFUZZED_FLAGS "")
if(PELTON_SANITIZE MATCHES "fuzzer-no-link")
  set(PELTON_UNFUZZED_FLAGS -fno-sanitize=fuzzer-no-link)
endif()

# What is tested is optimised, its tests need not be: they are half of the sources.
set(PELTON_TEST_FLAGS "$<$<CXX_COMPILER_ID:GNU>:-O1>" ${PELTON_UNFUZZED_FLAGS})
if(PELTON_SANITIZE)
  list(APPEND PELTON_TEST_FLAGS -O0)
endif()

# Headers that most sources read, and those of tests, compiled once: a third of a build from nothing. ccache keeps what
# uses them if its sloppiness is pch_defines,time_macros and no time stamp is in them. The preset cuda-test, which does
# without, shows a missing #include, and the two warnings that are off here for g++ 12: it forgets that what it read from
# them is its own library.
if(PELTON_PRECOMPILE)
  file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cc "")
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # The driver's own options, whose paths ccache can read. A header names the folder it was made in, and ccache must
    # not hand it to another one: hence the definition, which no source sees.
    set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -x c++-header -Xclang -fno-pch-timestamp
      -DPELTON_PRECOMPILED_IN=${CMAKE_BINARY_DIR} -include <PCH_HEADER>)
    set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
  else()
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-array-bounds>")
  endif()
  set(_common_headers <algorithm> <array> <functional> <map> <memory> <optional> <span> <string> <string_view>
    <unordered_map> <variant> <vector> <fmt/core.h>)
  function(pelton_precompiled name)
    add_library(pelton_${name} STATIC ${CMAKE_BINARY_DIR}/precompiled.cc)
    target_precompile_headers(pelton_${name} PRIVATE ${_common_headers} ${ARGN})
    target_link_libraries(pelton_${name} PRIVATE fmt::fmt)
  endfunction()
  pelton_precompiled(precompiled)
  if(PELTON_UNFUZZED_FLAGS)
    pelton_precompiled(precompiled_unfuzzed)
    target_compile_options(pelton_precompiled_unfuzzed PRIVATE ${PELTON_UNFUZZED_FLAGS})
  endif()
  if(PELTON_TESTS)
    pelton_precompiled(precompiled_test <gmock/gmock.h> <gtest/gtest.h>)
    target_compile_options(pelton_precompiled_test PRIVATE ${PELTON_TEST_FLAGS})
    target_link_libraries(pelton_precompiled_test PRIVATE GTest::gtest GTest::gmock)
  endif()
endif()

# pelton_library(NAME [OWN_FLAGS] SRCS ... [DEPS ...]): static library pelton_NAME; DEPS are pelton folders or external
# targets. OWN_FLAGS: its sources are compiled for processors of their own, which precompiled headers do not fit.
function(pelton_library name)
  cmake_parse_arguments(ARG "OWN_FLAGS" "" "SRCS;DEPS" ${ARGN})
  add_library(pelton_${name} STATIC ${ARG_SRCS})
  set(precompiled pelton_precompiled)
  if(PELTON_UNFUZZED_FLAGS AND NOT name IN_LIST PELTON_FUZZED)
    set(precompiled pelton_precompiled_unfuzzed)
    target_compile_options(pelton_${name} PRIVATE ${PELTON_UNFUZZED_FLAGS})
  endif()
  if(PELTON_PRECOMPILE AND NOT ARG_OWN_FLAGS)
    target_precompile_headers(pelton_${name} REUSE_FROM ${precompiled})
  endif()
  target_include_directories(pelton_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(pelton_${name} PUBLIC Threads::Threads fmt::fmt)
  foreach(dep ${ARG_DEPS})
    if(TARGET ${dep} OR dep MATCHES "::")
      target_link_libraries(pelton_${name} PUBLIC ${dep})
    else()
      target_link_libraries(pelton_${name} PUBLIC pelton_${dep})
    endif()
  endforeach()
endfunction()

# pelton_test(NAME [SLOW] SRCS ... DEPS ...): one gtest binary pelton_NAME_test, each case a ctest test. SLOW ones carry
# that label: sanitizer runs leave them out.
function(pelton_test name)
  if(NOT PELTON_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SLOW" "" "SRCS;DEPS" ${ARGN})
  add_executable(pelton_${name}_test ${ARG_SRCS})
  target_include_directories(pelton_${name}_test PRIVATE ${CMAKE_SOURCE_DIR})  # tests/support
  foreach(dep ${ARG_DEPS})
    if(TARGET ${dep} OR dep MATCHES "::")
      target_link_libraries(pelton_${name}_test PRIVATE ${dep})
    else()
      target_link_libraries(pelton_${name}_test PRIVATE pelton_${dep})
    endif()
  endforeach()
  target_compile_options(pelton_${name}_test PRIVATE ${PELTON_TEST_FLAGS})
  target_link_libraries(pelton_${name}_test PRIVATE pelton_source_root GTest::gtest GTest::gmock GTest::gtest_main)
  if(PELTON_PRECOMPILE)
    target_precompile_headers(pelton_${name}_test REUSE_FROM pelton_precompiled_test)
  endif()
  set(labels "")
  if(ARG_SLOW)
    set(labels LABELS slow)
  endif()
  gtest_discover_tests(pelton_${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600 ${labels})
endfunction()

# pelton_fuzz(NAME DEPS ...): libFuzzer target fuzz_NAME from NAME.cc; its corpus is fuzz/corpus/NAME.
function(pelton_fuzz name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_executable(fuzz_${name} ${name}.cc)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(fuzz_${name} PRIVATE pelton_${dep})
  endforeach()
endfunction()
