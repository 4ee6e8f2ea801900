// Nothing: CMake precompiles headers for a file alone (tests/CMakeLists.txt).
