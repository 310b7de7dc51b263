#include "cli/engine/infer_output.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/new_output.h"
#include "cli/engine/infer_resume.h"

namespace danlu::cli {
namespace {

void refuse_to_overwrite_input(const fs::path& output, const std::vector<fs::path>& files_read) {
  for (const fs::path& written : {output, partial_of(output)}) {
    for (const fs::path& read : files_read) {
      if (!would_replace(written, read)) continue;
      throw UsageError(
          tr("[--output] {}: answers written to {} would replace {}, which this run reads",
             output.string(), written.string(), read.string()),
          tr("choose another file"));
    }
  }
}

void require_plain_file(const fs::path& file) {
  std::error_code error;
  for (const fs::path& name : {file, partial_of(file)}) {
    if (fs::status(name, error).type() == fs::file_type::none)
      throw IoError(tr("[--output] {}: {}", name.string(), error.message()));
  }
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) return;  // judged by the folder's check
  if (fs::is_directory(status)) {
    throw UsageError(tr("[--output] {}: is a directory, answers go into a file", file.string()),
                     tr("name a .jsonl file in it"));
  }
  if (!fs::is_regular_file(status)) {
    throw UsageError(tr("[--output] {}: is not a regular file", file.string()),
                     tr("without --output answers are printed"));
  }
}

size_t count_lines(const fs::path& file) {
  const MappedFile content(file);
  return static_cast<size_t>(std::count(content.text().begin(), content.text().end(), '\n'));
}

/// FILE.partial.1, or the next that is not there.
fs::path free_name_for(const fs::path& partial) {
  for (int count = 1;; ++count) {
    fs::path name = fmt::format("{}.{}", partial.string(), count);
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(name, ignored))) return name;
  }
}

void report_earlier_run(const fs::path& partial) {
  std::error_code ignored;
  if (!fs::is_regular_file(partial, ignored)) return;
  log::warning(
      "{}: holds {} row(s) of a run that was stopped; it is kept as {} when the first answer of "
      "this run is written",
      partial.string(), count_lines(partial), free_name_for(partial).string());
}

/// With <image> and <video> where pictures and videos stand.
std::string tagged_content(const text::Message& message) {
  std::string content;
  size_t begin = 0;
  for (const text::MediaPlace& place : message.media) {
    content.append(message.content, begin, place.offset - begin);
    content += place.media.kind == text::MediaKind::kImage ? "<image>" : "<video>";
    begin = place.offset;
  }
  return content.append(message.content, begin);
}

/// As rows name them; a list of frames as a list.
void name_media(const text::Message& message, Json* images, Json* videos) {
  for (const text::MediaPlace& place : message.media) {
    Json names = Json::array();
    for (const text::MediaPiece& piece : place.media.pieces) names.push_back(piece.name);
    if (names.size() == 1 && !place.media.is_frame_list) names = Json(names.front());
    (place.media.kind == text::MediaKind::kImage ? images : videos)->push_back(std::move(names));
  }
}

}  // namespace

fs::path partial_of(const fs::path& output) { return output.string() + ".partial"; }

FileLock require_usable_output(const Options& options, const std::vector<fs::path>& files_read) {
  const fs::path output = options.get_string("output");
  require_plain_file(output);
  refuse_to_overwrite_input(output, files_read);
  const auto refuse_existing = [&] {
    std::error_code ignored;
    if (!options.get_bool("overwrite") && fs::exists(output, ignored)) throw_taken(output);
  };
  refuse_existing();
  require_writable_directory(fs::absolute(output).parent_path());
  FileLock lock = lock_output(output);
  refuse_existing();
  return lock;
}

DefaultOutput default_output(const ModelLocation& where) {
  const fs::path checkpoint = fs::absolute(where.adapter.empty() ? where.model : where.adapter);
  const fs::path place = (checkpoint / "").lexically_normal().parent_path();
  const fs::path folder =
      (where.run_args.empty() ? fs::path("result") / place.filename() : place) / "infer_result";
  const std::string time = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  const auto is_free = [](const fs::path& file) {
    return !fs::exists(file) && !fs::exists(partial_of(file));
  };
  try {
    require_writable_directory(folder);
    for (int count = 1;; ++count) {
      const fs::path file =
          folder / (count == 1 ? time + ".jsonl" : fmt::format("{}-{}.jsonl", time, count));
      if (!is_free(file)) continue;
      auto lock = FileLock::try_take(lock_file_of(file));
      // Whoever held it until now may have left a file.
      if (lock && is_free(file)) return {file, std::move(lock)};
    }
  } catch (const Error& error) {
    log::warning("the answers are printed only: {}", error.what());
    return {};
  }
}

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

AnswerFile::AnswerFile(fs::path path, bool overwrite, std::string request, const std::string& kept)
    : path_(std::move(path)),
      partial_(partial_of(path_)),
      request_(std::move(request)),
      lines_(kept),
      kept_bytes_(kept.size()),
      overwrite_(overwrite) {
  if (kept.empty()) report_earlier_run(partial_);
}

AnswerFile::~AnswerFile() {
  if (is_finished_ || lines_.empty()) return;
  try {
    keep();
  } catch (const std::exception& error) {
    print_text(lines_);
    log::warning("{}; the answers were printed instead", error.what());
  }
}

