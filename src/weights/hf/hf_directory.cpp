// Which weight files a Hugging Face directory holds, and what kind of file a single one is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/hf/block_scales.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/hf/packed_weights.h"
#include "weights/hf/publish.h"
#include "weights/hf/sharded_source.h"
#include "weights/hf/tower_file.h"
#include "weights/hf/value_head.h"
#include "weights/native/machine_part.h"

namespace danlu::weights {
namespace {

/// In the order of preference of Hugging Face's loaders.
constexpr std::array kCandidates = {"model.safetensors",         "model.safetensors.index.json",
                                    "pytorch_model.bin",         "pytorch_model.bin.index.json",
                                    "adapter_model.safetensors", "adapter_model.bin"};

bool ends_with(const std::string& text, std::string_view ending) {
  return text.size() >= ending.size() &&
         std::string_view(text).substr(text.size() - ending.size()) == ending;
}

std::string first_bytes(const std::filesystem::path& file, size_t count) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(tr("{}: cannot open", file.string()));
  std::string bytes(count, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

/// The latest of a training run's folders checkpoint-N below `directory`; empty: it has none.
std::filesystem::path latest_checkpoint_below(const std::filesystem::path& directory) {
  std::filesystem::path latest;
  int64_t highest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    int64_t step = -1;
    const std::string_view number =
        std::string_view(name).substr(std::min(name.size(), size_t{11}));
    const auto read = std::from_chars(number.data(), number.data() + number.size(), step);
    if (!name.starts_with("checkpoint-") || read.ec != std::errc() || step <= highest) continue;
    highest = step;
    latest = entry.path();
  }
  return latest;
}

[[noreturn]] void no_weights(const std::filesystem::path& directory) {
  refuse_part_without_model(directory);
  bool loose_shards = false, interrupted = false;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    interrupted |=
        entry.path().filename().string().starts_with(fmt::format(".{}.tmp-", kStagingStem));
    loose_shards |= ends_with(entry.path().filename().string(), ".safetensors") ||
                    ends_with(entry.path().filename().string(), ".bin");
  }
  std::string hint = hint_of_unfinished_run(directory);
  if (!hint.empty()) {
    // its own words say what to do
  } else if (interrupted) {
    hint =
        tr("saving weights here was interrupted (a .saving.tmp-… folder is left): save them again");
  } else if (loose_shards) {
    hint = hint_of_models_below(directory);
    if (hint.empty())
      hint =
          tr("there are weight files under other names: give one of them, or fetch "
             "model.safetensors.index.json");
  } else if (const auto latest = latest_checkpoint_below(directory); !latest.empty()) {
    hint = tr("it holds checkpoints, of which one is given: {}", latest.string());
  } else {
    hint = hint_of_models_below(directory);
  }
  throw ModelError(
      tr("{}: no weights here; looked for {}", directory.string(), fmt::join(kCandidates, ", ")),
      hint);
}

}  // namespace

std::shared_ptr<const TensorSource> open_weight_file(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    throw ModelError(tr("{}: not a regular file", file.string()));
  refuse_lfs_pointer(file, "the weights");
  const std::string start = first_bytes(file, 9);
  if (start.size() == 9 && start[8] == '{') return open_safetensors(file);
  if (start.substr(0, 4) == "PK\x03\x04" || start.substr(0, 1) == "\x80")
    return open_torch_file(file);
  if (start.substr(0, 4) == "GGUF") return gguf::open(file);
  if (ends_with(file.string(), ".safetensors")) return open_safetensors(file);
  const std::filesystem::path directory = std::filesystem::absolute(file).parent_path();
  throw ModelError(
      tr("{}: neither a safetensors, a torch nor a GGUF file ({})", file.string(),
         start.empty() ? "it is empty" : "its first bytes fit none"),
      file.extension() == ".json" && has_weights(directory)
          ? tr("did you mean {}? A model lies there", directory.string())
          : tr("an HTML error page saved under this name looks like this: download it again"));
}

bool has_weights(const std::filesystem::path& directory) {
  if (is_adapter_with_head(directory)) return false;
  // Adapters are weights of a model only together with others.
  return std::any_of(kCandidates.begin(), kCandidates.end(), [&](std::string_view candidate) {
    std::error_code error;
    return !candidate.starts_with("adapter_") &&
           std::filesystem::exists(directory / candidate, error);
  });
}

std::shared_ptr<const TensorSource> open_stored_weights(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw ModelError(tr("{}: no such file or directory", path.string()));
  if (!std::filesystem::is_directory(path))
    return ends_with(path.string(), ".index.json") ? open_index(path) : open_weight_file(path);
  const bool is_adapter = is_adapter_with_head(path);
  for (const char* candidate : kCandidates) {
    const std::filesystem::path file = path / candidate;
    const bool is_left_out = is_adapter && !std::string_view(candidate).starts_with("adapter_");
    if (is_left_out || !std::filesystem::exists(file)) continue;
    if (std::string_view(candidate).starts_with("adapter_"))
      return with_tower_file(open_weight_file(file), path);
    return ends_with(candidate, ".index.json") ? open_index(file) : open_weight_file(file);
  }
  no_weights(path);
}

std::shared_ptr<const TensorSource> open_weights(const std::filesystem::path& path) {
  auto stored = with_nf4(with_block_scales(open_stored_weights(path)));
  return with_packed_weights(
      std::move(stored),
      std::filesystem::is_directory(path) ? path : std::filesystem::absolute(path).parent_path());
}

}  // namespace danlu::weights
