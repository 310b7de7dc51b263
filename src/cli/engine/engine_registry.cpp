// The engine's door: the program opens this library and asks for a verb by name, or for a training.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/address_space.h"
#include "base/cpu_affinity.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/rank_place.h"
#include "base/threads.h"
#include "cli/command.h"
#include "cli/engine/engine.h"
#include "device/counted_memory.h"
#include "device/npu.h"
#include "device/parallel.h"
#include "parallel/ranks.h"
#include "train/run.h"

namespace danlu::cli {
namespace {

struct EngineCommand {
  std::string_view name;
  int (*run)(const Options& options);
  bool shares_work = false, divides_model = false;  ///< as Command's
};

/// The explicit list; names are those of src/cli/registry.cpp.
const std::vector<EngineCommand>& engine_commands() {
  static const std::vector<EngineCommand> list = {
      {"infer", run_infer, false, true},
      {"chat", run_chat, false, true},
      {"eval", run_eval, true},
      {"compare", run_compare},
      {"init", run_init},
      {"merge", run_merge},
      {"quantize", run_quantize},
      {"verify", run_verify},
      {"bench", run_bench},
      {"rollout", run_rollout},
      {"sample", run_rollout},
      {"serve", run_serve, false, true},
  };
  return list;
}

/// OpenBLAS takes a buffer for each thread at the first product and keeps it; one that a limit of
/// address space refuses it asks for again without end. Errors: MemoryError where they do not fit.
void take_product_buffers() {
  constexpr size_t kBuffer = size_t{128} << 20;
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
      continue;
    const auto threads = static_cast<size_t>(at::get_num_threads());
    if (!AddressSpace(threads * kBuffer).is_there()) {
      throw MemoryError(tr("[engine] {} of address space are missing for products of {} threads",
                           format_bytes(threads * kBuffer), threads),
                        tr("raise ulimit -v or -d, or set OMP_NUM_THREADS to fewer"));
    }
    const at::Tensor square = at::ones({512, 512});
    at::mm(square, square);
    return;
  }
}

/// Each thread of the team, and of libtorch's pool, is told once; both keep theirs.
void bind_pools() {
  if (!binds_compute_threads()) return;
  const int64_t count = at::get_num_threads();
  const auto bind = [count](int64_t thread, int64_t) { bind_compute_thread(thread, count); };
  device::parallel_for(0, count, 1, bind);
  at::parallel_for(0, count, 1, bind);
}

void prepare_libraries(size_t sharers = 1) {
  device::count_host_memory();
  // libtorch counts every CPU it may run on; a container's quota grants fewer.
  at::set_num_threads(static_cast<int>(thread_count_of_sharer(sharers)));
  bind_pools();
  take_product_buffers();
}

/// Cards are given back where a command came to its end; after an error they may not answer.
int closed(int code) {
  device::close_npus();
  return code;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int danlu_engine_run(const char* command,
                                                                       const Options* options) {
  for (const EngineCommand& known : engine_commands()) {
    if (known.name != command) continue;
    const bool has_others =
        known.shares_work || (known.divides_model && options->get_int("tensor_parallel_size") > 1);
    const RankPlace place = has_others ? rank_place_from_environment() : RankPlace{};
    prepare_libraries(place.says_local_size ? static_cast<size_t>(place.local_size) : 1);
    return closed(known.run(*options));
  }
  throw InternalError(std::string("[engine] no command '") + command + "' in this library");
}

extern "C" __attribute__((visibility("default"))) int danlu_engine_train(
    const settings::TrainConfig* config, std::filesystem::path* run) {
  const RankPlace& place = config->place;
  prepare_libraries(place.says_local_size ? static_cast<size_t>(place.local_size) : 1);
  *run = train::run(*config);
  return closed(0);
}

extern "C" __attribute__((visibility("default"))) void danlu_engine_absent(const RankPlace* place,
                                                                           const Error* why) {
  parallel::tell_ranks(*place, *why);
}

}  // namespace danlu::cli
