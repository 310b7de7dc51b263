#include "train/run_dir/held_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <exception>

#include "base/interrupt.h"
#include "base/log.h"
#include "train/run_dir/held_out.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {

LogFile::LogFile(const TrainConfig& config) {
  const int64_t rank = config.place.rank;
  path_ = config.output.directory / (rank == 0 ? "train.log" : fmt::format("rank-{}.log", rank));
  if (!config.dry_run) begin();
}

LogFile::~LogFile() {
  set_last_words("");
  // What ends the program is said last, by who started it: in the log too.
  if (std::uncaught_exceptions() == 0) log::tee_to_file("");
}

void LogFile::begin_again() const {
  std::error_code unknown;
  if (!fs::exists(path_, unknown) && fs::exists(path_.parent_path(), unknown)) begin();
}

void LogFile::begin() const {
  log::tee_to_file(path_.c_str());
  set_last_words(tr("[train] ended at once by a second signal: what came behind the newest "
                    "checkpoint is lost"),
                 log::file_descriptor());
}

HeldDirectory::HeldDirectory(const TrainConfig& config, const Ranks& ranks) {
  const fs::path& directory = config.output.directory;
  shared_ = find_shared(directory, ranks, [&] {
    made_.emplace(directory);
    if (!config.dry_run) lock_.emplace(lock_run_directory(directory));
  });
  if (!shared_.by_all()) {
    log::info("machines do not share {}: ranks {} each keep what theirs need", directory.string(),
              fmt::join(shared_.keepers, ", "));
  }
}

bool HeldDirectory::is_ours() const {
  return !lock_ || lock_->is_held() || changed_at(settings_) == settings_at_;
}

void HeldDirectory::remember(const fs::path& run_dir) {
  settings_ = run_dir / "args.json";
  settings_at_ = changed_at(settings_);
}

void HeldDirectory::make_again(const TrainConfig& config) {
  fs::create_directories(config.output.directory);
  lock_.reset();
  lock_.emplace(lock_run_directory(config.output.directory));
}

HeldDirectory::Moment HeldDirectory::changed_at(const fs::path& file) {
  struct stat found{};
  if (::stat(file.c_str(), &found) != 0) return std::nullopt;
  return std::pair<int64_t, int64_t>{found.st_ctim.tv_sec, found.st_ctim.tv_nsec};
}

void describe_run(const TrainConfig& config, const PreparedText& text, const PreparedData& data) {
  const fs::path& run_dir = config.output.directory;
  mark_unfinished(run_dir);
  write_run_settings(config);
  const bool from_the_split = config.task == Task::kSft && config.data.validation.empty();
  if (from_the_split && data.validation && text.tokenizer)
    write_held_out(run_dir, *data.validation, *text.tokenizer);
}

}  // namespace danlu::train
