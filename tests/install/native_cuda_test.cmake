# What a build for the GPUs of this machine compiles (GABLE_CUDA_ARCHITECTURES=native), by what nvidia-smi and nvcc say,
# and where the kernels for Hopper are machine code.
# cmake -D SOURCE=<source folder> -P native_cuda_test.cmake
include(${SOURCE}/cmake/GableNativeCuda.cmake)

function(expect_native gpus codes wanted)
  gable_native_architectures(given "${gpus}" "${codes}")
  if(NOT given STREQUAL wanted)
    message(FATAL_ERROR "for GPUs '${gpus}' and an nvcc of '${codes}': '${given}', must be '${wanted}'")
  endif()
endfunction()

set(nvcc13 "sm_75\nsm_80\nsm_86\nsm_89\nsm_90\nsm_100\nsm_120\n")
expect_native("9.0\n" "${nvcc13}" "90-real")
expect_native("8.6\n8.6\n7.5\n" "${nvcc13}" "86-real;75-real")       # one machine code for equal GPUs
expect_native("8.9\n" "sm_75\nsm_80\nsm_86\n" "86-virtual")           # newer than nvcc
expect_native("12.0\n" "${nvcc13}" "90-virtual")                       # newer than the kernels
expect_native("7.0\n" "sm_70\n${nvcc13}" "")                            # Volta
expect_native("" "${nvcc13}" "")
expect_native("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n" "${nvcc13}" "")
expect_native("9.0\n" "" "")

function(expect_hopper wanted)
  foreach(architectures IN LISTS ARGN)
    string(REPLACE "," ";" architectures "${architectures}")
    gable_hopper_architecture(given "${architectures}")
    if(NOT given STREQUAL wanted)
      message(FATAL_ERROR "for '${architectures}': '${given}', must be '${wanted}'")
    endif()
  endforeach()
endfunction()

expect_hopper(90a-real 90 75-real,80-real,90 90-real 90a 90a-real 80,90a all all-major)
expect_hopper(90a-virtual 75-virtual 80-real 90-virtual 90a-virtual 86-real,75-real 190)
