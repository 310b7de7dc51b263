// cli/command.h: what a verb is, and the line between the program and the tensor engine.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/rank_place.h"

namespace danlu::settings {
struct TrainConfig;
}

namespace danlu::cli {

/// One verb of `danlu <verb>`. Its option table is torch-free, so help and flag errors cost
/// nothing.
struct Command {
  std::string name;
  std::string summary;  ///< one line for `danlu --help`
  std::string group;    ///< "Data", "Train", "Use", "Weights", "Tools"
  /// The program reads what its flags mean, and hands the engine a settings::TrainConfig.
  bool trains = false;
  /// Several processes may do it together (danlu launch, --nproc); one that trains always.
  bool shares_work = false;
  /// Where several processes run it, as other systems' lines start them, the first does all and the
  /// others end.
  bool first_does_all = false;
  /// But --tensor_parallel_size N, above 1: then N processes hold parts of the model and answer
  /// together. One that nobody has started beside others starts them.
  bool divides_model = false;
  /// Whether it reads standard input: where several processes do it, the first has it.
  bool (*talks)(const Options& options) = nullptr;
  OptionTable (*options)();
  bool accepts_config = false;  ///< a positional .yaml/.json is a configuration file
  size_t max_positional = 0;    ///< words that are neither flags nor values; more are an error
  /// Torch-free verbs: runs and returns an exit code. nullptr: the engine library runs it.
  int (*run)(const Options& options) = nullptr;
  /// For a verb that the engine runs: called before the engine is opened and counts processors.
  void (*before_engine)(const Options& options) = nullptr;
  std::vector<std::string> aliases = {};
  std::vector<std::string> subcommands = {};  ///< the first word must be one of these
  /// What it prints on standard output is about files it made, not the result itself.
  bool makes_files = false;
  /// The first word that names a command, and all after it, are that command's.
  bool runs_another = false;
  /// For a verb that reads lines of verbs that train: the options of one of them. The name,
  /// anywhere in the line, then comes to run() as its first word, and a configuration file is read
  /// as there.
  OptionTable (*options_for)(const Command& trains) = nullptr;
};

/// Whether danlu launch may start it.
inline bool has_ranks(const Command& command) { return command.trains || command.shares_work; }

/// Whether this line is work of several processes that each hold a part of the model.
inline bool is_divided(const Command& command, const Options& options) {
  return command.divides_model && options.get_int("tensor_parallel_size") > 1;
}

/// The explicit list, in help order (src/cli/registry.cpp).
const std::vector<Command>& commands();

/// The command of that name or alias (dash and underscore are the same), or nullptr.
const Command* find_command(const std::string& name);

/// Exported by the engine library as `danlu_engine_run` and, for commands that train,
/// `danlu_engine_train` (*run becomes the directory of the complete run, or empty); opened by main
/// only when needed. They throw danlu::Error like every other code; main turns errors into text and
/// exit codes.
using EngineRun = int (*)(const char* command, const Options* options);
using EngineTrain = int (*)(const settings::TrainConfig* config, std::filesystem::path* run);
/// `danlu_engine_absent`: of one of a job's processes that ends before it has come to the engine.
using EngineAbsent = void (*)(const RankPlace* place, const Error* why);

/// Runs `command` with parsed options: its own function, or the engine library's.
/// Errors: DeviceError if the library is missing or cannot be loaded, saying why.
int run_command(const Command& command, const Options& options);

/// Whether this process holds the engine's libraries, be it only in part.
bool engine_is_open();

/// Tells those of a training job who would wait for the process of place() that it does not come,
/// as far as they can be reached.
void tell_absent(const std::function<RankPlace()>& place, const Error& why);

/// work(), of a process of a training job; where it fails, the others hear why.
template <typename Work>
auto come_or_tell(const std::function<RankPlace()>& place, const Work& work) {
  try {
    return work();
  } catch (...) {
    tell_absent(place, current_error());
    throw;
  }
}

/// Prints `error: …` and `hint: …` for the exception being handled and returns its exit code.
/// `running`: the verb that threw, or nullptr. REQUIRES: called inside a catch block.
int report_current_error(const Command* running);

/// `danlu --help`: every verb with its line, by group.
std::string overview();
/// The variables that every verb reads.
std::string environment_help();

/// Writes danlu.1 and danlu-VERB.1 into `directory`, which is made; for `danlu help --man DIR`,
/// which packaging uses and no help lists. Errors: IoError.
void write_man_pages(const std::string& directory);

/// Shell code that completes verbs and flags, for `danlu completion bash|zsh`.
std::string completion_script(const std::string& shell);

}  // namespace danlu::cli
