// media/media_error.h: why a picture or a video of a row cannot be used.
#pragma once
#include <string>

#include "base/error.h"

namespace danlu::media {

enum class MediaFault {
  kMissing,      ///< no such file, or it may not be read
  kTruncated,    ///< the file ends too early
  kNotAPicture,  ///< none of the formats that are known
  kDamaged,      ///< a known format, and content that contradicts it
  kTooLarge,     ///< more pixels than allowed; found out before anything is decoded
  kUnsupported,  ///< a format, or a kind of it, that is not read
  kBadShape,     ///< a side too short, or one side more than 200 times the other
};

/// A few words under which rows that were dropped are counted; in English, and in the catalogue.
const char* reason_of(MediaFault fault);

/// DataError: what() names the file. Callers that drop rows count them by fault().
class MediaError : public DataError {
 public:
  MediaError(MediaFault fault, const std::string& message, std::string hint = {})
      : DataError(message, std::move(hint)), fault_(fault) {}
  MediaFault fault() const { return fault_; }

 private:
  MediaFault fault_;
};

}  // namespace danlu::media
