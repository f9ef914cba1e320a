#include "chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace lmtp::tools {
namespace {

constexpr double kWidth = 760;
constexpr double kHeadingHeight = 44;
constexpr double kChartHeight = 270;
constexpr double kLeft = 76;  // margins around the plotted area
constexpr double kRight = 190;
constexpr double kTop = 30;
constexpr double kBottom = 48;
constexpr double kLegendRow = 17;
constexpr double kTickGap = 34;  // minimum distance of two labels on the x axis
constexpr int kNumYTicks = 5;
constexpr double kLogFromXRatio = 8;
constexpr double kLogFromYRatio = 50;
// Okabe and Ito's palette for color-blind readers.
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out.append("&amp;");
    } else if (c == '<') {
      out.append("&lt;");
    } else if (static_cast<unsigned char>(c) >= 0x20U) {
      out.push_back(c);
    }
  }
  return out;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string label(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

void append_text(double x, double y, const char* anchor, const std::string& text, std::string& out,
                 const char* more = "") {
  out.append("<text x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" text-anchor=\"" + anchor + "\"")
      .append(more)
      .append(">" + escaped(text) + "</text>\n");
}

void append_line(double x1, double y1, double x2, double y2, const std::string& style,
                 std::string& out) {
  out.append("<line x1=\"" + fixed(x1) + "\" y1=\"" + fixed(y1) + "\" x2=\"" + fixed(x2) +
             "\" y2=\"" + fixed(y2) + "\" " + style + "/>\n");
}

// From values to positions on the page.
class Axis {
 public:
  Axis(double lowest, double highest, bool logarithmic, double from, double to)
      : logarithmic_(logarithmic),
        lowest_(of(lowest)),
        span_(std::max(of(highest) - lowest_, 1e-12)),
        from_(from),
        to_(to) {}

  double place(double value) const { return from_ + (of(value) - lowest_) / span_ * (to_ - from_); }
  bool shows(double value) const { return !logarithmic_ || value > 0; }

 private:
  double of(double value) const { return logarithmic_ ? std::log10(value) : value; }

  bool logarithmic_;
  double lowest_;
  double span_;
  double from_;
  double to_;
};

std::vector<double> values_of(const Chart& chart, bool x) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const auto& point : series.points) values.push_back(x ? point.first : point.second);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

struct Ticks {
  std::vector<double> values;  // ascending; the axis goes from the first to the last
  bool logarithmic = false;
};

Ticks y_ticks(const Chart& chart) {
  std::vector<double> values = values_of(chart, false);
  std::erase_if(values, [](double value) { return value <= 0; });
  if (values.empty()) return {{0, 1}};
  if (values.back() / values.front() <= kLogFromYRatio) {
    return {linear_ticks(values.back(), kNumYTicks)};
  }
  Ticks ticks{{}, true};
  double power = std::pow(10, std::floor(std::log10(values.front())));
  while (ticks.values.empty() || ticks.values.back() < values.back()) {
    ticks.values.push_back(power);
    power *= 10;
  }
  return ticks;
}

Axis x_axis(const std::vector<double>& values) {
  const double low = values.front();
  const double high = values.back();
  const bool logarithmic = low > 0 && high / low > kLogFromXRatio;
  const double from = kLeft + 14;
  const double to = kWidth - kRight - 14;
  if (low == high) return {low - 1, low + 1, false, from, to};
  return {low, high, logarithmic, from, to};
}

void append_axes(const Chart& chart, const std::vector<double>& x_values, const Axis& x,
                 const Ticks& y_marks, const Axis& y, double top, std::string& out) {
  const double bottom = top + kChartHeight - kBottom;
  for (const double mark : y_marks.values) {
    append_line(kLeft, y.place(mark), kWidth - kRight, y.place(mark), "stroke=\"#ddd\"", out);
    append_text(kLeft - 8, y.place(mark) + 4, "end", label(mark), out);
  }
  append_line(kLeft, bottom, kWidth - kRight, bottom, "stroke=\"#333\"", out);
  double last_label = -kWidth;
  for (const double value : x_values) {
    const double at = x.place(value);
    append_line(at, bottom, at, bottom + 5, "stroke=\"#333\"", out);
    if (at - last_label < kTickGap) continue;
    last_label = at;
    const auto named = std::find_if(chart.x_names.begin(), chart.x_names.end(),
                                    [value](const auto& name) { return name.first == value; });
    append_text(at, bottom + 19, "middle",
                named == chart.x_names.end() ? label(value) : named->second, out);
  }
  append_text((kLeft + kWidth - kRight) / 2, bottom + 38, "middle", chart.x_label, out);
  append_text(kLeft - 56, top + 16, "start", chart.title, out, " font-weight=\"bold\"");
  append_text(kWidth - kRight, top + 16, "end", chart.y_label, out, " fill=\"#555\"");
}

std::string stroke(const Series& series) {
  const std::string color = kColors[static_cast<std::size_t>(series.color) % kColors.size()];
  return "stroke=\"" + color + "\" stroke-width=\"2\" fill=\"none\"" +
         (series.dashed ? " stroke-dasharray=\"6 4\"" : "");
}

void append_series(const Series& series, const Axis& x, const Axis& y, std::string& out) {
  std::string line;
  std::string dots;
  const std::string color = kColors[static_cast<std::size_t>(series.color) % kColors.size()];
  for (const auto& [at, value] : series.points) {
    if (!y.shows(value)) continue;
    const std::string place_x = fixed(x.place(at));
    const std::string place_y = fixed(y.place(value));
    line.append(line.empty() ? "" : " ").append(place_x + "," + place_y);
    dots.append("<circle cx=\"" + place_x + "\" cy=\"" + place_y + "\" r=\"3\" fill=\"" + color +
                "\"><title>" + escaped(series.name) + ": " + label(value) + "</title></circle>\n");
  }
  out.append("<polyline points=\"" + line + "\" " + stroke(series) + "/>\n" + dots);
}

void append_chart(const Chart& chart, double top, std::string& out) {
  const std::vector<double> x_values = values_of(chart, true);
  if (x_values.empty()) return;
  const Axis x = x_axis(x_values);
  const Ticks marks = y_ticks(chart);
  const Axis y(marks.values.front(), marks.values.back(), marks.logarithmic,
               top + kChartHeight - kBottom, top + kTop);
  append_axes(chart, x_values, x, marks, y, top, out);
  double legend_y = top + kTop + 4;
  for (const Series& series : chart.series) {
    append_series(series, x, y, out);
    const double legend_x = kWidth - kRight + 14;
    append_line(legend_x, legend_y, legend_x + 26, legend_y, stroke(series), out);
    append_text(legend_x + 33, legend_y + 4, "start", series.name, out);
    legend_y += kLegendRow;
  }
}

}  // namespace

std::string charts_svg(const std::string& heading, const std::vector<Chart>& charts) {
  const double height = kHeadingHeight + kChartHeight * static_cast<double>(charts.size()) + 8;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + label(kWidth) +
                    "\" height=\"" + label(height) + "\" viewBox=\"0 0 " + label(kWidth) + " " +
                    label(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  append_text(kLeft - 56, 26, "start", heading, out, " font-size=\"15\" font-weight=\"bold\"");
  double top = kHeadingHeight;
  for (const Chart& chart : charts) {
    append_chart(chart, top, out);
    top += kChartHeight;
  }
  return out + "</svg>\n";
}

std::vector<double> linear_ticks(double highest, int count) {
  const double rough = highest / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < highest * (1 - 1e-9)) {
    ticks.push_back(step * static_cast<double>(ticks.size()));
  }
  return ticks;
}

}  // namespace lmtp::tools
