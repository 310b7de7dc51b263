#include "data/media_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "media/media_error.h"
#include "media/media_file.h"
#include "media/patches.h"
#include "media/video.h"

namespace danlu::data {
namespace {

/// The contents of a span's files: what the row held, or mapped.
class SpanBytes {
 public:
  explicit SpanBytes(const MediaSpan& span) {
    for (const MediaFile& file : span.files) {
      if (file.bytes) {
        named.push_back({file.path, std::as_bytes(std::span(*file.bytes))});
      } else {
        maps_.push_back(media::open_media_file(file.path));
        named.push_back({file.path, maps_.back().bytes()});
      }
    }
  }
  std::vector<media::NamedBytes> named;

 private:
  std::deque<MappedFile> maps_;
};

media::Patches patches_of_span(const MediaSpan& span, const MediaSettings& settings) {
  const SpanBytes files(span);
  media::DecodeOptions decode;
  decode.exif = settings.upright ? media::Exif::kTranspose : media::Exif::kIgnore;
  const media::NamedBytes& first = files.named.at(0);
  if (span.kind == text::MediaKind::kImage) {
    return media::process_picture(first.bytes, first.name, settings.processor,
                                  settings.image_resize, decode);
  }
  if (span.is_frame_list) {
    return media::process_frames(files.named, settings.video.fps, settings.processor,
                                 settings.frame_resize, decode,
                                 settings.lists_as_videos ? &settings.video : nullptr)
        .patches;
  }
  return media::process_video(first.bytes, first.name, settings.processor, settings.video).patches;
}

/// patches_of_span into its place of a batch's pixels.
void load_span(const MediaSpan& span, const MediaSettings& settings, float* to) {
  media::Patches patches;
  try {
    patches = patches_of_span(span, settings);
  } catch (const media::MediaError& error) {
    throw media::MediaError(error.fault(), fmt::format("{}: {}", span.row, error.what()),
                            error.hint());
  }
  if (patches.grid != span.grid) {
    const auto& [t, h, w] = patches.grid;
    throw DataError(
        tr("{}: {}: now a grid of {} x {} x {}, and {} x {} x {} when its tokens were "
           "made",
           span.row, span.files.at(0).path, t, h, w, span.grid.t, span.grid.h, span.grid.w),
        tr("the file has changed, or these samples were made with other limits of pictures: make "
           "them again, in the cache with --overwrite_cache, else with danlu preprocess "
           "--overwrite"));
  }
  std::copy(patches.values.begin(), patches.values.end(), to);
}

struct PixelRequest {
  std::vector<MediaSpan> spans;
  std::vector<int64_t> starts;  ///< of each span, in floats
  MediaPixels pixels;
  size_t next = 0, done = 0;  ///< spans given to workers, and finished
  bool is_begun = false, is_waited_for = false, is_taken = false;
  std::exception_ptr error;

  int64_t bytes() const {
    return pixels.patches * pixels.patch_values * static_cast<int64_t>(sizeof(float));
  }
  void make_room() {
    pixels.values.reset(new float[static_cast<size_t>(pixels.patches * pixels.patch_values)]);
  }
};

}  // namespace

struct MediaLoader::State {
  explicit State(MediaSettings given, int64_t most) : settings(std::move(given)), max_bytes(most) {}

  const MediaSettings settings;
  const int64_t max_bytes;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<PixelRequest>> queue;  ///< with spans that no worker has yet
  int64_t bytes_held = 0;   ///< of requests begun and not taken, and of what is kept
  bool is_stopped = false;  ///< nobody works, or will

  /// The request that a worker should help with; null: none now.
  std::shared_ptr<PixelRequest> next_request() {
    for (const auto& request : queue) {
      const bool has_room = bytes_held == 0 || bytes_held + request->bytes() <= max_bytes;
      if (request->is_begun || request->is_waited_for || has_room) return request;
      // Requests after it wait too, unless somebody waits for them.
      for (const auto& later : queue) {
        if (later->is_waited_for) return later;
      }
      return nullptr;
    }
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      std::shared_ptr<PixelRequest> request;
      changed.wait(lock, [&] { return is_stopped || (request = next_request()); });
      if (is_stopped) return;
      load_one(*request, lock);
    }
  }

