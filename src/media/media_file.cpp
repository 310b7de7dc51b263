#include "media/media_file.h"

#include "media/media_error.h"

namespace danlu::media {

MappedFile open_media_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw MediaError(MediaFault::kMissing, tr("{}: no such file", file.string()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw MediaError(MediaFault::kMissing, tr("{}: not a regular file", file.string()));
  }
  try {
    return MappedFile(file);
  } catch (const IoError& error_of_system) {
    throw MediaError(MediaFault::kMissing, error_of_system.what(), error_of_system.hint());
  }
}

}  // namespace danlu::media
