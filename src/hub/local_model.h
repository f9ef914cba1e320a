// What resolve_model and fetch_model share.
#pragma once

#include <string>
#include <string_view>

#include "hub_cache.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

// Whether MODEL can only be a name on the hub: no folder or file of this disk, no path, and none
// of the names that mean something by themselves.
bool may_be_on_hub(std::string_view model);

// The model of a snapshot's folder, if it is whole.
Result<ModelSource> from_snapshot(std::string_view model, const HubName& name,
                                  const std::string& snapshot, Purpose purpose);

}  // namespace lmtp::hub
