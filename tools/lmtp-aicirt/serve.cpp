#include "serve.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "json_io.h"
#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/log.h"

namespace lmtp::aicirt {
namespace {

constexpr std::size_t kAnswersMax = 4096;  // of the side channel, that wait

bool is_stop(const std::string& message) {
  const Result<Json> command = parse_json(message, "command");
  const std::string* const op = command ? find_json_text(*command, "op") : nullptr;
  return op != nullptr && *op == "stop";
}

// Sends, or says why not where the message alone is at fault.
Result<void> send(Outbox& outbox, const std::string& text, const std::string& answer) {
  Result<void> sent = outbox.send(text);
  if (sent || sent.error().code != ErrorCode::kInvalid) return sent;
  const Result<Json> json = parse_json(answer, "answer");
  const Json command = json ? *json : Json::object();
  return outbox.send(text_of(error_answer(command, sent.error().message, false)));
}

class Serving {
 public:
  Serving(aici::Runtime& runtime, ServeOptions options, Mapping rows)
      : options_(std::move(options)),
        rows_(std::move(rows)),
        main_(make_main(runtime)),
        side_(runtime, options_.side,
              [this](const std::string& request_id, aici::Instantiated made) {
                main_->add_appended(request_id, std::move(made));
              }),
        answers_(kAnswersMax) {}

  Result<void> run() {
    auto commands = open_inbox(options_.areas, "cmd");
    auto answers = open_outbox(options_.areas, "resp");
    auto side_commands = open_inbox(options_.areas, "cmd-side");
    auto side_answers = open_outbox(options_.areas, "resp-side");
    for (const Error* error :
         {error_of(commands), error_of(answers), error_of(side_commands), error_of(side_answers)}) {
      if (error != nullptr) return *error;
    }
    std::thread reader([&] { end_with(read_side(**side_commands)); });
    std::thread writer([&] { end_with(write_side(**side_answers)); });
    end_with(serve_main(**commands, **answers));
    reader.join();
    answers_.close();
    writer.join();
    return result_;
  }

 private:
  template <typename T>
  static const Error* error_of(const Result<T>& result) {
    return result ? nullptr : &result.error();
  }

  std::unique_ptr<MainServer> make_main(aici::Runtime& runtime) {
    const auto was_over = options_.areas.is_over;
    options_.areas.is_over = [this, was_over] { return is_over_ || (was_over && was_over()); };
    MainOptions main = options_.main;
    main.rows = rows_.bytes();
    return options_.side.is_c ? make_server_c(runtime, main) : make_server_a(runtime, main);
  }

  // The first error counts.
  void end_with(Result<void> result) {
    if (is_over_.exchange(true)) return;
    result_ = std::move(result);
  }

  std::vector<std::string> edited(std::string answer, bool is_side) const {
    if (options_.edit) return options_.edit(std::move(answer), is_side);
    return {std::move(answer)};
  }

  Result<void> serve_main(Inbox& commands, Outbox& answers) {
    while (true) {
      const Result<std::string> message = commands.receive();
      if (!message) return message.error();
      if (message->empty() || is_stop(*message)) return {};
      const std::string answer = text_of(main_->take(*message));
      for (const std::string& text : edited(answer, false)) {
        Result<void> sent = send(answers, text, answer);
        if (!sent) return sent;
      }
    }
  }

  Result<void> read_side(Inbox& commands) {
    while (true) {
      const Result<std::string> message = commands.receive();
      if (!message) return message.error();
      if (message->empty() || is_stop(*message)) return {};
      side_.take(*message, [this](const Json& answer) {
        if (!answers_.try_push(text_of(answer))) log::error("too many answers wait");
      });
    }
  }

  Result<void> write_side(Outbox& outbox) {
    while (true) {
      const std::vector<std::string> answers = answers_.wait_drain();
      if (answers.empty()) return {};
      for (const std::string& answer : answers) {
        for (const std::string& text : edited(answer, true)) {
          Result<void> sent = send(outbox, text, answer);
          if (!sent) return sent;
        }
      }
    }
  }

  ServeOptions options_;
  Mapping rows_;
  std::unique_ptr<MainServer> main_;
  SideServer side_;
  BoundedQueue<std::string> answers_;
  std::atomic<bool> is_over_ = false;
  Result<void> result_;
};

}  // namespace

Result<void> serve(std::unique_ptr<aici::Runtime> runtime, ServeOptions options) {
  Result<Mapping> rows = Mapping::open(options.areas.prefix + "bin-shm", options.bias_bytes, false);
  if (!rows) return rows.error();
  const auto serving = std::make_unique<Serving>(*runtime, std::move(options), *std::move(rows));
  Result<void> done = serving->run();
  runtime.reset();  // its late answers come here
  return done;
}

}  // namespace lmtp::aicirt
