// media/named.h: errors of sizes, which know no file, with the file's name in front.
#pragma once
#include <fmt/format.h>

#include <string>

#include "media/media_error.h"

namespace danlu::media {

/// What `of_size` gives.
template <typename Call>
auto named(const std::string& name, const Call& of_size) {
  try {
    return of_size();
  } catch (const MediaError& error) {
    throw MediaError(error.fault(), fmt::format("{}: {}", name, error.what()), error.hint());
  }
}

}  // namespace danlu::media
