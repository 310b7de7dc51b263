// serve/picture_desk.h: pictures of requests become pixels before the engine's thread sees them.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "infer/prompt_pictures.h"

namespace danlu::serve {

/// Threads of its own, so that neither answers under way nor other requests wait for a picture.
class PictureDesk {
 public:
  struct Settings {
    size_t threads = 4;
    size_t max_waiting = 1024;             ///< requests; more are turned away
    int64_t max_bytes = int64_t{1} << 30;  ///< of pixels that nobody has taken yet
    /// Room for pixels that were taken, of answers under way, which may begin anew.
    int64_t max_kept_bytes = int64_t{1} << 28;
  };
  explicit PictureDesk(Settings settings);
  /// Jobs that wait are dropped.
  ~PictureDesk();
  PictureDesk(const PictureDesk&) = delete;
  PictureDesk& operator=(const PictureDesk&) = delete;

  struct Job {
    std::vector<infer::PromptPicture> pictures;
    int64_t num_takers = 1;  ///< pixels are kept until so many requests have taken them
    /// Asked before the work begins; false: it is dropped.
    std::function<bool()> is_wanted;
    /// On a thread of the desk: the pictures, whose pixels() waits for nothing the first times, or
    /// the first error of one.
    std::function<void(std::vector<infer::PromptPicture>, std::exception_ptr)> ready;
  };
  /// false: too many wait.
  bool add(Job job);

 private:
  class Room;
  void work();
  std::vector<infer::PromptPicture> made(const Job& job);

  const Settings settings_;
  std::shared_ptr<Room> room_;
  std::mutex mutex_;
  std::condition_variable comes_;
  std::deque<Job> jobs_;  ///< these by the mutex
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace danlu::serve
