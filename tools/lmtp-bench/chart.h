// Line charts as a self-contained SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lmtp::tools {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, x ascending
  int color = 0;                                  // series of one color belong together
  bool dashed = false;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  // Labels for some x values; others are labelled by their number.
  std::vector<std::pair<double, std::string>> x_names;
};

// The charts below one another under a heading. The x axis has a tick at each x of the points, and
// is logarithmic if they span more than a factor of 8. The y axis begins at 0; it is logarithmic,
// without points at 0, if they span more than a factor of 50. REQUIRES: numbers are finite and not
// negative.
std::string charts_svg(const std::string& heading, const std::vector<Chart>& charts);

// The ticks of a linear axis from 0: at most about `count`, at steps of 1, 2 or 5 times a power of
// ten; the last is not below `highest`. REQUIRES: highest > 0, count >= 1.
std::vector<double> linear_ticks(double highest, int count);

}  // namespace lmtp::tools
