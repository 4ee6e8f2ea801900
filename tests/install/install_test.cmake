# The installed gable is complete, may be moved, and needs no library of a GPU vendor:
#   install the build, move the tree, then use it as strangers do: by find_package, by pkg-config, by the command.
# cmake -D BUILD=<build folder> -D SOURCE=<source folder> -D WORK=<scratch folder> -D VERSION=<gable's version>
#       -D COMPILER=<C++ compiler> -D DEVICES=<devices to convolve on> [-D COMMAND_BUILT=1] [-D MEASURE_BUILT=1]
#       -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

# step(what program arguments…): runs it with a bare environment; `output` is what it printed.
macro(step what)
  execute_process(COMMAND env -i HOME=${WORK} PATH=$ENV{PATH} ${extra_environment} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
endmacro()

function(expect text where)
  string(FIND "${where}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "'${text}' is missing in:\n${where}")
  endif()
endfunction()

# Each plugin of the list finds libgable of its own tree.
function(expect_libgable library)
  foreach(plugin IN LISTS ARGN)
    file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${plugin}
      RESOLVED_DEPENDENCIES_VAR resolved UNRESOLVED_DEPENDENCIES_VAR unresolved)
    list(FILTER resolved INCLUDE REGEX "/libgable\\.so[^/]*$")
    cmake_path(GET library PARENT_PATH libdir)
    string(FIND "${resolved}" "${libdir}/" at)
    if(NOT at EQUAL 0)
      message(FATAL_ERROR "${plugin} has no run path to libgable of its tree; libgable is '${resolved}'")
    endif()
  endforeach()
endfunction()

# `./run build` builds gable_products: all libraries and programs that are installed.
function(expect_products)
  file(STRINGS ${BUILD}/CMakeCache.txt generator REGEX "^CMAKE_GENERATOR:INTERNAL=Ninja$")
  find_program(ninja NAMES ninja ninja-build)
  if(NOT generator OR NOT ninja)
    message("skipped: not built with ninja, gable_products was not looked into")
    return()
  endif()
  execute_process(COMMAND ${ninja} -C ${BUILD} -t query gable_products OUTPUT_VARIABLE inputs COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS ${BUILD}/install_manifest.txt installed REGEX "(/bin/[^/]*|\\.so|\\.so\\.${VERSION})$")
  foreach(file IN LISTS installed)
    cmake_path(GET file FILENAME name)
    string(REGEX REPLACE "\\.so\\.${VERSION}$" ".so" name ${name})  # the library behind the link
    string(FIND "${inputs}" "/${name}\n" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${name} is installed, but gable_products does not build it: gable_product() in its CMakeLists.txt")
    endif()
  endforeach()
endfunction()

# No file of the list may need a CUDA library to be loaded: a machine without a driver has none.
function(expect_no_gpu_library)
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${ARGN}
    RESOLVED_DEPENDENCIES_VAR resolved UNRESOLVED_DEPENDENCIES_VAR unresolved)
  list(APPEND resolved ${unresolved})
  list(FILTER resolved INCLUDE REGEX "lib(cuda|cudart|cudnn|cupti|nvidia)[^/]*$")
  if(resolved)
    message(FATAL_ERROR "${ARGN} can't be loaded without ${resolved}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
step("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
expect_products()
set(tree ${WORK}/moved)
file(RENAME ${WORK}/first ${tree})

file(GLOB_RECURSE library ${tree}/libgable.so.${VERSION})
if(NOT library)
  message(FATAL_ERROR "no libgable.so.${VERSION} in the install tree")
endif()
cmake_path(GET library PARENT_PATH libdir)
file(GLOB plugins ${libdir}/gable/libgable_*.so)
file(GLOB counters ${libdir}/gable/counters/libgable_*.so)
set(components)
set(measure_library)
if(MEASURE_BUILT)
  set(components measure)
  set(measure_library ${libdir}/libgable_measure.so)
endif()
expect_no_gpu_library(${library} ${measure_library} ${plugins} ${counters})
expect_libgable(${library} ${measure_library} ${plugins})

# libgable never prints, aborts or exits: it knows no function that does.
find_program(nm nm)
if(nm)
  step("nm" ${nm} --dynamic --undefined-only ${library})
  string(REGEX MATCH " (abort|_?exit|quick_exit|__assert_fail|v?f?printf|__v?f?printf_chk|f?puts|perror|_ZSt4c(err|out|log))(@|\n)" found "${output}")
  if(found)
    message(FATAL_ERROR "libgable calls${found}: it must throw gable::Error instead")
  endif()
endif()

step("configuring the consumer" ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/consumer -B ${WORK}/consumer -G Ninja
  -D CMAKE_PREFIX_PATH=${tree} -D CMAKE_CXX_COMPILER=${COMPILER} -D GABLE_WANTED_VERSION=${VERSION}
  -D GABLE_WANTED_COMPONENTS=${components})
step("building the consumer" ${CMAKE_COMMAND} --build ${WORK}/consumer)
step("running the consumer" ${WORK}/consumer/consumer ${DEVICES})
foreach(device IN LISTS DEVICES)
  expect("conv2d on ${device}: right" "${output}")
endforeach()
step("running the example" ${WORK}/consumer/first_conv)
expect("y[0] = 9\n" "${output}")

# The component `measure` from the moved tree: a study of own loops, which the command draws.
if(MEASURE_BUILT)
  step("measuring own loops" ${WORK}/consumer/measure_loops ${WORK}/loops.json 0.02)
  expect("stencil" "${output}")
  if(COMMAND_BUILT)
    step("drawing own loops" ${tree}/bin/gable plot ${WORK}/loops.json --out ${WORK}/loops)
    file(STRINGS ${WORK}/loops/study.csv rows REGEX ",(triad|stencil),callable,")
    list(LENGTH rows count)
    if(NOT count EQUAL 2)
      message(FATAL_ERROR "${WORK}/loops/study.csv has ${count} rows of own loops; must have 2")
    endif()
  endif()
endif()

find_program(pkg_config pkg-config)
if(pkg_config)
  set(extra_environment PKG_CONFIG_PATH=${libdir}/pkgconfig)
  step("pkg-config" ${pkg_config} --exists "gable = ${VERSION}")
  # The line of docs/layout.md, word for word.
  file(STRINGS ${SOURCE}/docs/layout.md line REGEX "^c\\+\\+ .*pkg-config")
  file(MAKE_DIRECTORY ${WORK}/by_pkg_config)
  file(COPY_FILE ${SOURCE}/examples/first_conv.cpp ${WORK}/by_pkg_config/application.cpp)
  file(WRITE ${WORK}/by_pkg_config/c++ "#!/bin/sh\nexec ${COMPILER} \"$@\"\n")
  file(CHMOD ${WORK}/by_pkg_config/c++ PERMISSIONS OWNER_READ OWNER_EXECUTE)
  step("compiling by the line of docs/layout.md" sh -c "cd ${WORK}/by_pkg_config && PATH=${WORK}/by_pkg_config:$PATH && ${line}")
  set(extra_environment)
  step("running what pkg-config built" ${WORK}/by_pkg_config/a.out)
  expect("y[0] = 9\n" "${output}")
  if(MEASURE_BUILT)
    set(extra_environment PKG_CONFIG_PATH=${libdir}/pkgconfig)
    file(WRITE ${WORK}/by_pkg_config/measure.cpp "#include <gable/measure.h>
int main() { return static_cast<int>(gable::Record().measurements().size()); }
")
    string(REPLACE "application.cpp" "measure.cpp" line "${line}")
    string(REPLACE " gable)" " gable-measure)" line "${line}")
    step("compiling with gable-measure.pc" sh -c "cd ${WORK}/by_pkg_config && PATH=${WORK}/by_pkg_config:$PATH && ${line}")
    set(extra_environment)
    step("running it" ${WORK}/by_pkg_config/a.out)
  endif()
else()
  message("skipped: pkg-config is not installed, gable.pc was not tried")
endif()

if(COMMAND_BUILT)
  step("gable list" ${tree}/bin/gable list --suite networks --dtype f32)
  expect("densenet121:1" "${output}")
  step("gable info" ${tree}/bin/gable info)
  foreach(plugin IN LISTS plugins)
    expect("from ${plugin}" "${output}")
  endforeach()
endif()
