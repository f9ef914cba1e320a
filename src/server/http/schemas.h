// Tables of fields, from which the JSON Schemas of bodies and answers are made:
//
//   Name = TYPE             another name of a type
//   Name: Other, Another    an object with the fields of others and these:
//     field, field TYPE     fields that may be missing
//     field!, field! TYPE   fields that are always there
//     * -field -field       all sampling parameters (kSamplingTable) but these; rows below may
//                           describe one of them in another way
//
// TYPE: string, integer, number, boolean, object, null or any; 'text', that string; 0..128 or 0..,
// a whole number; (0,1], a number; nothing, what clients write for a field that they do not use:
// null, false, 0, "", [] or {}; Name; TYPE[], an array; TYPE|TYPE, one of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "lmtp/base/json.h"

namespace lmtp::server {

// The schema of a TYPE. Names become references to #/components/schemas.
OrderedJson schema_of(std::string_view type);

// Adds the schemas of a table to `schemas`, by name. A mistake in a table is a failed check.
void add_schemas(std::string_view table, OrderedJson& schemas);

}  // namespace lmtp::server
