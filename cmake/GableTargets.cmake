option(GABLE_WERROR "Make warnings of the C and C++ compilers errors" OFF)
if(GABLE_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()

option(GABLE_UNITY "Compile the files of a folder together, eight at a time, and precompile headers of tests" OFF)

# gable_unity(TARGET): with GABLE_UNITY the target's files of one folder are compiled together, so no two of them may
# define the same file-local name. Kernels are compiled alone: those for each instruction set, which include themselves,
# and those for one of them.
function(gable_unity name)
  if(NOT GABLE_UNITY)
    return()
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${name} SOURCES)
  get_target_property(directory ${name} SOURCE_DIR)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${directory} NORMALIZE)
    file(STRINGS ${source} alone REGEX "^#include .*(foreach_target\\.h|_x86-inl\\.h|immintrin\\.h)")
    if(NOT alone)
      cmake_path(GET source PARENT_PATH folder)
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
      string(MAKE_C_IDENTIFIER ${folder} group)
      math(EXPR count "0${${group}} + 1")
      set(${group} ${count})
      math(EXPR part "(${count} - 1) / 8")
      set_property(SOURCE ${source} TARGET_DIRECTORY ${name} PROPERTY UNITY_GROUP ${group}_${part})
    endif()
  endforeach()
endfunction()

# gable_brief(TARGET files...): files that run for milliseconds, whose templates of options and JSON take a third less time
# to compile without GCC's later optimisations.
function(gable_brief name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT GABLE_SANITIZE)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${name} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

option(GABLE_HARDEN "Check buffers and stacks at run time, and make tables of addresses read-only; kernels are left out" ON)

# Overflows of buffers and stacks end the process instead of going on. Not in kernels, which check nothing in their loops
# by design, and not with sanitizers, which find more.
function(gable_harden name)
  if(NOT GABLE_HARDEN OR GABLE_SANITIZE OR name STREQUAL "gable_cpu_kernels")
    return()
  endif()
  set(host $<COMPILE_LANGUAGE:C,CXX>)
  target_compile_options(${name} PRIVATE
    $<${host}:-fstack-protector-strong>
    $<$<AND:${host},$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE>
    $<$<AND:${host},$<NOT:$<CONFIG:Debug>>>:-D_FORTIFY_SOURCE=2>)
  target_link_options(${name} PRIVATE -Wl,-z,relro,-z,now)
endfunction()

# Programs with sanitizers are large: LLVM's linker takes a quarter of the time for them.
set(gable_quick_linker "")
if(GABLE_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld GABLE_HAS_LLD)
  if(GABLE_HAS_LLD)
    set(gable_quick_linker -fuse-ld=lld)
  endif()
endif()

# What every target of gable has in common: C++20, strict warnings, hidden symbols, the sanitizers of the preset.
function(gable_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 and 13 report string concatenation as overlapping copies: gcc.gnu.org/PR105329, PR105651.
    target_compile_options(${name} PRIVATE -Wno-restrict)
  endif()
  gable_harden(${name})
  if(GABLE_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${GABLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC's default allocation of registers takes minutes for a file of checked kernels. Null pointers, accesses beyond an
      # object and pointers that wrap are AddressSanitizer's too, as soon as they are used; the fuzzers' build (the preset
      # fuzz) has all checks.
      target_compile_options(${name} PRIVATE
        -fira-region=one -fira-algorithm=priority -fno-sanitize=null,object-size,pointer-overflow)
      # Up to 512 MiB (in KiB here) GCC need not look for garbage, which takes a tenth of the time. Kernels would take
      # more memory than two jobs have.
      if(NOT name STREQUAL "gable_cpu_kernels")
        target_compile_options(${name} PRIVATE --param=ggc-min-heapsize=524288)
      endif()
      # Rooms that compute little take a third less time to compile without optimisation, and again a quarter less without
      # checks of alignment, which the fuzzers' build has.
      if(name MATCHES "^gable_(bench|fuzz_targets|measure|overhead|perfcounters|record|report|rows)$")
        target_compile_options(${name} PRIVATE -O0 -fno-sanitize=alignment)
      endif()
      # The checks that the sanitizers insert mislead GCC's analysis of flow: its findings are errors in other builds.
      target_compile_options(${name} PRIVATE
        -Wno-maybe-uninitialized
        -Wno-error=array-bounds
        -Wno-error=dangling-pointer
        -Wno-error=free-nonheap-object
        -Wno-error=null-dereference
        -Wno-error=stringop-overflow
        -Wno-error=stringop-overread
        -Wno-error=use-after-free)
    endif()
    target_link_options(${name} PRIVATE -fsanitize=${GABLE_SANITIZE} ${gable_quick_linker})
  endif()
endfunction()

# gable_product(TARGET DESTINATION): a library or program that users get. It is built by gable_products, installed into
# DESTINATION, and finds libgable from there.
function(gable_product target destination)
  set_property(GLOBAL APPEND PROPERTY GABLE_PRODUCTS ${target})
  if(NOT GABLE_INSTALL)
    return()
  endif()
  set(folder ${CMAKE_INSTALL_PREFIX})
  cmake_path(APPEND folder ${destination})
  file(RELATIVE_PATH libdir_from_folder ${folder} ${CMAKE_INSTALL_FULL_LIBDIR})
  string(REGEX REPLACE "/$" "" libdir_from_folder "${libdir_from_folder}")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${libdir_from_folder}")
  install(TARGETS ${target} LIBRARY DESTINATION ${destination} COMPONENT library RUNTIME DESTINATION ${destination})
endfunction()

# gable_plugin(NAME sources...): the plugin libgable_X.so for the target gable_X. It is built beside libgable and
# installed into the folder `gable` beside it; the loader looks in both.
function(gable_plugin name)
  add_library(${name} MODULE ${ARGN})
  gable_target(${name})
  target_link_libraries(${name} PRIVATE gable::gable)
  # Symbols of the static libraries in it stay inside.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  gable_product(${name} ${CMAKE_INSTALL_LIBDIR}/gable)
endfunction()
