#include "weights/convert/layout_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libdeflate.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/finite.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/threads.h"
#include "weights/convert/tensor_stream.h"
#include "weights/tensor_bands.h"

namespace danlu::weights {
namespace {

/// A file being written at given places by several threads; it gets its name when it is complete.
class OpenFile {
 public:
  OpenFile(fs::path path, uint64_t size_bytes, bool keeps_finished)
      : path_(std::move(path)), keeps_finished_(keeps_finished) {
    unfinished_ = path_.string() + ".part";
    fs::create_directories(path_.parent_path());
    fd_ = ::open(unfinished_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) fail("create");
    // A full disk is met here, before an hour of writing; systems without this call are not
    // checked.
    const int code =
        ::posix_fallocate(fd_, 0, static_cast<off_t>(std::max<uint64_t>(1, size_bytes)));
    if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
      errno = code;
      fail("reserve space for");
    }
    if (::ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) fail("size");
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(unfinished_.c_str());
  }

  void write(uint64_t offset, const void* data, size_t size_bytes) const {
    const char* from = static_cast<const char*>(data);
    while (size_bytes > 0) {
      const ssize_t done = ::pwrite(fd_, from, size_bytes, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail("write");
      from += done;
      offset += static_cast<uint64_t>(done);
      size_bytes -= static_cast<size_t>(done);
    }
  }
  void write(const std::vector<PlacedBytes>& parts) const {
    for (const PlacedBytes& part : parts) write(part.offset, part.bytes.data(), part.bytes.size());
  }
  void publish() {
    if (!sync_descriptor(fd_)) fail("sync");
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail("close");
    fs::rename(unfinished_, path_);
  }

 private:
  [[noreturn]] void fail(const char* doing) const {
    const int code = errno;
    const std::string no_space =
        keeps_finished_
            ? tr("free disk space and give the same command again: finished files are kept")
            : tr("free disk space and give the same command again");
    throw IoError(tr("{}: cannot {} it: {}", path_.string(), doing, std::strerror(code)),
                  hint_of_full(code, no_space));
  }
  fs::path path_, unfinished_;
  bool keeps_finished_;
  int fd_ = -1;
};

/// One file of the layout and what is left to do of it.
struct FileJob {
  size_t file = 0;
  std::vector<size_t> tensors;  ///< indices into Layout::tensors
  std::vector<uint32_t> crcs;
  std::atomic<size_t> left{0};
  std::mutex mutex;
  std::unique_ptr<OpenFile> open;
};

class LayoutWriter {
 public:
  LayoutWriter(const TensorSource& globals, const Layout& layout,
               const std::vector<PlannedFile>& plans, const fs::path& directory,
               const WriteOptions& options)
      : globals_(globals),
        layout_(layout),
        plans_(plans),
        directory_(directory),
        options_(options),
        meter_({&globals}, {}) {}

  void run() {
    const auto by_file = tensors_by_file(layout_);
    for (size_t file = 0; file < by_file.size(); ++file) {
      if (fs::exists(directory_ / layout_.files[file])) continue;
      auto job = std::make_unique<FileJob>();
      job->file = file;
      job->tensors = by_file[file];
      job->crcs.resize(job->tensors.size());
      job->left = std::max<size_t>(1, job->tensors.size());
      for (size_t i = 0; i < std::max<size_t>(1, job->tensors.size()); ++i)
        tasks_.emplace_back(job.get(), i);
      jobs_.push_back(std::move(job));
    }
    try {
      parallel_for(tasks_.size(), options_.num_threads, [&](size_t i) {
        stop_if_asked();
        write_tensor(*tasks_[i].first, tasks_[i].second);
      });
    } catch (...) {
      report_not_finite();  // a later call takes the finished files as they are
      throw;
    }
    report_not_finite();
  }

 private:
  void stop_if_asked() const {
    const int signal = options_.ends_on_signal ? pending_interrupt() : 0;
    if (signal == 0) return;
    throw_interrupted(signal, tr("the conversion was stopped; finished files are kept"),
                      tr("give the same command again to go on"));
  }

