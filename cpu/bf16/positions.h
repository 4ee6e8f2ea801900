// The time of a window's tiles by the positions of a half, for units that load full halves. A step loads 32 lines of
// weights however few positions its halves have, so halves of few positions pay only where they let tiles read the
// image itself instead of a staged strip.
#pragma once

#include "cpu/bf16/blocking.h"

namespace gable::cpu::bf16 {

/// The fewest positions of the usual halves, of 14 or 16.
constexpr int kUsualPositions = 14;

/// Cycles of one image and group: to stage its input into a strip of the shape `whole`, and all tiles.
double staged_cycles(const Blocking& blocking, const StripShape& whole, int positions);

/// Cycles of the same tiles where they read the image, region by region.
double in_image_cycles(const Conv2dProblem& problem, const Blocking& blocking, int positions);

}  // namespace gable::cpu::bf16
