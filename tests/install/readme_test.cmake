# README.md shows examples/first_conv.cpp and examples/first_conv.py word for word. Tests compile and run both, so they can't
# rot. cmake -D SOURCE=<source folder> -P readme_test.cmake
file(READ ${SOURCE}/README.md readme)
foreach(language IN ITEMS cpp python)
  string(REPLACE "python" "py" extension ${language})
  file(READ ${SOURCE}/examples/first_conv.${extension} example)
  string(FIND "${readme}" "```${language}\n${example}```\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "README.md has no ```${language} block that equals examples/first_conv.${extension}: copy the file into it")
  endif()
endforeach()
