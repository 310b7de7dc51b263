// grammar/schema_merge.h: one schema that says what two say.
#pragma once
#include <functional>
#include <string>

#include "base/json.h"

namespace danlu::grammar {

/// What fails: a place in the schema, and why.
using SchemaError = std::function<void(const std::string& what)>;

/// Whether a keyword only describes (title, default, …).
bool is_annotation(const std::string& keyword);

/// The schema of values that satisfy both. Types, enumerations, members, required names and bounds
/// are merged; other keywords only where one has them or both say the same. Calls `fail`, which
/// throws, where they cannot be.
Json merge_schemas(const Json& a, const Json& b, const SchemaError& fail);

}  // namespace danlu::grammar
