// Text for people and for markup: numbers with units, escaping, and the width of a string in DejaVu Sans (labels are
// placed before anything is rendered, so their width is estimated here).
#pragma once

#include <string>
#include <string_view>

namespace gable::bench {

// "1.23 ms", "213 GFLOP/s", "34.1 GB/s", "32.0 KiB": three significant digits.
std::string seconds_text(double seconds);
std::string flops_text(double flops);
std::string bandwidth_text(double bytes_per_second);
std::string joules_text(double joules);  ///< "3.21 mJ"
std::string bytes_text(double bytes);
// Plain SI with a unit: si_text(3.7e9, "FLOP") = "3.70 GFLOP".
std::string si_text(double value, std::string_view unit);
// A rate of a record: "s" as a time, "instruction/s" as GIPS, anything else as SI.
std::string rate_text(double value, std::string_view unit);
// Three significant digits without an exponent: 0.0123, 1.23, 123, 12300.
std::string number_text(double value);
// A tick of an axis: 0.01, 1, 100, 10k, 1M.
std::string tick_text(double value);
std::string level_text(std::string_view level);  // "dram" -> "DRAM", "l1" -> "L1"
// "1 thread", "2 threads"; with out_of "1 of 2 threads".
std::string threads_text(int threads, int out_of = 0);

// Escapes for XML and HTML text and attribute values; what XML forbids (control characters, broken UTF-8) and marks
// that turn the direction of text become U+FFFD.
std::string escape_markup(std::string_view text);
// The same replacement without escaping, for terminals: an escape sequence in a name does not reach the terminal.
std::string printable(std::string_view text);

size_t count_code_points(std::string_view text);
// At most so many code points; the last one is "…" if some were cut off.
std::string shortened(std::string_view text, size_t most);
double text_width(std::string_view text, double font_size, bool bold = false);
inline double text_height(double font_size) { return font_size * 1.2; }
// The text, cut and ended with "…" if it is wider than `width`.
std::string fit_text(std::string_view text, double font_size, double width);

// "void gable::cuda::(anonymous namespace)::naive_kernel<float>(float const*, ...)" ->
// "gable::cuda::naive_kernel<float>".
std::string short_kernel_name(const std::string& demangled);

}  // namespace gable::bench