  /// REQUIRES: the lock is held; it is again when this returns.
  void load_one(PixelRequest& request, std::unique_lock<std::mutex>& lock) {
    try {
      if (!request.is_begun) {
        request.make_room();
        request.is_begun = true;
        bytes_held += request.bytes();
      }
    } catch (...) {
      fail(request);
      return;
    }
    const size_t at = request.next++;
    if (request.next == request.spans.size()) forget(request);
    lock.unlock();
    std::exception_ptr error;
    try {
      load_span(request.spans[at], settings, request.pixels.values.get() + request.starts[at]);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    ++request.done;
    if (error && !request.error) request.error = error;
    changed.notify_all();
  }

  void fail(PixelRequest& request) {
    request.error = std::current_exception();
    request.done = request.next = request.spans.size();
    forget(request);
    changed.notify_all();
  }

  void forget(const PixelRequest& request) {
    std::erase_if(queue, [&](const auto& queued) { return queued.get() == &request; });
  }

  /// Its bytes count no longer.
  void release(PixelRequest& request) {
    if (request.is_begun && !request.is_taken) bytes_held -= request.bytes();
    request.is_taken = true;
    changed.notify_all();
  }
};

namespace {

MediaPixels load_here(const PixelRequest& request, const MediaSettings& settings) {
  PixelRequest again;
  again.pixels.patches = request.pixels.patches;
  again.pixels.patch_values = request.pixels.patch_values;
  again.make_room();
  for (size_t i = 0; i < request.spans.size(); ++i)
    load_span(request.spans[i], settings, again.pixels.values.get() + request.starts[i]);
  return std::move(again.pixels);
}

/// `Loader`: MediaLoader::State, which is private.
template <typename Loader>
class QueuedPixels : public PendingPixels {
 public:
  QueuedPixels(std::shared_ptr<Loader> loader, std::shared_ptr<PixelRequest> request)
      : loader_(std::move(loader)), request_(std::move(request)) {}
  ~QueuedPixels() override {
    std::unique_lock lock(loader_->mutex);
    loader_->forget(*request_);
    loader_->bytes_held -= kept_bytes_;
    // A worker may still write into what this request holds: it holds the request too.
    loader_->release(*request_);
  }

  MediaPixels take(double* wait_s, bool again) override {
    const auto begin = std::chrono::steady_clock::now();
    MediaPixels pixels = kept_bytes_ > 0 ? kept() : taken();
    if (again) keep(pixels);
    if (wait_s) {
      *wait_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return pixels;
  }

 private:
  MediaPixels kept() {
    const std::unique_lock lock(loader_->mutex);
    loader_->bytes_held -= std::exchange(kept_bytes_, 0);
    loader_->changed.notify_all();
    return std::move(kept_);
  }

  void keep(const MediaPixels& pixels) {
    const auto count = static_cast<size_t>(pixels.patches * pixels.patch_values);
    MediaPixels copy{std::unique_ptr<float[]>(new float[count]), pixels.patches,
                     pixels.patch_values};
    std::copy_n(pixels.values.get(), count, copy.values.get());
    const auto bytes = static_cast<int64_t>(count * sizeof(float));
    const std::unique_lock lock(loader_->mutex);
    if (loader_->bytes_held + bytes > loader_->max_bytes) return;
    loader_->bytes_held += kept_bytes_ = bytes;
    kept_ = std::move(copy);
  }

  MediaPixels taken() {
    std::unique_lock lock(loader_->mutex);
    PixelRequest& request = *request_;
    if (!request.is_taken && !loader_->is_stopped) {
      request.is_waited_for = true;
      loader_->changed.notify_all();
      loader_->changed.wait(
          lock, [&] { return request.done == request.spans.size() || loader_->is_stopped; });
    }
    if (request.is_taken || request.done < request.spans.size()) {
      lock.unlock();
      return load_here(request, loader_->settings);
    }
    if (request.error) std::rethrow_exception(request.error);
    loader_->release(request);
    MediaPixels pixels = std::move(request.pixels);
    request.pixels.patches = pixels.patches;
    request.pixels.patch_values = pixels.patch_values;
    return pixels;
  }

  std::shared_ptr<Loader> loader_;
  std::shared_ptr<PixelRequest> request_;
  MediaPixels kept_;        ///< for the next take()
  int64_t kept_bytes_ = 0;  ///< of kept_, which count with the loader's; 0: there are none
};

}  // namespace

struct MediaLoader::Threads {
  ThreadGroup group;
};

MediaLoader::MediaLoader(MediaSettings settings, size_t num_workers, int64_t max_bytes)
    : state_(std::make_shared<State>(std::move(settings), max_bytes)),
      threads_(std::make_unique<Threads>()) {
  state_->is_stopped = num_workers == 0;
  try {
    for (size_t i = 0; i < num_workers; ++i)
      threads_->group.start([state = state_] { state->work(); });
  } catch (...) {
    stop();
    throw;
  }
}

MediaLoader::~MediaLoader() { stop(); }

void MediaLoader::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopped = true;
    state_->changed.notify_all();
  }
  threads_->group.join();
}

std::shared_ptr<PendingPixels> MediaLoader::start(std::vector<MediaSpan> spans) {
  if (spans.empty()) return nullptr;
  auto request = std::make_shared<PixelRequest>();
  request->pixels.patch_values = state_->settings.processor.patch_values();
  for (const MediaSpan& span : spans) {
    request->starts.push_back(request->pixels.patches * request->pixels.patch_values);
    request->pixels.patches += span.grid.patches();
  }
  request->spans = std::move(spans);
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->is_stopped) state_->queue.push_back(request);
    state_->changed.notify_all();
  }
  return std::make_shared<QueuedPixels<State>>(state_, std::move(request));
}

}  // namespace danlu::data
