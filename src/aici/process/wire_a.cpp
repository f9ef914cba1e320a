#include "process/wire_a.h"

#include <utility>

namespace lmtp::aici::wire_a {

Json command_of(const PostPreProcess& command) {
  Json post_ops = Json::array();
  for (const PostOp& op : command.post_ops) {
    post_ops.push_back({{"id", op.id}, {"tokens", op.tokens}, {"backtrack", op.backtrack}});
  }
  Json pre_ops = Json::array();
  for (const PreOp& op : command.pre_ops) {
    pre_ops.push_back({{"id", op.id}, {"req_id", op.request_id}});
  }
  return {{"op", "post_pre_process"},
          {"post_ops", std::move(post_ops)},
          {"pre_ops", std::move(pre_ops)},
          {"freed", command.freed}};
}

Result<PostPreAnswer> read_post_pre(const Json& data, int vocab_size) {
  return read_wire([&] {
    const WireValue answer(data, "");
    const auto read_post = [](const WireValue& post) { return Post{post.at("stop").flag()}; };
    const auto read_pre = [&](const WireValue& pre) {
      return Pre{pre.at("suspend").flag(),
                 static_cast<int>(pre.at("num_forks").integer(0, kIntMax)),
                 pre.at("ff_tokens").tokens(vocab_size)};
    };
    return PostPreAnswer{read_results<Post>(answer.at("post_seqs"), read_post),
                         read_results<Pre>(answer.at("pre_seqs"), read_pre)};
  });
}

Json command_of(const std::vector<MidOp>& ops) {
  Json list = Json::array();
  for (const MidOp& op : ops) {
    Json& item = list.emplace_back(Json{{"id", op.id}});
    if (op.clone_id) item["clone_id"] = *op.clone_id;
  }
  return {{"op", "mid_process"}, {"ops", std::move(list)}};
}

Result<Results<MidSplice>> read_mid(const Json& data, std::size_t num_ops, int vocab_size) {
  return read_wire([&] {
    const WireValue answer(data, "");
    const auto num = static_cast<std::int64_t>(num_ops);
    (void)answer.at("num_seqs").integer(num, num);
    const auto read = [&](const WireValue& splice) {
      return MidSplice{splice.at("ff_tokens").tokens(vocab_size),
                       static_cast<int>(splice.at("backtrack").integer(0, kIntMax))};
    };
    return read_results<MidSplice>(answer.at("seqs"), read);
  });
}

}  // namespace lmtp::aici::wire_a
