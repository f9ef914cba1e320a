#include "decoder.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using DecoderKind = DecoderStep::Kind;

DecoderStep decoder_step(DecoderKind kind, const std::string& content = "") {
  DecoderStep made;
  made.kind = kind;
  made.content = content;
  return made;
}

Decoder llama(bool strips = true) {
  DecoderStep replace = decoder_step(DecoderKind::kReplace, " ");
  replace.pattern = SplitPattern::literal("▁");
  DecoderStep strip = decoder_step(DecoderKind::kStrip, " ");
  strip.start = 1;
  std::vector<DecoderStep> steps = {replace, decoder_step(DecoderKind::kByteFallback),
                                    decoder_step(DecoderKind::kFuse)};
  if (strips) steps.push_back(strip);
  return Decoder(std::move(steps));
}

TEST(Decoder, TakesTheFirstSpaceAway) {
  EXPECT_EQ(llama().decode({"▁Once", "▁upon"}), "Once upon");
  EXPECT_EQ(llama().decode({"▁▁Once"}), " Once");
  EXPECT_EQ(llama().decode({"<s>", "▁Once"}), "<s> Once");
  EXPECT_EQ(llama(false).decode({"▁Once", "▁upon"}), " Once upon");
  EXPECT_EQ(llama().decode({}), "");
  EXPECT_EQ(llama().spaces_dropped_max(), 1U);
  EXPECT_EQ(llama(false).spaces_dropped_max(), 0U);
}

TEST(Decoder, RunsOfBytesAreTextOrNot) {
  EXPECT_EQ(llama().decode({"a", "<0xE2>", "<0x82>", "<0xAC>", "b"}), "a€b");
  EXPECT_EQ(llama().decode({"<0xE2>", "<0x82>", "b"}), "\uFFFD\uFFFDb");
  // One bad byte spoils its run.
  EXPECT_EQ(llama().decode({"<0x41>", "<0xFF>"}), "\uFFFD\uFFFD");
  EXPECT_EQ(llama().decode({"<0x41>", "x", "<0xFF>"}), "Ax\uFFFD");
  EXPECT_EQ(llama().decode({"<0xZZ>", "<0x4>", "<0x041>"}), "<0xZZ><0x4><0x041>");
}

TEST(Decoder, BytesOfOneTokenAmidOthers) {
  EXPECT_EQ(llama().bytes_of("▁Once"), " Once");
  EXPECT_EQ(llama().bytes_of("<0xE2>"), "\xE2");
  EXPECT_EQ(llama().bytes_of("<s>"), "<s>");
}

TEST(Decoder, MetaspaceDropsTheMarksOfTheFirstToken) {
  DecoderStep metaspace = decoder_step(DecoderKind::kMetaspace, "▁");
  metaspace.drops_first = true;
  const Decoder drops({metaspace});
  EXPECT_EQ(drops.decode({"▁▁a", "▁▁b"}), "a  b");
  EXPECT_EQ(drops.bytes_of("▁a"), " a");
  EXPECT_EQ(drops.spaces_dropped_max(), std::numeric_limits<std::size_t>::max());
  metaspace.drops_first = false;
  EXPECT_EQ(Decoder({metaspace}).decode({"▁a"}), " a");
}

TEST(Decoder, StripsEachTokenBeforeTheyAreFused) {
  DecoderStep strip = decoder_step(DecoderKind::kStrip, "_");
  strip.start = 1;
  strip.stop = 2;
  const Decoder decoder({strip});
  EXPECT_EQ(decoder.decode({"__a__", "_b_", "_"}), "_ab");
  EXPECT_EQ(decoder.bytes_of("_b___"), "b_");
}

}  // namespace
}  // namespace lmtp::tokenizer
