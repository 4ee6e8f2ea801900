/* Marks what libgable exports; everything else is hidden. C and C++. */
#ifndef GABLE_EXPORT_H
#define GABLE_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define GABLE_API __attribute__((visibility("default")))
#else
#define GABLE_API
#endif

#endif
