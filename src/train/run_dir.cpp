#include "train/run_dir.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "device/dtype.h"
#include "weights/tensor_source.h"

namespace danlu::train {
namespace run_dir_detail {

/// Training state, as opposed to the model.
const std::set<std::string>& state_files() {
  static const std::set<std::string> names = {"args.json", "trainer_state.json", "data_state.json",
                                              "DONE"};
  return names;
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  const fs::path temporary = to.parent_path() / ("." + to.filename().string() + ".new");
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_hard_link(from, temporary, error);
  if (error) {
    error.clear();
    fs::copy_file(from, temporary, error);
  }
  if (!error) fs::rename(temporary, to, error);
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw IoError(fmt::format("{}: cannot write: {}", to.string(), error.message()));
  }
}

}  // namespace run_dir_detail

fs::path versioned_run_dir(const fs::path& output_dir, const std::string& model_name) {
  const fs::path parent = output_dir / model_name;
  int64_t version = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    const size_t dash = name.find('-');
    if (name.size() < 2 || name[0] != 'v' || dash == std::string::npos) continue;
    try {
      version = std::max<int64_t>(version, std::stoll(name.substr(1, dash - 1)) + 1);
    } catch (const std::exception&) {
      continue;  // not one of ours
    }
  }
  return parent / fmt::format("v{}-{:%Y%m%d-%H%M%S}", version, fmt::localtime(std::time(nullptr)));
}

FileLock lock_run_directory(const fs::path& directory) {
  const fs::path file = directory / ".danlu.lock";
  if (auto lock = FileLock::try_take(file)) return std::move(*lock);
  throw IoError(fmt::format("[train] {}: {} is training in this directory", directory.string(),
                            FileLock::holder(file)),
                {"wait until it has finished, or choose another --output_dir",
                 "请等待其结束，或更换 --output_dir"});
}

uint64_t model_file_bytes(const models::CausalLM& model, bool adapter_only) {
  uint64_t bytes = 0;
  for (const auto& parameter : adapter_only ? model.adapter_parameters() : model.parameters())
    bytes += parameter.tensor.nbytes();
  return bytes;
}

void write_model_files(const models::CausalLM& model, const TrainConfig& config, DType dtype,
                       const fs::path& directory) {
  fs::create_directories(directory);
  if (config.tuner == Tuner::kLora) {
    model.save_adapter(directory, fs::absolute(config.model.directory).lexically_normal().string());
    // An adapter directory carries the tokenizer too, but not the base model's config.json.
    weights::carry_over_files(config.model.tokenizer, directory);
    std::error_code ignored;
    fs::remove(directory / "config.json", ignored);
    return;
  }
  model.save(directory, dtype, config.model.directory);
  if (config.model.tokenizer != config.model.directory)
    weights::carry_over_files(config.model.tokenizer, directory);
}

void publish_model(const fs::path& checkpoint, const fs::path& run_dir) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || run_dir_detail::state_files().count(name)) continue;
    run_dir_detail::link_or_copy(entry.path(), run_dir / name);
  }
}

}  // namespace danlu::train
