#include "plain_rows.h"

#include <algorithm>
#include <cmath>

namespace lmtp::kernels::plain {

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  stream.pool().parallel_for(static_cast<int>(args.cosines.rows), [&](int row, int) {
    const auto position = static_cast<float>(args.positions[row]);
    for (std::int64_t i = 0; i < args.cosines.columns; ++i) {
      const float angle = position * args.inverse_periods[i];
      args.cosines.row(row)[i] = args.factor * std::cos(angle);
      args.sines.row(row)[i] = args.factor * std::sin(angle);
    }
  });
}

void gather_rows(Stream&, const GatherRowsArgs& args) {
  for (std::int64_t row = 0; row < args.y.rows; ++row) {
    std::copy_n(args.x.row(args.rows[row]), args.x.columns, args.y.row(row));
  }
}

}  // namespace lmtp::kernels::plain