  OpenFile& file_of(FileJob& job) {
    const std::lock_guard<std::mutex> lock(job.mutex);
    if (!job.open) {
      job.open = std::make_unique<OpenFile>(directory_ / layout_.files[job.file],
                                            plans_[job.file].size_bytes, options_.keeps_finished);
      job.open->write(plans_[job.file].known);
    }
    return *job.open;
  }

  void write_tensor(FileJob& job, size_t index) {
    OpenFile& file = file_of(job);
    const PlannedFile& plan = plans_[job.file];
    if (index < job.tensors.size()) {
      const StoredTensor& stored = layout_.tensors[job.tensors[index]];
      uint64_t at = plan.tensor_offsets[index];
      const uint64_t end = at + stored.size_bytes();
      uint32_t crc = libdeflate_crc32(0, nullptr, 0);
      // Blocks of 8-bit numbers are made of finite ones alone.
      const DType dtype = stored.info.dtype;
      const bool can_tell = !stored.blocks && is_floating(dtype);
      bool is_finite = true;
      stream_tensor(globals_, layout_, stored, [&](std::span<const std::byte> bytes) {
        stop_if_asked();
        if (bytes.size() > end - at)
          throw InternalError(
              fmt::format("[layout] {} gives more bytes than it has", stored.info.name));
        const size_t count = can_tell ? bytes.size() / dtype_size_bytes(dtype) : 0;
        if (is_finite)
          is_finite = count == 0 || first_non_finite(bytes.data(), dtype, count) == count;
        if (plan.seal) crc = libdeflate_crc32(crc, bytes.data(), bytes.size());
        file.write(at, bytes.data(), bytes.size());
        at += bytes.size();
        meter_.add(bytes.size());
        if (options_.on_written) options_.on_written(bytes.size());
      });
      if (at != end)
        throw InternalError(
            fmt::format("[layout] {} is {} bytes short", stored.info.name, end - at));
      job.crcs[index] = crc;
      if (!is_finite) note_not_finite(job.tensors[index]);
    }
    if (job.left.fetch_sub(1) == 1) finish(job);
  }

  void note_not_finite(size_t tensor) {
    const std::lock_guard<std::mutex> lock(not_finite_mutex_);
    not_finite_.insert(tensor);
  }

  void report_not_finite() const {
    if (not_finite_.empty()) return;
    size_t num_written = 0;
    for (const auto& job : jobs_) num_written += job->tensors.size();
    const StoredTensor& first = layout_.tensors[*not_finite_.begin()];
    log::warning(
        "{} of {} tensors hold an infinity or NaN, the first: {} in {}; they are kept as they are",
        not_finite_.size(), num_written, first.info.name, layout_.files[first.file]);
  }

  void finish(FileJob& job) {
    const PlannedFile& plan = plans_[job.file];
    if (plan.seal) job.open->write(plan.seal(job.crcs));
    job.open->publish();
    job.open.reset();
    globals_.forget();
  }

  const TensorSource& globals_;
  const Layout& layout_;
  const std::vector<PlannedFile>& plans_;
  const fs::path& directory_;
  const WriteOptions& options_;
  ReadMeter meter_;
  std::vector<std::unique_ptr<FileJob>> jobs_;
  std::vector<std::pair<FileJob*, size_t>> tasks_;
  std::mutex not_finite_mutex_;
  std::set<size_t> not_finite_;  ///< indices into Layout::tensors
};

}  // namespace

std::vector<std::vector<size_t>> tensors_by_file(const Layout& layout) {
  std::vector<std::vector<size_t>> by_file(layout.files.size());
  for (size_t i = 0; i < layout.tensors.size(); ++i) by_file[layout.tensors[i].file].push_back(i);
  return by_file;
}

void write_layout(const TensorSource& globals, const Layout& layout,
                  const std::vector<PlannedFile>& plans, const std::filesystem::path& directory,
                  const WriteOptions& options) {
  LayoutWriter(globals, layout, plans, directory, options).run();
}

}  // namespace danlu::weights
