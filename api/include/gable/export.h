// Marks what libgable exports; everything else is hidden.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define GABLE_API __attribute__((visibility("default")))
#else
#define GABLE_API
#endif
