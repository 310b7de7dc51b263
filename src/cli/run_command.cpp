// Running a verb: directly, or through the engine library, which costs 300 libraries to open.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/cpu_affinity.h"
#include "base/cpu_class.h"
#include "base/error.h"
#include "base/log.h"
#include "base/own_library.h"
#include "base/rank_place.h"
#include "cli/command.h"
#include "cli/engine_limits.h"
#include "doctor/devices.h"
#include "settings/options/from_options.h"

namespace danlu::cli {

/// What libtorch needs, by name; written by the build (cmake/rooms.cmake), nullptr after the last.
extern const char* const kEngineLibraries[];

namespace {

bool is_open = false;

/// libgomp and OpenBLAS each keep a pool of threads whose idle ones spin by default, in the way of
/// the other pool: with 2 cores a small training step takes 2.6 times as long. Both read the
/// environment while they are loaded; what the user set stays.
void prepare_thread_pools() {
  // An empty one asks for nothing, but libgomp says in its own words that it is no number.
  if (const char* set = std::getenv("OMP_NUM_THREADS"); set && !*set) ::unsetenv("OMP_NUM_THREADS");
  if (!std::getenv("OMP_WAIT_POLICY")) ::setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0);
  ::setenv("OPENBLAS_THREAD_TIMEOUT", "4", /*overwrite=*/0);
}

/// Puts back what signals do: UCX, which Debian 13's libtorch brings along by MPI, takes SIGHUP for
/// its debugger when it is loaded, and the next lost terminal would end a run under nohup.
class KeptSignals {
 public:
  KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &actions_[i]);
  }
  ~KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &actions_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> actions_{};
};

/// What libtorch's connections have to say of errors is said by the error.
void silence_connections() {
  ::setenv("GLOG_minloglevel", "3", /*overwrite=*/0);
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
}

/// Each is then linked among what it needs itself. All in one go, every symbol is looked for in up
/// to 290 libraries, which takes 0.16 s more. One that cannot be opened alone comes with the
/// engine.
void open_one_by_one() {
  for (const char* const* name = kEngineLibraries; *name; ++name)
    ::dlopen(*name, RTLD_NOW | RTLD_LOCAL);
}

void* open_engine() {
  constrain_libraries();
  silence_connections();
  prepare_thread_pools();
  const std::filesystem::path path = own_library("libdanlu_engine.so");
  // Global: libtorch's own libraries look symbols up in one another.
  void* library = [&] {
    const KeptSignals kept;
    if (!std::exchange(is_open, true)) open_one_by_one();
    return ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }();
  if (!library) {
    const char* said = ::dlerror();
    const std::string why = said ? said : "?";
    const std::string what = tr("[engine] {}: cannot be loaded: {}", path.string(), why);
    // The loader's words where there are no more addresses: a libtorch for CUDA needs more of them
    // than require_engine_resources asks for.
    if (why.ends_with("failed to map segment from shared object"))
      throw MemoryError(what, tr("raise the limit, with room for the model"));
    throw DeviceError(what, tr("build it with libtorch installed: make deps build"));
  }
  return library;
}

/// What the engine exports as `name`.
template <typename Function>
Function from_engine(const char* name) {
  void* symbol = ::dlsym(open_engine(), name);
  if (!symbol) throw InternalError(fmt::format("[engine] the library does not export {}", name));
  return reinterpret_cast<Function>(symbol);
}

NearProcessors near_npus() {
  return doctor::processors_near_npus(doctor::SystemRoots::of_this_machine());
}

/// What --merge_lora asks for: the model with the adapters of `run` in it, beside the run.
int merge_adapters(const settings::TrainConfig& config, const Options& options,
                   const std::filesystem::path& run) {
  const Command& merge = *find_command("merge");
  std::vector<std::string> words = {"--model",    config.model.path.string(),
                                    "--adapters", run.string(),
                                    "--output",   (run / "").parent_path().string() + "-merged",
                                    "--overwrite"};
  if (config.nf4) {
    words.insert(words.end(), {"--quantization_bit", "4", "--double_quantization",
                               config.nf4->doubly ? "true" : "false"});
  }
  // As the training opened its base.
  for (const char* flag : {"iteration", "hf_config", "tokenizer"}) {
    if (options.has_value(flag))
      words.insert(words.end(), {std::string("--") + flag, options.get_string(flag)});
  }
  return run_command(merge, merge.options().parse(words, /*accepts_config=*/false));
}

int train(const Command& command, const Options& options) {
  log::take_pipe();
  const settings::TrainConfig config = come_or_tell(rank_place_from_environment, [&] {
    auto read = settings::config_from_options(command.name, options);
    bind_process(read.place, near_npus);
    require_engine_resources(command, read.place);
    return read;
  });
  std::filesystem::path run;
  const int code = from_engine<EngineTrain>("danlu_engine_train")(&config, &run);
  const bool merges = config.output.merges_adapters && config.place.rank == 0 && !run.empty();
  return code == 0 && merges ? merge_adapters(config, options, run) : code;
}

}  // namespace

bool engine_is_open() { return is_open; }

void tell_absent(const std::function<RankPlace()>& place, const Error& why) {
  try {
    const RankPlace own = place();
    if (own.is_awaited()) from_engine<EngineAbsent>("danlu_engine_absent")(&own, &why);
  } catch (const Error&) {  // what failed first is what is said
  }
}

int run_command(const Command& command, const Options& options) {
  if (command.run) return command.run(options);
  if (command.trains) return train(command, options);
  const bool has_others = command.shares_work || is_divided(command, options);
  const RankPlace place = has_others ? rank_place_from_environment() : RankPlace{};
  bind_process(place, near_npus);
  if (const std::string binding = describe_binding(); !binding.empty()) log::info("{}", binding);
  if (command.before_engine) command.before_engine(options);
  require_engine_resources(command, place);
  return from_engine<EngineRun>("danlu_engine_run")(command.name.c_str(), &options);
}

}  // namespace danlu::cli
