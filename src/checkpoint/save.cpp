#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksum.h"
#include "parallel/whole_tensors.h"

namespace danlu::checkpoint {
namespace save_detail {

// Small files, headers and directory blocks on top of the tensors.
constexpr uint64_t kSlackBytes = 16'000'000;

void write_optimizer(const parallel::WholeTensors& state,
                     const std::vector<weights::TensorInfo>& infos, const fs::path& directory) {
  fs::create_directories(directory);
  at::Tensor held;  // keeps a host copy alive while its bytes are written
  weights::save_safetensors(directory, infos,
                            [&](size_t i) {
                              held = state.whole(i).to(at::kCPU).contiguous();
                              return std::span<const std::byte>(
                                  static_cast<const std::byte*>(held.data_ptr()), held.nbytes());
                            },
                            {.max_shard_bytes = UINT64_MAX, .base_name = "state"});
}

/// Files are read again for their checksums while the system still has them in memory.
void write_done(const fs::path& directory, int64_t step, bool resumable) {
  std::map<std::string, uint64_t> sizes;
  std::map<std::string, std::string> digests;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      const std::string name = fs::relative(entry.path(), directory).string();
      sizes[name] = entry.file_size();
      digests[name] = checksum_of(entry.path());
      sync_path(entry.path());  // whoever wrote it: a rename may not overtake its content
    } else if (entry.is_directory()) {
      sync_path(entry.path());
    }
  }
  write_json_file(directory / "DONE",
                  {{"step", step}, {"resumable", resumable}, {"files", sizes}, {"xxh3", digests}});
}

/// As write_directory_atomic; an error names the checkpoint, and what the user still has.
void publish(const fs::path& target, const std::function<void(const fs::path&)>& fill) {
  try {
    write_directory_atomic(target, fill);
  } catch (const IoError& error) {
    throw IoError(
        tr("{}: cannot be saved: {}", target.string(), error.what()),
        tr("earlier checkpoints are intact: free some space, then run the same command to go on"));
  }
}

}  // namespace save_detail

fs::path save(const SaveRequest& request) {
  const fs::path target = request.run_dir / fmt::format("checkpoint-{}", request.step);
  uint64_t bytes = request.model_bytes + save_detail::kSlackBytes;
  optim::StateTensors state;
  if (request.optimizer) state = request.optimizer->state(request.exact_weights);
  std::vector<weights::TensorInfo> infos;
  for (const parallel::Parameter& tensor : state) {
    infos.push_back({tensor.name(), DType::kF32, tensor.spec.shape});
    bytes += infos.back().size_bytes();
  }
  if (request.mesh->tensor().rank() > 0) {
    request.write_model({});
    if (request.optimizer) parallel::WholeTensors(*request.mesh, state).serve();
    return {};
  }
  require_free_space(request.run_dir, bytes, fmt::format("checkpoint-{}", request.step));
  save_detail::publish(target, [&](const fs::path& directory) {
    request.write_model(directory);
    if (request.optimizer) {
      save_detail::write_optimizer(parallel::WholeTensors(*request.mesh, state), infos,
                                   directory / "optim");
    }
    write_json_file(directory / "args.json", request.args);
    write_json_file(directory / "trainer_state.json", request.trainer_state);
    write_json_file(directory / "data_state.json", request.data_state);
    save_detail::write_done(directory, request.step, request.optimizer != nullptr);
  });
  return target;
}

void rotate(const fs::path& run_dir, int64_t limit, const std::vector<fs::path>& keep) {
  if (limit <= 0) return;
  std::vector<Found> found = list(run_dir);
  int64_t count = static_cast<int64_t>(found.size());
  for (const Found& checkpoint : found) {
    if (count <= limit) return;
    const bool kept = std::any_of(keep.begin(), keep.end(), [&](const fs::path& path) {
      std::error_code ignored;
      return fs::equivalent(path, checkpoint.directory, ignored);
    });
    if (kept) continue;
    remove_directory_atomic(checkpoint.directory);
    --count;
  }
}

void point_link(const fs::path& run_dir, const std::string& name, const fs::path& directory) {
  const Temporary folder(run_dir / name, Temporary::Kind::kDirectory);
  std::error_code error(folder.fd() < 0 ? errno : 0, std::generic_category());
  const fs::path temporary = folder.path() / name;
  if (!error) fs::create_directory_symlink(directory.filename(), temporary, error);
  if (!error) fs::rename(temporary, run_dir / name, error);
  if (error) throw IoError(tr("{}: cannot link: {}", (run_dir / name).string(), error.message()));
}

}  // namespace danlu::checkpoint
