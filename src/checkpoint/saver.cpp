#include "checkpoint/saver.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checksum.h"
#include "checkpoint/state_index.h"
#include "device/stream.h"
#include "parallel/agree.h"
#include "parallel/background.h"
#include "weights/native/native.h"
#include "weights/tensor_source.h"

namespace danlu::checkpoint {

namespace fs = std::filesystem;

/// What one rank writes of the optimizer's state.
struct OwnState {
  HeldParts held;
  std::vector<optim::StateValues> values;  ///< of the live state, of what is written
};

namespace {

// Small files, headers and directory blocks on top of the tensors.
constexpr uint64_t kSlackBytes = 16'000'000;

at::Device device_of(const optim::AdamW& optimizer) {
  const auto& parameters = optimizer.parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front()->tensor.device();
}

/// Whether the first stage of the pipeline holds it too, and writes it.
bool is_copy(const parallel::Mesh& mesh, const parallel::Parameter& parameter) {
  return parameter.in_both_ends && mesh.stage() > 0;
}

OwnState own_state(const parallel::Mesh& mesh, const optim::AdamW& optimizer, bool exact_weights) {
  OwnState own;
  for (const optim::StatePart& state : optimizer.state(exact_weights)) {
    if (!state.is_saved) continue;
    const arch::Axes copied_on = state.parameter->spec.copied_on();
    const parallel::Group& same =
        optimizer.is_shared() ? mesh.replicas(copied_on) : mesh.holders(copied_on);
    if (same.rank() > 0) continue;
    int64_t at = 0;
    for (const parallel::HeldRect& held : parallel::held_rects(*state.parameter, state.held)) {
      const int64_t size = held.rect.rows * held.rect.cols;
      // What several ranks hold is written by the first of them.
      const bool writes =
          mesh.tensor().rank() % held.holders == 0 && !is_copy(mesh, *state.parameter);
      auto& list = writes ? own.held.written : own.held.written_by_others;
      list.push_back({state.name, state.parameter->spec.shape, held.rect});
      if (writes) own.values.push_back(state.values.narrow(at, size));
      at += size;
    }
  }
  return own;
}

/// The file is read again for its checksum while the system still has it in memory. Errors:
/// IoError; InternalError once `abandoned`.
void write_state(OwnState& own, const fs::path& folder, int64_t rank,
                 const std::atomic<bool>& abandoned) {
  if (own.held.written.empty()) return;
  const auto give = [&](size_t i, const weights::BytesSink& sink) {
    own.values[i].for_each_block([&](const at::Tensor& block) {
      if (abandoned) throw InternalError("[checkpoint] abandoned");
      const at::Tensor here = block.to(at::kCPU).contiguous();
      sink({static_cast<const std::byte*>(here.data_ptr()), here.nbytes()});
    });
  };
  weights::save_safetensors(
      folder, weights::native::stored_as(own.held.written), give,
      {.max_shard_bytes = UINT64_MAX, .base_name = fs::path(state_file(rank)).stem().string()});
  const fs::path file = folder / state_file(rank);
  own.held.file = {fs::file_size(file), checksum_of(file)};
}

/// The bytes of all stages' states. Collective.
uint64_t state_bytes(const parallel::Mesh& mesh, const optim::AdamW& optimizer,
                     bool exact_weights) {
  int64_t common = 0, of_experts = 0;
  for (const parallel::Parameter* parameter : optimizer.parameters()) {
    if (is_copy(mesh, *parameter)) continue;
    const bool has_master = exact_weights || parameter->tensor.scalar_type() != at::kFloat;
    (parameter->spec.expert < 0 ? common : of_experts) +=
        optimizer.state_numel(*parameter) + (has_master ? parameter->whole_numel() : 0);
  }
  return static_cast<uint64_t>(mesh.sum_over_stages(common, of_experts)) * sizeof(float);
}

/// `written`: what ranks have said of files, which are not read again. Errors: IoError.
void write_done(const fs::path& directory, const std::string& save, const SaveRequest& what,
                const std::map<std::string, WrittenFile>& written,
                const std::atomic<bool>& abandoned) {
  std::map<std::string, uint64_t> sizes;
  std::map<std::string, std::string> digests;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (abandoned) throw InternalError("[checkpoint] abandoned");
    if (entry.is_regular_file()) {
      const std::string name = fs::relative(entry.path(), directory).string();
      sizes[name] = entry.file_size();
      const auto said = written.find(name);
      if (said != written.end() && said->second.bytes != sizes[name]) {
        throw IoError(tr("{}: its rank has written {} bytes, and {} are here", name,
                         said->second.bytes, sizes[name]),
                      tr("all machines must see one --output_dir"));
      }
      digests[name] = said != written.end() ? said->second.xxh3 : checksum_of(entry.path());
      sync_path(entry.path());  // whoever wrote it: a rename may not overtake its content
    } else if (entry.is_directory()) {
      sync_path(entry.path());
    }
  }
  write_json_file(directory / "DONE", {{"step", what.step},
                                       {"save", save},
                                       {"resumable", what.with_state},
                                       {"files", sizes},
                                       {"xxh3", digests}});
}

/// Each keeper's directory (`own`: where this rank keeps one), told to all: that of `keeper`.
fs::path tell_directories(const parallel::Mesh& mesh, const std::vector<int64_t>& keepers,
                          int64_t keeper, const fs::path& own) {
  fs::path directory;
  for (const int64_t rank : keepers) {
    const std::string told = parallel::text_from(mesh.all(), rank, own.string());
    if (rank == keeper) directory = told;
  }
  return directory;
}

}  // namespace

