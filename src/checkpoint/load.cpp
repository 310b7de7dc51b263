#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/checkpoint_name.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/shell_quote.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksum.h"
#include "weights/convert/optimizer_state.h"
#include "weights/hf/stored_form.h"
#include "weights/hf/value_head.h"
#include "weights/native/native.h"
#include "weights/source_base.h"

namespace danlu::checkpoint {
namespace {

/// What is wrong with a checkpoint directory; empty if nothing is.
std::string damage_of(const fs::path& directory, Json& done) {
  if (!fs::exists(directory / "DONE")) return "it was never finished (no DONE file)";
  try {
    done = read_json_file(directory / "DONE");
    for (const auto& [name, size] : done.at("files").items()) {
      std::error_code error;
      const uintmax_t got = fs::file_size(directory / name, error);
      if (error) return tr("file {} is missing", name);
      if (got != size.get<uintmax_t>()) {
        return tr("file {} has {} bytes, {} were written", name, got, size.get<uintmax_t>());
      }
    }
  } catch (const DataError& error) {
    return tr("its DONE file is damaged: {}", error.what());
  } catch (const Json::exception& error) {
    return tr("its DONE file is damaged: {}", error.what());
  }
  return "";
}

/// Says, as damage_of does, which files have other content than was written.
std::string changed_content(const fs::path& directory, const Json& done) {
  if (!done.contains("xxh3")) {
    log::info("{}: saved by a version that kept no checksums: only sizes were compared",
              directory.string());
    return "";
  }
  for (const auto& [name, size] : done.at("files").items()) {
    const auto written = done.at("xxh3").find(name);
    if (written == done.at("xxh3").end()) return tr("DONE has no checksum of {}", name);
    const std::string got = checksum_of(directory / name);
    if (*written != got) {
      return tr("file {} was changed after it was written: its checksum is {}, DONE says {}", name,
                got, written->dump());
    }
  }
  return "";
}

/// Hugging Face's Trainer and DeepSpeed name theirs alike.
bool is_of_another_program(const fs::path& directory) {
  for (const char* theirs : {"optimizer.pt", "scheduler.pt", "training_args.bin", "latest"}) {
    if (fs::exists(directory / theirs)) return true;
  }
  return fs::exists(directory / "trainer_state.json") && !fs::exists(directory / "data_state.json");
}

}  // namespace

std::vector<Found> list(const fs::path& run_dir) {
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    const auto step = step_of_checkpoint(entry.path().filename().string());
    Json done;
    if (!step || !entry.is_directory() || !damage_of(entry.path(), done).empty()) continue;
    found.push_back({entry.path(), *step, done.value("resumable", false)});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step < b.step; });
  return found;
}

std::vector<Damaged> damaged(const fs::path& run_dir) {
  std::vector<Damaged> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    if (!step_of_checkpoint(entry.path().filename().string()) || !entry.is_directory()) continue;
    Json done;
    const std::string damage = damage_of(entry.path(), done);
    if (!damage.empty()) found.push_back({entry.path(), damage});
  }
  return found;
}

std::vector<fs::path> everything_of(const fs::path& run_dir) {
  std::vector<fs::path> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run_dir, none)) {
    const std::string name = entry.path().filename().string();
    const bool link = entry.is_symlink() && (name == "last" || name == "best");
    const bool ours =
        entry.is_directory() && step_of_checkpoint(name) && !is_of_another_program(entry.path());
    if (link || ours) all.push_back(entry.path());
  }
  return all;
}

Loaded open(const fs::path& directory, Check check) {
  if (!fs::is_directory(directory))
    throw IoError(tr("{}: no such checkpoint directory", directory.string()),
                  did_you_mean_path(directory));
  Json done;
  const auto refuse_if = [&](const char* kind, const std::string& damage) {
    if (damage.empty()) return;
    throw IoError(tr("{}: {}: {}", directory.string(), kind, damage),
                  tr("resume from an older checkpoint, or begin a new run in another directory"));
  };
  refuse_if("not a complete checkpoint", damage_of(directory, done));
  if (check == Check::kContents)
    refuse_if("a damaged checkpoint", changed_content(directory, done));
  Loaded loaded;
  loaded.directory = directory;
  loaded.args = read_json_file(directory / "args.json");
  loaded.trainer_state = read_json_file(directory / "trainer_state.json");
  loaded.data_state = read_json_file(directory / "data_state.json");
  if (done.value("resumable", false))
    loaded.optimizer = weights::native::open_state(directory / "optim", /*some_elsewhere=*/true);
  return loaded;
}

const char* option_of_weights(const fs::path& directory) {
  return fs::exists(directory / "adapter_config.json") ? "--adapters" : "--model";
}

bool read_rect(const weights::TensorSource& source, const std::string& name,
               const std::vector<int64_t>& shape, const arch::Rect& rect, const at::Tensor& to) {
  const weights::TensorInfo* info = source.find(name);
  if (!info) return false;
  const std::string file = source.file_of(name).string();
  if (info->dtype != DType::kF32)
    throw ModelError(tr("{}: {} is {}, not F32", file, name, dtype_name(info->dtype)));
  if (info->shape != shape) {
    throw ModelError(tr("{}: {} is {}, the model needs {}", file, name,
                        weights::shape_text(info->shape), weights::shape_text(shape)));
  }
  const at::Tensor read = to.is_cpu() ? to : at::empty(to.sizes(), at::kFloat);
  source.read_rect(name, rect, static_cast<std::byte*>(read.data_ptr()), rect.cols);
  if (!to.is_cpu()) at::Tensor(to).copy_(read);
  return true;
}

namespace {

/// Under the parameters' names. An adapter's directory describes no model.
std::shared_ptr<const weights::TensorSource> weights_of(const fs::path& directory) {
  auto source = weights::with_value_head(weights::open_weights(directory), directory);
  if (!fs::exists(directory / "config.json")) return source;
  return weights::as_parameters(std::move(source),
                                arch::load_model_config(directory, arch::Heads::kAny));
}

}  // namespace

void load_optimizer(const Loaded& checkpoint, optim::AdamW& optimizer) {
  if (!checkpoint.optimizer) {
    throw IoError(
        tr("{}: saved without optimizer state (--save_only_model), cannot be resumed",
           checkpoint.directory.string()),
        tr("begin a new run from it, in another --output_dir and without --resume: {} {}",
           option_of_weights(checkpoint.directory), shell_quoted(checkpoint.directory.string())));
  }
  const auto updates = json_get<int64_t>(checkpoint.trainer_state, "optimizer_updates");
  if (!updates)
    throw IoError(
        tr("{}: trainer_state.json lacks optimizer_updates", checkpoint.directory.string()));
  std::shared_ptr<const weights::TensorSource> model;
  optimizer.load_state(
      [&](const std::string& name, const std::vector<int64_t>& shape, const arch::Rect& rect,
          const at::Tensor& to) {
        const weights::TensorSource* source = checkpoint.optimizer.get();
        const bool is_weight = !weights::is_state(name);
        if (is_weight) {
          if (!model) model = weights_of(checkpoint.directory);
          source = model.get();
        }
        const weights::TensorInfo* info = source->find(name);
        // A rounded weight is no master.
        if (is_weight && info && info->dtype != DType::kF32) return false;
        return read_rect(*source, name, shape, rect, to);
      },
      *updates);
}

}  // namespace danlu::checkpoint
