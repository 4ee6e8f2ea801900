# Tests of what users get: headers that compile alone, the README's example, the installed tree.

# Every public header compiled alone, warnings being errors. The sources are made from the list of headers, so a new
# header can't be forgotten.
file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/api/include ${PROJECT_SOURCE_DIR}/api/include/gable/*.h)
if(NOT dlpack_FOUND)
  list(REMOVE_ITEM headers gable/dlpack.h)
endif()
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} identifier)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${identifier}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n")
  list(APPEND header_sources ${source})
endforeach()
add_library(headers_compile_alone OBJECT ${header_sources})
gable_target(headers_compile_alone)
target_compile_options(headers_compile_alone PRIVATE -Werror)
target_link_libraries(headers_compile_alone PRIVATE gable::gable $<TARGET_NAME_IF_EXISTS:dlpack::dlpack>)

add_executable(first_conv ${PROJECT_SOURCE_DIR}/examples/first_conv.cpp)
gable_target(first_conv)
target_link_libraries(first_conv PRIVATE gable::gable)
add_test(NAME example_first_conv COMMAND first_conv)
set_tests_properties(example_first_conv PROPERTIES PASS_REGULAR_EXPRESSION "y\\[0\\] = 9\n")
add_test(NAME readme COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -P ${CMAKE_CURRENT_SOURCE_DIR}/readme_test.cmake)

# A consumer built without the sanitizers can't load a libgable that has them.
if(NOT GABLE_SANITIZE)
  set(devices reference cpu)
  if(TARGET gable_onednn)
    list(APPEND devices onednn)
  endif()
  add_test(NAME install_test COMMAND ${CMAKE_COMMAND}
    -D BUILD=${PROJECT_BINARY_DIR} -D SOURCE=${PROJECT_SOURCE_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/install
    -D VERSION=${PROJECT_VERSION} -D COMPILER=${CMAKE_CXX_COMPILER} "-DDEVICES=${devices}"
    -D COMMAND_BUILT=$<TARGET_EXISTS:gable_command> -P ${CMAKE_CURRENT_SOURCE_DIR}/install_test.cmake)
endif()
