#include "base/new_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace danlu {
namespace {

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

/// Absolute, and not through a link to a directory: that one stays what it is.
fs::path place_of(const fs::path& output) {
  if (output.empty())
    throw UsageError("[--output] is empty", {"name where to write", "请指定输出位置"});
  const fs::path place = fs::absolute(output / "").lexically_normal().parent_path();
  std::error_code ignored;
  return fs::is_symlink(place, ignored) ? fs::weakly_canonical(place) : place;
}

}  // namespace

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
    throw UsageError(fmt::format("[--output] {} holds the source ({}): it would be replaced",
                                 output.string(), input.string()),
                     {"choose another output", "请更换输出位置"});
  }
}

bool is_taken(const fs::path& output) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(output, error))) return false;
  return !fs::is_directory(output, error) || !fs::is_empty(output, error);
}

fs::path lock_file_of(const fs::path& output) {
  const fs::path place = fs::absolute(output / "").lexically_normal().parent_path();
  return place.parent_path() / fmt::format(".danlu-{}.lock", place.filename().string());
}

FileLock lock_output(const fs::path& output) {
  const fs::path file = lock_file_of(output);
  if (auto lock = FileLock::try_take(file)) return std::move(*lock);
  throw IoError(
      fmt::format("[--output] {}: {} is making it", output.string(), FileLock::holder(file)),
      {"wait until it has finished, or choose another name", "请等待其结束，或换一个名称"});
}

NewDirectory::NewDirectory(fs::path output, bool overwrite, const std::vector<fs::path>& inputs)
    : name_(std::move(output)),
      output_((refuse_to_replace_inputs(name_, inputs), place_of(name_))),
      overwrite_(overwrite),
      parent_((refuse_taken(), output_.parent_path())),
      lock_(lock_output(output_)) {
  refuse_taken();
}

void NewDirectory::refuse_taken() const {
  if (overwrite_ || !is_taken(output_)) return;
  throw UsageError(fmt::format("[--output] {} exists{}", name_.string(),
                               fs::is_directory(output_) ? " and is not empty" : ""),
                   {"choose another name, or give --overwrite", "请换一个名称，或加 --overwrite"});
}

void NewDirectory::publish(const std::function<void(const fs::path&)>& fill) const {
  write_directory_atomic(output_, [&](const fs::path& directory) {
    fill(directory);
    refuse_taken();
  });
}

}  // namespace danlu
