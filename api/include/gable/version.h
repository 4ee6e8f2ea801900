// gable's version. CMake reads it from here; a plugin carries it and is refused when it differs.
#pragma once

#define GABLE_VERSION_MAJOR 0
#define GABLE_VERSION_MINOR 1
#define GABLE_VERSION_PATCH 0
#define GABLE_VERSION_STRING "0.1.0"
