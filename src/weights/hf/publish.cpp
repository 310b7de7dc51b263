#include "weights/hf/publish.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace danlu::weights {
namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// "<base>.safetensors", its index, and "<base>-00001-of-00002.safetensors".
bool is_weight_file_of(const std::string& file_name, const std::string& base) {
  if (file_name == base + ".safetensors" || file_name == base + ".safetensors.index.json")
    return true;
  if (file_name.rfind(base + "-", 0) != 0) return false;
  const std::string rest = file_name.substr(base.size());
  constexpr std::string_view kPattern = "-#####-of-#####.safetensors";
  if (rest.size() != kPattern.size()) return false;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (kPattern[i] == '#' ? !std::isdigit(static_cast<unsigned char>(rest[i]))
                           : rest[i] != kPattern[i])
      return false;
  }
  return true;
}

}  // namespace

std::vector<PublishStep> publish_steps(const std::vector<std::string>& existing,
                                       const std::vector<std::string>& names,
                                       const std::string& base_name) {
  using Kind = PublishStep::Kind;
  const std::string index = base_name + ".safetensors.index.json";
  std::vector<PublishStep> steps;
  // Old shards of the same names are replaced one by one: without its index the directory is
  // nobody's meanwhile. (A single old file, if there is one, is what readers take until the end.)
  const bool mixes = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return names.size() > 1 && name != index && holds(existing, name);
  });
  if (mixes && holds(existing, index)) steps.push_back({Kind::kRemove, index});
  for (const std::string& name : names) steps.push_back({Kind::kRename, name});
  // What an earlier save of another shard count left would be found before, or beside, the new
  // ones. Its index goes first: a shard without one is no model.
  std::vector<std::string> left;
  for (const std::string& name : existing) {
    if (is_weight_file_of(name, base_name) && !holds(names, name)) left.push_back(name);
  }
  std::stable_partition(left.begin(), left.end(),
                        [&](const std::string& name) { return name == index; });
  for (std::string& name : left) steps.push_back({Kind::kRemove, std::move(name)});
  return steps;
}

void publish(const fs::path& staging, const fs::path& directory,
             const std::vector<PublishStep>& steps) {
  try {
    for (const PublishStep& step : steps) {
      if (step.kind == PublishStep::Kind::kRename) {
        fs::rename(staging / step.name, directory / step.name);
      } else {
        fs::remove(directory / step.name);
      }
    }
  } catch (const fs::filesystem_error& e) {
    throw IoError(tr("{}: cannot put the saved weights in place: {}", directory.string(),
                     e.code().message()));
  }
}

}  // namespace danlu::weights
