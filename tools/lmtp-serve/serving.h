// From the options to what serves by them: for lmtp-serve, and for its doctor.
#pragma once

#include <string>

#include "lmtp/base/result.h"
#include "lmtp/catalog/model_names.h"
#include "lmtp/server/server.h"
#include "lmtp/text/reply_layout.h"
#include "serve_options.h"

namespace lmtp::tools {

// Whether --device, --dtype and --kv-cache-dtype can be had here; logs what is computed on. May
// take a second.
Result<void> check_device(const ServeOptions& options);

// Takes sockets that a service manager hands over, in the place of --host, --port and --listen.
// REQUIRES: no other thread has been started.
Result<void> take_sockets(ServeOptions& options);

// Which models may be asked for. A model named on the command line may be anything.
Result<catalog::NamePolicy> name_policy(const ServeOptions& options);

// Without the session of --stdio.
server::ServerOptions server_options(const ServeOptions& options);

// How the model writes calls, where it has a chat template: "; tool calls: hermes (table)".
std::string calls_text(const text::ReplyLayout* layout);

// Every connection needs a descriptor; the usual limit of 1024 is less than --max-connections. Up
// to the hard limit, which is returned; -1: there is none.
long raise_descriptor_limit();

}  // namespace lmtp::tools
