#include "weights/convert/replaceable.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "weights/convert/conversion.h"
#include "weights/gguf/gguf_checkpoint.h"
#include "weights/megatron/place.h"
#include "weights/native/native.h"
#include "weights/tensor_source.h"

namespace danlu::weights {
namespace {

bool is_checkpoints_own(const std::string& name) {
  static const std::set<std::string> kKnown = {
      "args.json", "adapter_config.json", "README.md",   "LICENSE", "weights",
      "optim",     kConversionFile,       kMoreTemplates};
  if (kKnown.count(name) || is_carried_over(name)) return true;
  for (const char* ending : {".safetensors", ".bin", ".index.json", ".py"}) {
    if (name.ends_with(ending)) return true;
  }
  return name == native::kIndexFile || name == megatron::kTrackerFile;
}

/// What replacing `output` would destroy besides a checkpoint; "" if nothing.
std::string lost_by_replacing(const fs::path& output, bool is_file,
                              const std::set<std::string>& written) {
  if (!fs::is_directory(output)) {
    const bool is_model = gguf::is_gguf_file(output) || output.extension() == ".safetensors";
    return is_file && is_model ? "" : output.string();
  }
  const bool is_native = native::is_native_directory(output);
  for (const auto& entry : fs::directory_iterator(output)) {
    const std::string name = entry.path().filename();
    const bool of_training = (name == "optim" || name == "weights") && !is_native;
    if (!written.contains(name) && (!is_checkpoints_own(name) || of_training))
      return entry.path().string();
  }
  return "";
}

}  // namespace

void require_renamable(const fs::path& output) {
  std::error_code error;
  if (fs::equivalent(output, fs::current_path(), error) && !error) {
    throw UsageError(tr("[output] is the directory this command runs in, which would be replaced"),
                     tr("name a directory inside it"));
  }
  struct stat here{}, above{};
  if (::stat(output.c_str(), &here) != 0 || ::stat(output.parent_path().c_str(), &above) != 0)
    return;
  if (here.st_dev == above.st_dev) return;
  throw UsageError(
      tr("[output] {} is a mount point, which cannot be replaced as a whole", output.string()),
      tr("name a directory inside it"));
}

void require_replaceable(const fs::path& output, bool is_file,
                         const std::set<std::string>& written) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(output, none))) return;
  require_renamable(output);
  const std::string lost = lost_by_replacing(output, is_file, written);
  if (lost.empty()) return;
  throw UsageError(
      tr("[output] --overwrite replaces a whole checkpoint, and {} is no part of one", lost),
      tr("move it, or choose another output"));
}

}  // namespace danlu::weights
