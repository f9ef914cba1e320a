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
  // Labels of x values where a number would not do; else each x is its own label.
  std::vector<std::pair<double, std::string>> x_names;
};

// The charts below one another under a heading. The x axis has a tick at each x of the points. It
// is logarithmic where they span more than a factor of 8; the y axis, which else begins at 0, where
// they span more than 50, and then leaves out what is 0. REQUIRES: numbers are finite and not
// negative.
std::string charts_svg(const std::string& heading, const std::vector<Chart>& charts);

// The marks of a linear axis from 0: at most about `count` of them, at 1, 2 or 5 times a power of
// ten; the last is not below `highest`. REQUIRES: highest > 0, count >= 1.
std::vector<double> linear_ticks(double highest, int count);

}  // namespace lmtp::tools
