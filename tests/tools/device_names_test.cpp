#include "lmtp-serve/device_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lmtp::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DeviceNames, AreThoseOfTheVariableOrNumbers) {
  EXPECT_THAT(device_names(nullptr, 3), ElementsAre("0", "1", "2"));
  EXPECT_THAT(device_names("3,GPU-8932f937,0", 3), ElementsAre("3", "GPU-8932f937", "0"));
  EXPECT_THAT(device_names("1,-1,2", 1), ElementsAre("1"));  // what the driver shows of them
  EXPECT_THAT(device_names("", 0), IsEmpty());
}

}  // namespace
}  // namespace lmtp::tools
