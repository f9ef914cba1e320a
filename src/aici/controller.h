// Controller: what a sequence asks its guest, and what the answers mean, in either dialect.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guest.h"
#include "guest_json.h"
#include "lmtp/aici/runtime.h"

namespace lmtp::aici {

// Owner: a sequence; one thread at a time. It has the shape of Runtime's calls, but that a
// suspended controller is asked as often as advance() is called.
class Controller {
 public:
  // variables: outlive it. Errors: kInvalid.
  static Result<std::unique_ptr<Controller>> make(std::shared_ptr<const World> world,
                                                  std::shared_ptr<const wasm::Module> module,
                                                  std::string arg, Variables& variables);

  // Once, before all others. The error has the controller's logs.
  Result<Instantiated> init(const std::vector<TokenId>& prompt);
  void set_sequence(Sequence sequence) { guest_->set_sequence(sequence); }
  Advance advance(const Report& report);
  Choice choose(const std::vector<Sequence>& fork_group);
  // A copy as it is now, of number `sequence`.
  Result<std::unique_ptr<Controller>> fork(Sequence sequence) const;

 private:
  Controller(std::shared_ptr<const World> world, ModuleDialect dialect,
             std::unique_ptr<Guest> guest)
      : world_(std::move(world)), dialect_(dialect), guest_(std::move(guest)) {}

  Result<void> check_tokens(const std::vector<TokenId>& tokens) const;
  Result<bool> post(int num_dropped, const std::vector<TokenId>& tokens);
  Result<void> pre(Advance& advance);
  Result<Choice> mid_a(const std::vector<Sequence>& fork_group);
  Result<Choice> mid_c(const std::vector<Sequence>& fork_group);
  Choice mid(const std::vector<Sequence>& fork_group);

  const std::shared_ptr<const World> world_;
  const ModuleDialect dialect_;
  std::unique_ptr<Guest> guest_;
  ResultReader reader_;
  // Dialect C: what the next mid_process is told.
  Report report_;
  std::vector<Sequence> suspended_group_;  // of the choose() that was suspended; else empty
  std::optional<Choice> early_choice_;     // that the next choose() gives
};

}  // namespace lmtp::aici
