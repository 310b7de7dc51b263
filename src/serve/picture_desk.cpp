#include "serve/picture_desk.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "base/error.h"
#include "base/in_english.h"
#include "base/log.h"

namespace danlu::serve {

/// Counts the bytes of pixels that wait to be taken. Outlives the desk with them.
class PictureDesk::Room {
 public:
  Room(int64_t max_bytes, int64_t max_kept) : max_bytes_(max_bytes), max_kept_(max_kept) {}

  /// Waits until there is some. false: the desk ends.
  bool await() {
    std::unique_lock lock(mutex_);
    changes_.wait(lock, [&] { return is_ending_ || held_ < max_bytes_; });
    return !is_ending_;
  }
  void add(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      held_ += bytes;
    }
    changes_.notify_all();
  }
  /// Bytes that were added are those of pixels that were taken. false: there is no room to keep
  /// them.
  bool keep(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (kept_ + bytes > max_kept_) return false;
      kept_ += bytes;
      held_ -= bytes;
    }
    changes_.notify_all();
    return true;
  }
  void forget(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    kept_ -= bytes;
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changes_.notify_all();
  }

 private:
  const int64_t max_bytes_, max_kept_;
  std::mutex mutex_;
  std::condition_variable changes_;
  int64_t held_ = 0, kept_ = 0;
  bool is_ending_ = false;
};

namespace {

/// Pixels that so many take. Who comes later, as one that begins anew, finds them where there was
/// room to keep them, and has them made again where not.
template <typename Room>
class HeldPixels {
 public:
  HeldPixels(std::shared_ptr<Room> room, at::Tensor pixels, int64_t num_takers,
             std::function<at::Tensor()> again)
      : room_(std::move(room)),
        again_(std::move(again)),
        pixels_(std::move(pixels)),
        num_left_(num_takers) {
    room_->add(bytes());
  }
  ~HeldPixels() { drop(); }
  HeldPixels(const HeldPixels&) = delete;
  HeldPixels& operator=(const HeldPixels&) = delete;

  at::Tensor take() {
    {
      const std::lock_guard lock(mutex_);
      if (pixels_.defined()) {
        const at::Tensor pixels = pixels_;
        count_one();
        return pixels;
      }
    }
    return again_();
  }
  /// One of those that take them does not need them.
  void pass() {
    const std::lock_guard lock(mutex_);
    if (pixels_.defined()) count_one();
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(pixels_.nbytes()); }
  void count_one() {
    if (num_left_ == 0 || --num_left_ > 0) return;
    is_kept_ = room_->keep(bytes());
    if (!is_kept_) drop();
  }
  void drop() {
    if (!pixels_.defined()) return;
    is_kept_ ? room_->forget(bytes()) : room_->add(-bytes());
    pixels_.reset();
  }

  const std::shared_ptr<Room> room_;
  const std::function<at::Tensor()> again_;
  std::mutex mutex_;
  at::Tensor pixels_;
  int64_t num_left_;
  bool is_kept_ = false;
};

}  // namespace

PictureDesk::PictureDesk(Settings settings)
    : settings_(settings),
      room_(std::make_shared<Room>(settings.max_bytes, settings.max_kept_bytes)) {
  for (size_t i = 0; i < settings_.threads; ++i) threads_.emplace_back([this] { work(); });
}

PictureDesk::~PictureDesk() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  comes_.notify_all();
  room_->end();
  for (std::thread& thread : threads_) thread.join();
}

bool PictureDesk::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= settings_.max_waiting) return false;
    jobs_.push_back(std::move(job));
  }
  comes_.notify_one();
  return true;
}

std::vector<infer::PromptPicture> PictureDesk::made(const Job& job) {
  std::vector<infer::PromptPicture> pictures = job.pictures;
  for (infer::PromptPicture& picture : pictures) {
    const auto held =
        std::make_shared<HeldPixels<Room>>(room_, picture.pixels(), job.num_takers, picture.pixels);
    picture.pixels = [held] { return held->take(); };
    picture.pass_by = [held] { held->pass(); };
  }
  return pictures;
}

void PictureDesk::work() {
  const InEnglish english;  // clients read it
  while (room_->await()) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      comes_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
      if (is_ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (!job.is_wanted()) continue;
    std::vector<infer::PromptPicture> pictures;
    std::exception_ptr problem;
    try {
      pictures = made(job);
    } catch (...) {
      problem = std::current_exception();
    }
    try {
      job.ready(std::move(pictures), problem);
    } catch (...) {
      log::warning("a request with pictures cannot be answered: {}", current_error().what());
    }
  }
}

}  // namespace danlu::serve
