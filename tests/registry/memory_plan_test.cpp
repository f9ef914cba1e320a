#include "memory_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "lmtp/cache/kv_size.h"

namespace lmtp::registry {
namespace {

constexpr std::int64_t kGi = std::int64_t{1} << 30;

std::string text_of(const MemoryDecision& decision) {
  if (const auto* now = std::get_if<LoadNow>(&decision)) {
    return "load with " + std::to_string(now->kv_bytes);
  }
  if (const auto* first = std::get_if<UnloadFirst>(&decision)) {
    return "unload " + std::to_string(first->which);
  }
  if (const auto* large = std::get_if<TooLarge>(&decision)) {
    return "needs " + std::to_string(large->needed_bytes) + " of " +
           std::to_string(large->free_bytes);
  }
  return "wait";
}

std::string load(std::int64_t kv_bytes) { return text_of(LoadNow{kv_bytes}); }
std::string unload(std::size_t which) { return text_of(UnloadFirst{which}); }
std::string refuse(std::int64_t needed, std::int64_t free) {
  return text_of(TooLarge{needed, free});
}

LoadedModel model(bool idle, int used_at, std::int64_t held, std::int64_t promised = 0) {
  return {held, promised, idle,
          std::chrono::steady_clock::time_point(std::chrono::seconds(used_at))};
}

struct Case {
  const char* why;
  MemoryNeed need;
  MemoryState state;
  std::string decision;
};

// weights, the least for the KV cache, what the user says (0: nothing), on a device
const MemoryNeed kSmall = {kGi, 1, 0, false};
const MemoryNeed kWantsMuch = {kGi, 5 * kGi, 0, false};
const MemoryNeed kTight = {7 * kGi, kGi / 2, 0, false};
const MemoryNeed kGiven = {kGi, 1, 3 * kGi, false};
const MemoryNeed kOnDevice = {20 * kGi, kGi / 2, 0, true};
const MemoryNeed kSmallOnDevice = {kGi / 2, 1, 0, true};
const MemoryNeed kGivenOnDevice = {kGi, 1, 3 * kGi, true};

const Case kCases[] = {
    {"a quarter of what is free", kSmall, {8 * kGi, 3, {}}, load(2 * kGi)},
    {"up to a limit", kSmall, {100 * kGi, 3, {}}, load(kDefaultKvBytesMax)},
    {"the limit where nobody says what is free", kSmall, {{}, 3, {}}, load(kDefaultKvBytesMax)},
    {"what one stream needs at least", kWantsMuch, {8 * kGi, 3, {}}, load(5 * kGi)},
    {"not even that", kWantsMuch, {5 * kGi, 3, {}}, refuse(6 * kGi, 5 * kGi)},
    {"less where nothing can be unloaded", kTight, {8 * kGi, 3, {}}, load(kGi)},
    {"what the user says", kGiven, {4 * kGi, 3, {}}, load(3 * kGi)},
    {"and no less", kGiven, {4 * kGi - 1, 3, {}}, refuse(4 * kGi, 4 * kGi - 1)},
    {"on a device all that is free beside the weights, less 1 GiB",
     kOnDevice,
     {139 * kGi, 3, {}},
     load(118 * kGi)},
    {"less an eighth where that is less", kOnDevice, {24 * kGi, 3, {}}, load(7 * kGi / 2)},
    {"beside another", kSmall, {6 * kGi, 3, {model(false, 0, kGi)}}, load(3 * kGi / 2)},
    {"but not in what is promised to it",
     kSmall,
     {6 * kGi, 3, {model(false, 0, 5 * kGi, 2 * kGi)}},
     load(kGi)},
    {"rather than less, an idle one goes", kTight, {8 * kGi, 3, {model(true, 0, kGi)}}, unload(0)},
    {"the least recently used of them",
     kTight,
     {8 * kGi, 5, {model(true, 9, kGi), model(false, 1, kGi), model(true, 4, kGi)}},
     unload(2)},
    {"none in use goes", kTight, {7 * kGi, 3, {model(false, 0, kGi)}}, "wait"},
    {"there is no seat", kSmall, {100 * kGi, 1, {model(false, 0, kGi)}}, "wait"},
    {"there is none until one goes", kSmall, {100 * kGi, 1, {model(true, 0, kGi)}}, unload(0)},
    {"nothing goes for what would not fit even then",
     kTight,
     {2 * kGi, 3, {model(true, 0, 3 * kGi)}},
     refuse(7 * kGi + kGi / 2, 5 * kGi)},
    {"a device full of another's KV cache",
     kOnDevice,
     {kGi, 3, {model(true, 0, 138 * kGi)}},
     unload(0)},
    {"a small one does not squeeze into its margin",
     kSmallOnDevice,
     {kGi, 3, {model(true, 0, 138 * kGi)}},
     unload(0)},
    {"but for one that is in use",
     kSmallOnDevice,
     {kGi, 3, {model(false, 0, kGi)}},
     load(7 * kGi / 16)},
    {"with the user's size it stands beside it",
     kGivenOnDevice,
     {5 * kGi, 3, {model(true, 0, 134 * kGi)}},
     load(3 * kGi)},
    {"a static server's model is sized as any other",
     kSmall,
     {8 * kGi, 1, {}, true},
     load(2 * kGi)},
    {"it gets what is left", kTight, {8 * kGi, 1, {}, true}, load(kGi)},
    {"and is tried even where it seems too large",
     kTight,
     {7 * kGi, 1, {}, true},
     load(7 * kGi / 4)},
    {"with what the user says", kGiven, {2 * kGi, 1, {}, true}, load(3 * kGi)},
    {"on a device with all that is free", kOnDevice, {139 * kGi, 1, {}, true}, load(118 * kGi)},
    {"or with what one stream needs", kOnDevice, {19 * kGi, 1, {}, true}, load(kGi / 2)},
    {"on a device that does not say what is free",
     kSmallOnDevice,
     {{}, 3, {}},
     load(kDefaultKvBytesMax)},
};

TEST(MemoryPlan, DecidesByNumbersAlone) {
  for (const Case& c : kCases) {
    EXPECT_EQ(text_of(decide_memory(c.need, c.state)), c.decision) << c.why;
  }
}

}  // namespace
}  // namespace lmtp::registry
