# What the tests of an installed or embedded gable share: commands that must succeed, and texts that must be there.

# run_step(what program arguments…): `output` is what it printed.
macro(run_step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
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
