// ops/check.h: argument checks of ops; a message is built only when the check fails.
#pragma once
#include <sstream>

#include "base/error.h"

namespace danlu::ops {

/// Errors: ModelError "[where] parts…" unless `holds`.
template <typename... Parts>
void require(bool holds, const char* where, const Parts&... parts) {
  if (holds) [[likely]]
    return;
  std::ostringstream text;
  text << '[' << where << "] ";
  (text << ... << parts);
  throw ModelError(text.str());
}

}  // namespace danlu::ops
