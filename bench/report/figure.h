// The roofline figure as geometry: ranges, roofs, points and the place of each label. svg.h draws it; tests check that
// nothing in it collides.
#pragma once

#include <string>
#include <vector>

#include "bench/report/geometry.h"
#include "bench/report/study.h"

namespace gable::bench::report {

struct Marker {
  size_t measurement = 0;
  Pixel center;
  double x_lo = 0, x_hi = 0, y_lo = 0, y_hi = 0;  // quartile bars; equal to the centre without quartiles
  bool has_x_bar = false;
  double bound_x = 0;     // where the row stands at the level that bounds it; the centre's x where that is DRAM
  size_t shape = 0;       // rank of the series: each has a shape of its own
  std::string precision;  // names the colour and the glyph inside
  std::string source;     // of Q: counter, simulated or analytic
  bool filled = true;     // warm; a cold cache is hollow
  bool flagged = false;   // the row breaks a consistency rule: drawn with a ring
  Box box;
};

struct Stem {  // joins the points of one problem at one intensity
  Segment line;
  std::vector<size_t> measurements;
};

struct Label {
  std::string text;
  Box box;
  Segment leader;
  bool has_leader = false;
  std::vector<size_t> measurements;
};

struct RoofLine {
  Segment line;
  std::string dtype;  // empty: ink (bandwidth)
  bool strong = false;
};

struct RoofText {
  std::string text;
  Pixel at;
  double degrees = 0;  // 0: horizontal
  double size = 0;
  std::string dtype;
  bool at_end = false;  // the text ends at `at` (else it begins there)
  Segment leader;       // from the roof's end to the text, in the margin
  bool has_leader = false;
  std::vector<Box> boxes;
};

struct Ridge {
  Pixel at;
};

struct Tick {
  double at = 0;
  std::string text;  // empty: a minor line
};

struct Panel {
  std::string title, subtitle;
  bool gpu = false;
  Box frame, plot;
  std::vector<Tick> x_ticks, y_ticks;
  std::vector<RoofLine> roofs;
  std::vector<RoofText> roof_texts;
  std::vector<Ridge> ridges;
  std::vector<Stem> stems;
  std::vector<Marker> markers;
  std::vector<Label> labels;
  bool numbered = false;  // labels are numbers of Figure::key
  size_t unlabelled = 0;  // problems without room for a label
};

struct LegendEntry {
  std::string text{};
  std::string precision{};  // colour, when it explains one
  size_t shape = 0;
  std::string source = "counter";
  bool filled = true;
  Pixel at{};  // centre of the marker
  bool flagged = false;
};

struct KeyEntry {
  int number = 0;
  std::string text;
  Pixel at;
};

struct Figure {
  double width = 0, height = 0;
  std::string title;
  std::vector<std::string> subtitle;
  std::vector<Panel> panels;
  std::vector<LegendEntry> legend;
  std::vector<KeyEntry> key;
  std::string note;  // counts of what the plot can't show
  Pixel note_at;
};

enum class FigureSize { wide, narrow };

struct FigureFonts {
  double title = 17, subtitle = 11.5, panel = 13, axis = 11, tick = 10.5, label = 10, roof = 9.5, legend = 11;
};
inline constexpr FigureFonts kFonts{};

// All series of all panels; a series' rank in this list is its shape.
std::vector<std::string> series_of(const Studies& studies);
// The colours of all points.
std::vector<std::string> precisions_of(const Studies& studies);
// "L2"; a GPU's L1 roof is of its shared memory.
std::string level_name(const Ceiling& bandwidth);

// One line for each machine: its name, threads and date.
std::vector<std::string> subtitle_of(const Studies& studies);

// A panel for each group of rows that share roofs (roofs.h), all with the same axes, two in a line. `narrow` is for
// small screens: a panel 360 px wide, panels below each other, labels as numbers.
Figure lay_out(const Studies& studies, FigureSize size = FigureSize::wide);

}  // namespace gable::bench::report
