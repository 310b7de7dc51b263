#include "media/media_error.h"

namespace danlu::media {

const char* reason_of(MediaFault fault) {
  switch (fault) {
    case MediaFault::kMissing:
      return "missing file";
    case MediaFault::kTruncated:
      return "truncated file";
    case MediaFault::kNotAPicture:
      return "not a picture";
    case MediaFault::kDamaged:
      return "damaged file";
    case MediaFault::kTooLarge:
      return "too many pixels";
    case MediaFault::kUnsupported:
      return "unsupported format";
    case MediaFault::kBadShape:
      return "impossible shape";
  }
  return "damaged file";
}

}  // namespace danlu::media
