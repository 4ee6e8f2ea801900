// The roofs of a panel: their lines and where their names have room. Used by figure.cpp and its parts alone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/report/figure.h"
#include "bench/report/figure_axes.h"
#include "bench/report/roofs.h"

namespace gable::bench::report {

// The ceilings of one panel and the scale that they are drawn on.
struct PanelRoof {
  const RoofGroup& group;
  Scale scale;
};

using NamedRoofs = std::vector<std::pair<RoofLine, std::string>>;

// The compute roofs that are drawn strongly.
std::vector<const Ceiling*> best_of_each_dtype(const RoofGroup& group);

// The boxes of everything that is already in the plot.
std::vector<Box> taken(const Panel& panel);

// Adds every roof; returns the flat ones with their names.
NamedRoofs add_ceilings(Panel& panel, const PanelRoof& roof);

// Writes the names of bandwidths along their diagonals, where there is room.
void name_diagonals(Panel& panel, const PanelRoof& roof, FigureSize size);

// Writes the ceilings' names into the right margin and pushes them apart until none covers another.
void name_ceilings_in_margin(Panel& panel, NamedRoofs named);

// On small screens there is no margin: only the strong ceilings are named, above their line, where there is room.
void name_ceilings_inside(Panel& panel, const NamedRoofs& named);

// The width of the margin that the ceilings' names need.
double margin_of(const RoofGroup& group);

}  // namespace gable::bench::report