/// Errors: IoError.
void AnswerFile::keep() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0) ::close(fd);
  if (is_broken_) {
    if (fd >= 0) ::unlink(partial_.c_str());  // makes room
    write_file_atomic(partial_, lines_);
  }
  log::warning("the answers so far are in {}", partial_.string());
}

bool AnswerFile::write_request() const {
  try {
    write_file_atomic(request_file_of(path_), request_);
  } catch (const IoError&) {
    return false;
  }
  return true;
}

bool AnswerFile::open_partial() {
  if (kept_bytes_ == 0) {
    // Another request's rows never stand beside this one's identity, and took long to make.
    std::error_code ignored;
    ::unlink(request_file_of(path_).c_str());
    if (fs::is_regular_file(partial_, ignored))
      fs::rename(partial_, free_name_for(partial_), ignored);
    if (!write_request()) return false;
  }
  fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const auto size = static_cast<off_t>(kept_bytes_);
  if (fd_ < 0 || ::ftruncate(fd_, size) != 0 || ::lseek(fd_, size, SEEK_SET) != size) return false;
  // Pictures of the rows that were cut off may hold something else now.
  return kept_bytes_ == 0 || write_request();
}

bool AnswerFile::append(std::string_view lines) {
  if (fd_ < 0 && !open_partial()) return false;
  return fd_ >= 0 && write_all(fd_, lines.data(), lines.size());
}

void AnswerFile::add(std::string_view lines) {
  lines_ += lines;
  if (is_broken_ || append(lines)) return;
  is_broken_ = true;
  log::warning("{}: {}; writing is tried again once all answers are there", partial_.string(),
               std::strerror(errno));
}

void AnswerFile::add_or_stop(std::string_view lines) {
  if (append(lines)) {
    lines_ += lines;
    return;
  }
  const int code = errno;
  // A part of a line that stays is cut off by the run that goes on.
  if (fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(lines_.size())) != 0) errno = code;
  throw IoError(tr("{}: cannot write: {}", partial_.string(), std::strerror(code)),
                hint_of_full(code, tr("free disk space")));
}

/// Errors: UsageError if the name was taken meanwhile; IoError.
void AnswerFile::rename_partial() {
  const unsigned flags = overwrite_ ? 0 : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), flags) == 0) return;
  std::error_code ignored;
  if (!overwrite_ && fs::exists(path_, ignored)) {
    throw UsageError(tr("[--output] {} was made by somebody else meanwhile; the answers "
                        "are in {}",
                        path_.string(), partial_.string()),
                     tr("move one of them"));
  }
  // A file system without that flag says EINVAL.
  if (::rename(partial_.c_str(), path_.c_str()) != 0)
    throw IoError(tr("{}: cannot write: {}", path_.string(), std::strerror(errno)));
}

void AnswerFile::publish() {
  if (fd_ < 0) add("");
  const int fd = std::exchange(fd_, -1);
  if (is_broken_) {
    if (fd >= 0) {
      ::close(fd);
      ::unlink(partial_.c_str());  // makes room
    }
    write_file_atomic(path_, lines_);
    return;
  }
  const bool is_synced = fd >= 0 && sync_descriptor(fd);
  if ((fd >= 0 && ::close(fd) != 0) || !is_synced)
    throw IoError(tr("{}: cannot write: {}", path_.string(), std::strerror(errno)));
  rename_partial();
}

void AnswerFile::finish() {
  is_finished_ = true;
  try {
    publish();
    ::unlink(request_file_of(path_).c_str());
  } catch (const IoError& error) {
    print_text(lines_);
    throw IoError(tr("{}; the answers were printed instead", error.what()), error.hint());
  }
  log::info("answers: {}", path_.string());
}

Json result_row(const Question& question, const Outcome& outcome) {
  Json row = Json::object();
  Json images = Json::array(), videos = Json::array();
  if (!question.conversation.messages.empty()) {
    row["messages"] = Json::array();
    for (const text::Message& message : question.conversation.messages) {
      Json one = {{"role", message.role}, {"content", tagged_content(message)}};
      name_media(message, &images, &videos);
      for (const auto& [key, value] : message.extra.items()) {
        // The parts of an Alpaca question: the content already holds them.
        if (key != "instruction" && key != "input") one[key] = value;
      }
      row["messages"].push_back(std::move(one));
    }
  } else {
    row["query"] = question.plain;
  }
  if (!images.empty()) row["images"] = std::move(images);
  if (!videos.empty()) row["videos"] = std::move(videos);
  row["response"] = outcome.answer;
  if (question.reference) row["labels"] = *question.reference;
  row["finish_reason"] = outcome.finish_reason;
  if (!outcome.error.empty()) row["error"] = outcome.error;
  return row;
}

std::string result_text(const Question& question, const Outcome& outcome) {
  const std::string asked = question.conversation.messages.empty()
                                ? question.plain
                                : tagged_content(question.conversation.messages.back());
  std::string text = fmt::format("[QUERY] {}\n", asked);
  text += outcome.error.empty() ? fmt::format("[RESPONSE] {}\n", outcome.answer)
                                : fmt::format("[ERROR] {}\n", outcome.error);
  if (question.reference) text += fmt::format("[LABELS] {}\n", *question.reference);
  return text + std::string(50, '-') + "\n";
}

}  // namespace danlu::cli
