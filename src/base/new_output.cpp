#include "base/new_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace danlu {
namespace {

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

constexpr const char* kContentsLock = ".danlu.lock";

/// A link to a directory stays what it is.
fs::path behind_link(const fs::path& place) {
  std::error_code ignored;
  return fs::is_symlink(place, ignored) ? fs::weakly_canonical(place) : place;
}

/// A lock that nobody holds is one of a killed process.
void refuse_worked_in(const fs::path& output) {
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  std::error_code error;
  for (fs::recursive_directory_iterator at(output, kOptions, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename() != kContentsLock) continue;
    const fs::path directory = at->path().parent_path();
    if (try_lock_contents(directory)) continue;
    throw IoError(tr("[--output] {}: {} works in {}", output.string(),
                     holder_of_contents(directory), directory.string()),
                  tr("wait until it has finished, or choose another name"));
  }
}

}  // namespace

fs::path place_of(const fs::path& output) {
  if (output.empty()) throw UsageError(tr("[--output] is empty"), tr("name where to write"));
  return fs::absolute(output / "").lexically_normal().parent_path();
}

bool would_replace(const fs::path& output, const fs::path& input) {
  std::error_code error;
  if (input.empty() || !fs::exists(output, error)) return false;
  if (fs::equivalent(output, input, error) && !error) return true;
  const fs::path taken = fs::weakly_canonical(output, error);
  // A link that lies in the output goes with it, wherever it leads.
  const fs::path named = fs::absolute(input / "", error).lexically_normal().parent_path();
  return lies_in(fs::weakly_canonical(input, error), taken) ||
         lies_in(fs::weakly_canonical(named.parent_path(), error) / named.filename(), taken);
}

void refuse_to_replace_inputs(const fs::path& output, const std::vector<fs::path>& inputs) {
  for (const fs::path& input : inputs) {
    if (!would_replace(output, input)) continue;
    throw UsageError(tr("[--output] {} holds the source ({}): it would be replaced",
                        output.string(), input.string()),
                     tr("choose another output"));
  }
}

bool is_taken(const fs::path& output) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(output, error))) return false;
  return !fs::is_directory(output, error) || !fs::is_empty(output, error);
}

void throw_taken(const fs::path& output) {
  std::error_code ignored;
  const bool is_directory = fs::is_directory(output, ignored);
  throw UsageError(
      tr("[--output] {} exists{}", output.string(), is_directory ? " and is not empty" : ""),
      tr("choose another name, or give --overwrite"));
}

MadeDirectory parent_of(const fs::path& output) {
  const fs::path place = place_of(output);
  try {
    return MadeDirectory(place.parent_path());
  } catch (const IoError& error) {
    std::error_code ignored;
    if (!fs::is_directory(place, ignored) || ::access(place.c_str(), W_OK) != 0) throw;
    throw IoError(error.what(),
                  tr("the result is made beside its name and renamed at the end: name a new "
                     "directory inside, {}",
                     (output / "model").string()));
  }
}

fs::path lock_file_of(const fs::path& output) {
  const fs::path place = place_of(output);
  return place.parent_path() / fmt::format(".danlu-{}.lock", place.filename().string());
}

FileLock lock_output(const fs::path& output) {
  const fs::path file = lock_file_of(output);
  if (auto lock = FileLock::try_take(file)) return std::move(*lock);
  throw IoError(tr("[--output] {}: {} is making it", output.string(), FileLock::holder(file)),
                tr("wait until it has finished, or choose another name"));
}

std::optional<FileLock> try_lock_contents(const fs::path& directory) {
  return FileLock::try_take(directory / kContentsLock);
}

std::string holder_of_contents(const fs::path& directory) {
  return FileLock::holder(directory / kContentsLock);
}

NewDirectory::NewDirectory(fs::path output, bool overwrite, const std::vector<fs::path>& inputs,
                           Check require_replaceable)
    : name_(std::move(output)),
      output_((refuse_to_replace_inputs(name_, inputs), behind_link(place_of(name_)))),
      overwrite_(overwrite),
      require_replaceable_(std::move(require_replaceable)),
      parent_((require_free(), parent_of(output_))),
      lock_(lock_output(output_)) {
  require_free();
}

void NewDirectory::require_free() const {
  if (!is_taken(output_)) return;
  if (!overwrite_) {
    // One killed just after its end left its lock; a living one keeps it.
    if (fs::exists(lock_file_of(output_))) (void)FileLock::try_take(lock_file_of(output_));
    throw_taken(name_);
  }
  refuse_worked_in(output_);
  if (require_replaceable_) require_replaceable_(output_);
}

void NewDirectory::publish(const std::function<void(const fs::path&)>& fill) const {
  write_directory_atomic(output_, [&](const fs::path& directory) {
    fill(directory);
    require_free();
  });
}

}  // namespace danlu
