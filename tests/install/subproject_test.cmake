# gable as a part of another project: it leaves the project's build type and install rules alone, follows
# BUILD_SHARED_LIBS, and works as a static library, which says that it takes no plugins.
# cmake -D SOURCE=<source folder> -D WORK=<scratch folder> -D COMPILER=<C++ compiler> [-D LAUNCHER=<compiler launcher>]
#       -P subproject_test.cmake
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

# step(what program arguments…): without variables that would change what is built, and with plugins of its own.
macro(step what)
  run_step("${what}" ${CMAKE_COMMAND} -E env --unset=CMAKE_BUILD_TYPE --unset=GABLE_DEVICE
    GABLE_BACKEND_PATH=${WORK}/plugins ${ARGN})
endmacro()

# Without optimisation and for one instruction set: seconds, where all of Highway's targets take minutes.
set(options -G Ninja -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D GABLE_CUDA=OFF
  -D GABLE_UNITY=ON "-DCMAKE_CXX_FLAGS=-O0 -DHWY_COMPILE_ONLY_STATIC")
set(project ${SOURCE}/tests/install/subproject)
file(REMOVE_RECURSE ${WORK})

step("configuring, by default" ${CMAKE_COMMAND} -S ${project} -B ${WORK}/default ${options} -D WANTED_TYPE=SHARED_LIBRARY)
step("installing nothing" ${CMAKE_COMMAND} --install ${WORK}/default --prefix ${WORK}/installed)
file(GLOB_RECURSE installed ${WORK}/installed/*)
if(installed)
  message(FATAL_ERROR "gable as a subproject installs ${installed}")
endif()

# Who installs by pip or by add_subdirectory() has not read what is needed.
execute_process(COMMAND ${CMAKE_COMMAND} -S ${project} -B ${WORK}/no_highway ${options} -D WANTED_TYPE=SHARED_LIBRARY
  -D CMAKE_DISABLE_FIND_PACKAGE_hwy=ON RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
expect("libhwy-dev" "${output}")

step("configuring, static" ${CMAKE_COMMAND} -S ${project} -B ${WORK}/static ${options} -D BUILD_SHARED_LIBS=OFF
  -D WANTED_TYPE=STATIC_LIBRARY)
step("building" ${CMAKE_COMMAND} --build ${WORK}/static --target consumer)
file(WRITE ${WORK}/plugins/libgable_stranger.so "")
step("running" ${WORK}/static/consumer reference cpu)
expect("conv2d on reference: right" "${output}")
expect("conv2d on cpu: right" "${output}")
expect("static library, which takes no plugins" "${output}")
