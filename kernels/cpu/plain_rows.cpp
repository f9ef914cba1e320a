#include "plain_rows.h"

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

}  // namespace lmtp::kernels::plain
