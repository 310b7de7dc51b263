// data/media_loader.h: the pixels of batches, decoded and processed by threads ahead of the step.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/media_settings.h"
#include "data/media_span.h"

namespace danlu::data {

/// What the vision tower reads of a batch: float32 [patches, patch_values], pictures and videos in
/// the order of their spans.
struct MediaPixels {
  std::unique_ptr<float[]> values;
  int64_t patches = 0, patch_values = 0;
};

/// Pixels that were asked for. Pixels that nobody takes are dropped with it.
class PendingPixels {
 public:
  virtual ~PendingPixels() = default;
  /// Waits for them, and hands them over; asked again, makes them again. `wait_s` receives the
  /// seconds waited. again: they will be asked for once more, and are kept for that as long as the
  /// loader has room. Errors: those of media's process functions, with the row in front:
  /// MediaError, DeviceError, MemoryError; DataError if a file now gives another grid than its span
  /// has.
  virtual MediaPixels take(double* wait_s = nullptr, bool again = false) = 0;
};

/// Works on what was asked for first; holds at most `max_bytes` of pixels that wait to be taken
/// (and one batch's more, so that any size goes through). Thread-safe; what start() gave may live
/// longer.
class MediaLoader {
 public:
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;
  /// num_workers 0: nothing is made ahead, who takes pixels makes them. Errors: std::system_error
  /// if the system makes no threads.
  MediaLoader(MediaSettings settings, size_t num_workers, int64_t max_bytes = kMaxBytes);
  /// Ends the work; pixels taken later are made by who takes them.
  ~MediaLoader();
  MediaLoader(const MediaLoader&) = delete;
  MediaLoader& operator=(const MediaLoader&) = delete;

  /// Returns at once; null for no spans.
  std::shared_ptr<PendingPixels> start(std::vector<MediaSpan> spans);

 private:
  void stop();
  struct State;
  std::shared_ptr<State> state_;
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace danlu::data
