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
  if(GABLE_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${GABLE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${name} PRIVATE -fsanitize=${GABLE_SANITIZE})
  endif()
endfunction()
