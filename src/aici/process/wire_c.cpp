#include "process/wire_c.h"

#include <utility>

namespace lmtp::aici::wire_c {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

WireSplice read_splice(const WireValue& splice, int vocab_size) {
  return {splice.at("when_sampled").tokens(vocab_size),
          static_cast<int>(splice.at("backtrack").integer(0, kIntMax)),
          splice.at("ff_tokens").tokens(vocab_size)};
}

WireBranch read_branch(const WireValue& value, int vocab_size) {
  WireBranch branch;
  if (const auto mask = value.find("sample_mask")) {
    branch.sample_mask = static_cast<std::size_t>(mask->integer(0, kIntMax));
  }
  if (const auto temperature = value.find("temperature")) {
    branch.temperature = static_cast<float>(temperature->number());
  }
  for (const WireValue& splice : value.at("splices").list()) {
    branch.splices.push_back(read_splice(splice, vocab_size));
  }
  const bool is_forced = branch.splices.size() == 1 && branch.splices.front().when_sampled.empty();
  if (!branch.sample_mask && !is_forced) {
    value.fail("without sample_mask it must have one splice, whatever is sampled");
  }
  return branch;
}

std::size_t read_size(const WireValue& value) {
  return static_cast<std::size_t>(value.integer(0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

Json command_of(const std::vector<Op>& ops, const std::vector<Sequence>& freed) {
  Json list = Json::array();
  for (const Op& op : ops) {
    list.push_back({{"id", op.id},
                    {"backtrack", op.backtrack},
                    {"tokens", op.tokens},
                    {"sampled", or_null(op.sampled)},
                    {"clone_id", or_null(op.clone_id)},
                    {"clone_idx", or_null(op.clone_idx)},
                    {"req_id", or_null(op.request_id)}});
  }
  return {{"op", "mid_process"}, {"ops", std::move(list)}, {"freed", freed}};
}

Result<MidAnswer> read_mid(const Json& data, int vocab_size) {
  return read_wire([&] {
    const WireValue answer(data, "");
    const auto read = [&](const WireValue& result) {
      Mid mid;
      for (const WireValue& branch : result.at("branches").list()) {
        mid.branches.push_back(read_branch(branch, vocab_size));
      }
      return mid;
    };
    if (answer.at("dtype").text() != "f32") answer.at("dtype").fail("must be f32");
    return MidAnswer{
        read_results<Mid>(answer.at("seqs"), read),
        {read_size(answer.at("first_mask_byte_offset")), read_size(answer.at("mask_num_bytes")),
         read_size(answer.at("mask_num_elts"))}};
  });
}

}  // namespace lmtp::aici::wire_c
