// Text for people and for markup.
#include "bench/common/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace gable::bench {
namespace {

// Advance widths of DejaVu Sans for U+0020 … U+007E, in thousandths of the font size.
constexpr std::array<uint16_t, 95> kRegular = {
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361,  318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,  611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,  635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,  525, 636, 337, 636, 838};
constexpr std::array<uint16_t, 95> kBold = {
    348, 456,  521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415,  380, 365, 696, 696,  696,
    696, 696,  696, 696, 696, 696,  696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830,  683,
    683, 821,  837, 372, 372, 775,  637, 995, 837, 850, 733, 850, 770, 720,  682, 812, 774, 1103, 771,
    724, 725,  457, 365, 457, 838,  500, 500, 675, 716, 593, 716, 678, 435,  716, 712, 343, 343,  665,
    343, 1042, 712, 687, 716, 716,  493, 595, 478, 712, 652, 924, 645, 652,  582, 712, 365, 712,  838};
constexpr double kWidestOther =
    1.0;  // any other character: one em, so that the estimate is too wide rather than too narrow
constexpr double kMiddleDot = 0.318;

constexpr uint32_t kReplacement = 0xFFFD;

struct CodePoint {
  uint32_t value = kReplacement;
  size_t length = 1;
};

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The code point at the start of `text`; broken, overlong or surrogate sequences give U+FFFD and one byte.
CodePoint decode(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  uint32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return {};
    value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kLeast[length] || value > 0x10FFFF || surrogate || value == 0xFFFE || value == 0xFFFF) return {};
  return {value, length};
}

/// The last two: marks that change the direction of the text behind them, so that it reads as another.
bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

template <class Emit>
std::string transform(std::string_view text, Emit emit) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const bool bad = point.value == kReplacement || is_control(point.value);
    if (bad) {
      out += "\xEF\xBF\xBD";
    } else {
      emit(out, point.value, text.substr(0, point.length));
    }
    text.remove_prefix(point.length);
  }
  return out;
}

std::string scaled(double value, std::string_view unit, double step, const std::array<const char*, 7>& prefixes) {
  size_t i = 0;
  while (i + 1 < prefixes.size() && std::abs(value) >= 999.5 / 1000 * step) {
    value /= step;
    ++i;
  }
  return fmt::format("{} {}{}", number_text(value), prefixes[i], unit);
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace

std::string number_text(double value) {
  constexpr int kMaxDigits = 15;
  if (value == 0) return "0";
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(value)) + std::log10(1 + 5e-4)));
  if (magnitude < -5 || magnitude >= kMaxDigits) return fmt::format("{:.2e}", value);
  if (magnitude >= 3) {
    const double unit = std::pow(10, magnitude - 2);
    return fmt::format("{:.0f}", std::round(value / unit) * unit);
  }
  return fmt::format("{:.{}f}", value, 2 - magnitude);
}

std::string seconds_text(double seconds) {
  constexpr std::array<const char*, 4> kUnits = {"ns", "µs", "ms", "s"};
  double value = seconds * 1e9;
  size_t i = 0;
  while (i + 1 < kUnits.size() && value >= 999.5) {
    value /= 1000;
    ++i;
  }
  return fmt::format("{} {}", number_text(value), kUnits[i]);
}

std::string si_text(double value, std::string_view unit) {
  return scaled(value, unit, 1000, {"", "k", "M", "G", "T", "P", "E"});
}

std::string flops_text(double flops) {
  // GFLOP/s is the axis' unit, so it is used for slower kernels too.
  return flops < 1e9 ? number_text(flops / 1e9) + " GFLOP/s" : si_text(flops, "FLOP/s");
}

std::string bandwidth_text(double bytes_per_second) { return si_text(bytes_per_second, "B/s"); }

std::string rate_text(double value, std::string_view unit) {
  if (unit == "s") return seconds_text(value);
  return unit == "instruction/s" ? number_text(value / 1e9) + " GIPS" : si_text(value, unit);
}

std::string joules_text(double joules) {
  if (joules >= 1) return si_text(joules, "J");
  return joules >= 1e-3 ? number_text(joules * 1e3) + " mJ" : number_text(joules * 1e6) + " µJ";
}

std::string bytes_text(double bytes) { return scaled(bytes, "B", 1024, {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}); }

std::string tick_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string level_text(std::string_view level) {
  std::string text(level);
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

std::string threads_text(int threads, int out_of) {
  if (out_of > 0) return fmt::format("{} of {} threads", threads, out_of);
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

std::string escape_markup(std::string_view text) {
  return transform(text, [](std::string& out, uint32_t point, std::string_view bytes) {
    switch (point) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += bytes;
    }
  });
}

std::string printable(std::string_view text) {
  return transform(text, [](std::string& out, uint32_t, std::string_view bytes) { out += bytes; });
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

std::string shortened(std::string_view text, size_t most) {
  if (count_code_points(text) <= most) return std::string(text);
  size_t bytes = 0;
  for (size_t points = 0; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80;
    if (begins && points++ == most - 1) break;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

double text_width(std::string_view text, double font_size, bool bold) {
  double ems = 0;
  while (!text.empty()) {
    const CodePoint point = decode(text);
    text.remove_prefix(point.length);
    if (point.value >= 0x20 && point.value < 0x7F) {
      ems += (bold ? kBold : kRegular)[point.value - 0x20] / 1000.0;
    } else {
      ems += point.value == 0xB7 ? kMiddleDot : kWidestOther;
    }
  }
  return ems * font_size;
}

std::string fit_text(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  std::string kept;
  while (!text.empty()) {
    const size_t length = decode(text).length;
    std::string longer = kept + std::string(text.substr(0, length));
    if (text_width(longer + "…", font_size) > width) break;
    kept = std::move(longer);
    text.remove_prefix(length);
  }
  return kept + "…";
}

std::string short_kernel_name(const std::string& demangled) {
  std::string text = demangled;
  replace_all(text, "(anonymous namespace)::", "");
  if (text.starts_with("void ")) text.erase(0, 5);
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0) return text.substr(0, i);
  }
  return text;
}

}  // namespace gable::bench