struct Saver::Work {
  Work() = default;
  ~Work() { abandoned = true; }  // before the job is waited for
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  SaveRequest request;
  std::string save;                    ///< a name of this saving, at every keeper
  fs::path target, folder;             ///< folder: of the state, under its temporary name
  std::optional<Temporary> directory;  ///< of a keeper
  OwnState own;
  device::Event read;  ///< of the job that is over: what training changes has been read
  std::atomic<bool> abandoned = false;
  std::future<void> job;
  std::exception_ptr broken;  ///< of the job that is over: others still wait for this rank in it
  /// All ranks write what training changes; then keepers write the rest, and give the name when all
  /// have.
  enum class Phase { kTrained, kRest, kName } phase = Phase::kTrained;

  bool is_ready() const {
    return !job.valid() || job.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// For its job: less than ranks may wait for each other in an exchange.
  void wait_a_moment() const {
    if (job.valid()) job.wait_for(std::chrono::milliseconds(100));
  }

  /// Errors of a job name the checkpoint, and what the user still has.
  IoError error_of(const IoError& error) const {
    const std::string remedy = !error.hint().empty()
                                   ? error.hint()
                                   : tr("free some space, or see to what the error names");
    return IoError(
        tr("{}: cannot be saved: {}", target.string(), error.what()),
        list(request.run_dir).empty()
            ? tr("there is no earlier checkpoint: {}, then run the same command to begin again",
                 remedy)
            : tr("earlier checkpoints are intact: {}, then run the same command to go on", remedy));
  }
};

Holders holders_of(const parallel::Mesh& mesh, bool is_shared) {
  return {mesh.tensor().size(), is_shared ? mesh.sharers().size() : 1, mesh.shape().pipeline,
          mesh.shape().stage_size(), mesh.shape().expert * mesh.shape().expert_dealers};
}

Saver::Saver(const parallel::Mesh& mesh, optim::AdamW& optimizer)
    : mesh_(mesh), optimizer_(optimizer) {
  optimizer_.set_before_update([this] {
    if (!work_ || work_->phase != Work::Phase::kTrained) return;
    const double begun = steady_now_s();
    // Together: who waited alone would let the others stand in one exchange for as long.
    while (!are_all_ready()) work_->wait_a_moment();
    device::Stream::current(device_of(optimizer_)).wait_for(work_->read);
    log::debug("{}: the update waited {:.3f} s for it", work_->target.string(),
               steady_now_s() - begun);
  });
}

Saver::~Saver() {
  // The others are told of what ends this rank when its thread has ended.
  if (std::uncaught_exceptions() > 0) mesh_.saving().abort();
  optimizer_.set_before_update({});
}

void Saver::require_room(const SaveRequest& what, const std::string& name) const {
  const uint64_t state = what.with_state ? state_bytes(mesh_, optimizer_, what.exact_weights) : 0;
  parallel::together(mesh_.all(), [&] {
    if (mesh_.rank() != what.keeper) return;
    require_free_space(what.run_dir, what.model_bytes + state + kSlackBytes,
                       tr("{} (with {} of room for tokenizer, settings and logs)", name,
                          format_bytes(kSlackBytes)));
  });
}

void Saver::begin(SaveRequest request) {
  if (is_busy()) throw InternalError("[checkpoint] one is being saved");
  auto work = std::make_unique<Work>();
  work->target = request.run_dir / fmt::format("checkpoint-{}", request.step);
  work->request = std::move(request);
  const SaveRequest& what = work->request;
  const bool keeps = mesh_.rank() == what.keeper;
  try {
    require_room(what, work->target.filename().string());
    parallel::together(mesh_.all(), [&] {
      if (!keeps) return;
      work->directory.emplace(work->target, Temporary::Kind::kDirectory);
      if (work->directory->fd() < 0) throw IoError(std::strerror(errno));
      if (what.with_state) fs::create_directory(work->directory->path() / "optim");
    });
    const fs::path directory =
        tell_directories(mesh_, what.keepers, what.keeper, keeps ? work->directory->path() : "");
    work->folder = directory / "optim";
    work->save = parallel::text_from(mesh_.all(), 0, unique_suffix());
    parallel::together(mesh_.all(), [&] {
      if (what.with_state && !fs::exists(work->folder)) {
        throw IoError(
            tr("{}: rank {} has made it, and it is not here", directory.string(), what.keeper),
            tr("all machines must see one --output_dir"));
      }
    });
    parallel::together(mesh_.all(), [&] {
      if (what.with_state) work->own = own_state(mesh_, optimizer_, what.exact_weights);
    });
  } catch (const IoError& error) {
    note_removal(*work);
    throw work->error_of(error);
  } catch (...) {
    note_removal(*work);
    throw;
  }
  work_ = std::move(work);
  try {
    parallel::together(mesh_.all(), [&] { start(*work_); });
  } catch (...) {
    // Ranks that have begun may exchange with one that has not.
    mesh_.saving().abort();
    work_.reset();
    throw;
  }
}

void Saver::start(Work& work) const {
  const at::Device device = device_of(optimizer_);
  const device::Event trained = device::Stream::current(device).record();
  work.job = std::async(std::launch::async, [&work, device, trained, rank = mesh_.rank()] {
    parallel::leave_threads_to_passes();
    const auto stream = device::Stream::beside(device);
    const device::Stream::InForce in_force(stream);
    stream.wait_for(trained);
    try {
      work.request.write_model(work.folder.parent_path());
    } catch (const parallel::BrokenExchange&) {
      work.broken = std::current_exception();
      throw;
    } catch (const CommError&) {
      work.broken = std::current_exception();
      throw;
    }
    write_state(work.own, work.folder, rank, work.abandoned);
    work.read = stream.record();
  });
}

void Saver::go_on_with(const std::function<void()>& job) {
  // Where a system makes no more threads all learn of it.
  parallel::together(mesh_.all(), [&] {
    if (!work_->directory) return;
    work_->job = std::async(std::launch::async, [job] {
      parallel::leave_threads_to_passes();
      job();
    });
  });
}

void Saver::note_removal(const Work& work) {
  std::error_code unknown;
  const bool is_made = work.directory && work.directory->fd() >= 0;
  was_removed_ =
      is_made && !fs::exists(work.directory->path() / "optim", unknown) && work.request.with_state;
}

bool Saver::go_on() {
  Work& work = *work_;
  try {
    parallel::together(mesh_.all(), [&] {
      if (work.job.valid()) work.job.get();
    });
    if (work.phase == Work::Phase::kName) return true;
    if (work.phase == Work::Phase::kRest) {
      work.phase = Work::Phase::kName;
      go_on_with([&work] { publish_directory(work.directory->path(), work.target); });
      return false;
    }
    std::vector<std::string> said = parallel::texts_of_all(mesh_.all(), listed(work.own.held));
    work.phase = Work::Phase::kRest;
    work.own = {};
    const Holders holders = holders_of(mesh_, optimizer_.is_shared());
    go_on_with([&work, holders, said = std::move(said)] {
      const fs::path& directory = work.directory->path();
      const bool all_here = work.request.keepers.size() == 1;
      if (work.request.with_state) write_state_index(work.folder, said, holders, all_here);
      write_json_file(directory / "args.json", work.request.args);
      write_json_file(directory / "trainer_state.json", work.request.trainer_state);
      write_json_file(directory / "data_state.json", work.request.data_state);
      write_done(directory, work.save, work.request, files_written(said), work.abandoned);
    });
  } catch (const IoError& error) {
    note_removal(work);
    const IoError said = work.error_of(error);
    work_.reset();
    throw said;
  } catch (...) {
    note_removal(work);
    work_.reset();  // what failed is not gone on with
    throw;
  }
  return false;
}

bool Saver::are_all_ready() const {
  const bool is_ready = work_->is_ready();
  // The others are told by this rank's end.
  if (is_ready && work_->broken) std::rethrow_exception(work_->broken);
  return parallel::largest_of(mesh_.all(), is_ready ? 0 : 1) == 0;
}

std::optional<fs::path> Saver::poll() {
  while (work_ && are_all_ready()) {
    if (!go_on()) continue;
    const fs::path whole = work_->target;
    work_.reset();
    return whole;
  }
  return std::nullopt;
}

std::optional<fs::path> Saver::finish() {
  std::optional<fs::path> whole;
  while (work_ && !whole) {
    work_->wait_a_moment();
    whole = poll();
  }
  return whole;
}

}  // namespace danlu::checkpoint
