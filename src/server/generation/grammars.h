// What a request needs of a grammar.
#pragma once

#include <memory>

#include "lmtp/base/result.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/event.h"
#include "lmtp/request/request.h"

namespace lmtp::server {

// Whether the model takes grammars; the error, about `grammar`, says why it does not. Any thread.
Result<void> check_grammars(const registry::ReadyModel& model);

// Keeps a Generate to the grammar, beside the stops that it has. Any thread.
Result<void> constrain(const std::shared_ptr<const constraint::CompiledGrammar>& grammar,
                       Request& request);

// Tells a session or an HTTP request, from another thread, that what it waited for is done.
void tell_ready(EventSink& sink, const ModelReady& event);

}  // namespace lmtp::server
