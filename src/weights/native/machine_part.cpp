#include "weights/native/machine_part.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "weights/native/native.h"

namespace danlu::weights {
namespace {

namespace fs = std::filesystem;

/// The number in "rank-12.safetensors".
std::optional<int64_t> rank_in_name(const std::string& file) {
  constexpr std::string_view kStart = "rank-";
  if (!file.starts_with(kStart)) return std::nullopt;
  int64_t rank = 0;
  const char* end = file.data() + file.size();
  const auto [at, error] = std::from_chars(file.data() + kStart.size(), end, rank);
  if (error != std::errc() || std::string_view(at, end) != ".safetensors") return std::nullopt;
  return rank;
}

/// "0-3, 6".
std::string ranges(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

MachinePart read(const fs::path& checkpoint) {
  const Json done = read_json_file(checkpoint / "DONE");
  const Json index = read_json_file(checkpoint / "optim" / native::kIndexFile);
  MachinePart part{.checkpoint = checkpoint};
  const Json& kept = done.at("files");
  part.has_model = kept.contains("config.json") || kept.contains("adapter_config.json");
  for (const Json& entry : index.at("files")) {
    const auto name = entry.get<std::string>();
    const auto rank = rank_in_name(name);
    if (!rank) continue;
    part.all_ranks.push_back(*rank);
    if (kept.contains("optim/" + name)) part.ranks.push_back(*rank);
  }
  return part;
}

}  // namespace

std::optional<MachinePart> machine_part(const std::filesystem::path& directory) {
  std::error_code unknown;
  const bool is_one = std::filesystem::exists(directory / "DONE", unknown) &&
                      native::is_native_directory(directory / "optim");
  const std::filesystem::path checkpoint = is_one ? directory : directory / "last";
  if (!is_one && !native::is_native_directory(checkpoint / "optim")) return std::nullopt;
  try {
    return read(checkpoint);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string describe(const MachinePart& part) {
  const std::string all = ranges(part.all_ranks);
  if (part.ranks.empty()) return tr("no optimizer state (that is of ranks {})", all);
  return tr("optimizer state of ranks {} (of {})", ranges(part.ranks), all);
}

void refuse_part_without_model(const std::filesystem::path& directory) {
  const auto part = machine_part(directory);
  if (!part || part->has_model) return;
  throw ModelError(
      tr("{}: one machine's part of a checkpoint, without the model: {}", directory.string(),
         describe(*part)),
      tr("the machines of that job shared no storage: its weights are on machine 0 (that of rank "
         "0), under the same path: name them there, or copy them from there"));
}

}  // namespace danlu::weights
