# README.md shows examples/first_conv.cpp word for word, which the tests compile and run: it can't rot.
# cmake -D SOURCE=<source folder> -P readme_test.cmake
file(READ ${SOURCE}/README.md readme)
file(READ ${SOURCE}/examples/first_conv.cpp example)
string(FIND "${readme}" "```cpp\n${example}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md has no ```cpp block that equals examples/first_conv.cpp: copy the file into it")
endif()
