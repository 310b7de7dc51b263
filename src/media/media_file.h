// media/media_file.h: a file of a row, mapped.
#pragma once
#include <filesystem>

#include "base/file.h"

namespace danlu::media {

/// Never waits (a pipe or a device is refused). Errors: MediaError kMissing: there is none, it may
/// not be read, or it is no regular file.
MappedFile open_media_file(const std::filesystem::path& file);

}  // namespace danlu::media
