// danlu <command> [file.yaml] [--flag value …]
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/rank_place.h"
#include "cli/absent_commands.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/hub_choice.h"
#include "cli/commands/media_options.h"
#include "cli/job_place.h"
#include "hub/missing.h"

namespace {

using namespace danlu;
using namespace danlu::cli;

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

/// Lines of torchrun name a script where ours name a command.
[[noreturn]] void refuse_script(const std::string& name) {
  if (const Command* command = find_command(command_of_script(name))) {
    throw UsageError(tr("danlu has no command '{}': it is called {} here", name, command->name),
                     tr("put {} in its place; the same flags go to it", command->name));
  }
  throw UsageError(tr("danlu has no command '{}': it runs no Python scripts", name),
                   tr("put the command that does its job in its place: pretrain, sft, train, "
                      "infer, convert, preprocess, … (danlu --help lists them)"));
}

/// A whole line of another program after `danlu`: the command that it names is looked for in it.
void refuse_foreign_line(const std::vector<std::string>& words) {
  const ForeignProgram* program = find_foreign_program(words[0]);
  if (!program) return;
  const std::string what = tr("danlu has no command '{}': {}", words[0], translated(program->why));
  if (!program->becomes.empty()) {
    // "download" of huggingface-cli, "lfs clone" of git.
    size_t end = 1;
    while (end < words.size() &&
           (words[end] == program->becomes || words[end] == "lfs" || words[end] == "clone"))
      ++end;
    throw UsageError(what,
                     tr("type danlu {} instead of {}", program->becomes,
                        fmt::format("{}", fmt::join(words.begin(), words.begin() + end, " "))));
  }
  for (auto at = words.begin() + 1; at != words.end(); ++at) {
    const Command* command = find_command(at->ends_with(".py") ? command_of_script(*at) : *at);
    const AbsentCommand* absent = command ? nullptr : find_absent_command(*at);
    if (absent) command = find_command(absent->becomes);
    if (!command) continue;
    const bool is_launched = program->launches && command->name != "launch";
    const std::string flags = at == words.begin() + 1
                                  ? "--nproc N"
                                  : fmt::format("{}", fmt::join(words.begin() + 1, at, " "));
    const std::string typed =
        is_launched ? fmt::format("launch {} {}", flags, command->name) : command->name;
    throw UsageError(what, tr("type danlu {} instead of {}", typed,
                              fmt::format("{}", fmt::join(words.begin(), at + 1, " "))));
  }
  throw UsageError(what,
                   tr("the line that starts python or torchrun names the command: pretrain, sft, "
                      "train, infer, convert, preprocess, … (danlu --help lists them)"));
}

const Command& command_named(const std::string& name) {
  if (const Command* command = find_command(name)) return *command;
  if (const AbsentCommand* absent = find_absent_command(name))
    throw UsageError(tr("danlu has no command '{}': {}", name, absent->why), absent->hint);
  if (name.ends_with(".py")) refuse_script(name);
  if (const ForeignProgram* program = find_foreign_program(name)) {
    throw UsageError(tr("danlu has no command '{}': {}", name, translated(program->why)),
                     tr("leave it out, and the name of its script: the command stands there "
                        "instead (danlu --help lists them)"));
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.push_back(command.name);
    names.insert(names.end(), command.aliases.begin(), command.aliases.end());
  }
  std::string hint = tr("danlu --help lists the commands");
  if (const auto near = nearest_name(name, names)) {
    hint = tr("did you mean danlu {}?", *near);
  }
  throw UsageError(
      name.starts_with('-') ? tr("unknown flag '{}'", name) : tr("unknown command '{}'", name),
      hint);
}

/// Removes one of `spellings` from the words before `--`; true if it was there.
bool take_word(std::vector<std::string>& words, const std::vector<std::string>& spellings) {
  for (auto at = words.begin(); at != words.end() && *at != "--"; ++at) {
    if (std::find(spellings.begin(), spellings.end(), *at) != spellings.end()) {
      words.erase(at);
      return true;
    }
  }
  return false;
}

bool asks_for_help(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    if (is_help(word)) return true;
  }
  return false;
}

void check_positional(const Command& command, const Options& options) {
  const auto& words = options.positional();
  if (words.size() <= command.max_positional) return;
  const std::string& first = words[command.max_positional];
  throw UsageError(tr("[{}] unexpected word '{}'", command.name, first),
                   tr("flags begin with --; see danlu {} --help", command.name));
}

/// Before flags are read: what they mean depends on the word.
void check_subcommand(const Command& command, const std::vector<std::string>& words) {
  const auto& known = command.subcommands;
  if (known.empty()) return;
  const std::string word = words.empty() ? "" : words.front();
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  const std::string listed = fmt::format("{}", fmt::join(known, " | "));
  const std::string example = fmt::format("danlu {} {}", command.name, known.front());
  if (word.empty() || word.starts_with('-')) {
    throw UsageError(tr("[{}] what to do is missing: {}", command.name, listed),
                     tr("see {} --help", example));
  }
  std::string hint = tr("see {} --help", example);
  if (const auto near = nearest_name(word, known)) {
    hint = tr("did you mean danlu {} {}?", command.name, *near);
  }
  throw UsageError(tr("[{}] unknown word '{}'; there is: {}", command.name, word, listed), hint);
}

const Command* running = nullptr;

/// What is after the name of a command is not `command`'s to read. Errors: UsageError where no
/// command is named, but something like one, and for a flag that is the other command's.
void set_apart(const Command& command, const OptionTable& table, std::vector<std::string>& words) {
  if (!command.runs_another) return;
  // The program's own name before a command's, as after torchrun --no-python.
  for (auto at = words.begin(); at + 1 < words.end(); ++at) {
    const bool names_program = std::filesystem::path(*at).filename() == "danlu";
    if (names_program && find_command(*(at + 1))) {
      words.erase(at);
      break;
    }
  }
  bool is_value = false;  // of the flag before it
  for (auto at = words.begin(); at != words.end() && *at != "--"; ++at) {
    if (find_command(*at)) {
      words.insert(at, "--");
      return;
    }
    const std::string flag = at->substr(0, at->find('='));
    if (!at->starts_with('-')) {
      if (!is_value && flag == *at) command_named(*at);  // says what it may have been
      is_value = false;
      continue;
    }
    is_value = flag == *at;
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    if (table.find_spec(name)) continue;
    const auto named = std::find_if(
        at, words.end(), [](const std::string& word) { return find_command(word) != nullptr; });
    if (named == words.end() || !find_command(*named)->options().find_spec(name)) continue;
    throw UsageError(tr("[{}] {} is no flag of danlu {}", command.name, flag, command.name),
                     tr("danlu {}'s own flags stand behind its name: danlu {} … {} {} …", *named,
                        command.name, *named, flag));
  }
}

/// Steps over what is after the flag at `at`, as far as it is the flag's.
size_t behind_flag(const OptionTable& table, const std::vector<std::string>& words, size_t at) {
  const std::string& flag = words[at++];
  if (flag.find('=') != flag.npos) return at;
  std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const OptionSpec* spec = table.find_spec(name);
  const bool is_negated = !spec && (name.starts_with("no-") || name.starts_with("no_"));
  if (is_negated) spec = table.find_spec(name.substr(3));
  const bool is_bare = name == "v" || name == "download" || name == "print_config" ||
                       name == "print-config" || is_help(flag);
  const auto is_value = [&] {
    if (at >= words.size()) return false;
    const std::string& word = words[at];
    return !word.starts_with('-') || (word.size() > 1 && word[1] >= '0' && word[1] <= '9');
  };
  if (is_bare || !is_value()) return at;
  if (spec && (is_negated || spec->type == OptionType::kBool || spec->may_be_alone))
    return find_command(words[at]) ? at : at + 1;
  do {
    ++at;
  } while (spec && spec->type == OptionType::kList && is_value());
  return at;
}

/// The command that trains whose line this is, taken out of it; nullptr where none is named, and
/// the words are flags of `table`, whose words are left. Errors: UsageError for another command.
const Command* take_trained(const Command& command, const OptionTable& table,
                            std::vector<std::string>& words) {
  for (size_t at = 0; at < words.size() && words[at] != "--";) {
    if (words[at].starts_with('-')) {
      at = behind_flag(table, words, at);
      continue;
    }
    const Command* named = find_command(words[at]);
    if (named && (named->trains || named->runs_another))
      words.erase(words.begin() + static_cast<ptrdiff_t>(at));
    if (named && named->trains) return named;
    if (named && named->runs_another) continue;  // its own flags are those of what it runs
    std::error_code unknown;
    const bool is_path = std::filesystem::exists(words[at], unknown);
    if (!is_path && (named || find_absent_command(words[at]))) {
      throw UsageError(
          tr("[{}] {} trains nothing here", command.name, command_named(words[at]).name),
          tr("danlu {} sft --model DIR …", command.name));
    }
    ++at;
  }
  return nullptr;
}

Options read_options(const Command& command, const OptionTable& table,
                     const std::vector<std::string>& words, bool is_run) {
  const auto read = [&] {
    Options options = table.parse(words, command.accepts_config);
    check_positional(command, options);
    return options;
  };
  const bool may_have_others = is_run && (has_ranks(command) || command.runs_another);
  return may_have_others ? come_or_tell([&] { return place_despite(words); }, read) : read();
}

/// Whether torchrun, mpirun or srun started this process beside a rank 0.
bool is_another_rank() {
  try {
    return rank_place_from_environment().rank > 0;
  } catch (const UsageError&) {
    return false;  // half a job's variables: a shell's leftovers
  }
}

/// Whether a process is one of several that torchrun, mpirun, srun or danlu launch started.
bool is_among_ranks() {
  try {
    return rank_place_from_environment().size > 1;
  } catch (const UsageError&) {
    return false;
  }
}

/// The launcher's flags for a model in so many parts.
Options launch_for_parts(int64_t parts) {
  return launch_options().parse({"--nproc", std::to_string(parts)}, /*accepts_config=*/false);
}

/// typed: the command's name, or another of its names.
OptionTable table_of(const Command& command, const std::string& typed) {
  OptionTable table = command.options();
  // LLaMA-Factory's api does not look at the name that a request has.
  if (command.name == "serve" && typed == "api") table.set_default("any_model_name", "true");
  // ms-swift's draw only where generation_config.json or the request says so.
  if (command.name == "serve" && (typed == "deploy" || typed == "app"))
    table.set_default("generation_config", "swift");
  return table;
}

/// Whether the line of a verb that trains asks for answers alone. Errors: UsageError where it asks
/// for answers in a training.
bool only_predicts(const Command& command, const Options& options) {
  if (!command.trains) return false;
  const char* const flag = options.get_bool("do_predict") ? "do_predict" : "predict_with_generate";
  if (!options.get_bool(flag)) return false;
  const bool trains = options.get_bool_or("do_train", false);
  if (options.get_bool("do_predict") && !trains) {
    log::notice("do_predict: danlu infer answers, and nothing is trained");
    return true;
  }
  throw UsageError(
      tr("[{}] {}: training measures the loss; danlu infer answers data sets afterwards",
         command.name, options.given_as(flag)),
      tr("the same line with do_train false and do_predict true answers --eval_dataset"));
}

/// What run_words() took out of a line that another process, or another command, reads.
void give_back_words(bool fetches, std::vector<std::string>& words) {
  if (log::verbose()) words.insert(words.begin(), "-v");
  if (fetches) words.insert(words.begin(), "--download");
}

/// Whether one who asks for help means the command that this one runs, whose help is printed.
bool helped_another(const Command& command, const std::vector<std::string>& words) {
  const auto apart = std::find(words.begin(), words.end(), "--");
  if (!command.runs_another || apart == words.end() || apart + 1 == words.end() ||
      !asks_for_help({apart + 1, words.end()}))
    return false;
  std::fputs(command_named(*(apart + 1)).options().help().c_str(), stdout);
  return true;
}

/// typed: as of table_of.
int run_words(const Command& named, const std::string& typed, std::vector<std::string> words) {
  Command command = named;
  OptionTable table = table_of(command, typed);
  set_apart(command, table, words);
  if (command.options_for) {
    if (const Command* trained = take_trained(command, table, words)) {
      table = command.options_for(*trained);
      command.accepts_config = trained->accepts_config;
      command.max_positional = 1;
      words.insert(words.begin(), trained->name);
    }
  }
  if (helped_another(command, words)) return 0;
  if (asks_for_help(words)) {
    std::fputs(table.help().c_str(), stdout);
    return 0;
  }
  check_subcommand(command, words);
  const bool print_config = take_word(words, {"--print_config", "--print-config"});
  log::set_verbose(take_word(words, {"-v"}));
  // Where a line names what `danlu download` would fetch.
  const bool fetches = command.name != "download" && take_word(words, {"--download"});
  std::optional<log::HeldNotices> held(std::in_place);
  const Options options =
      with_model_kwargs(table, read_options(command, table, words, /*is_run=*/!print_config));
  const bool starts_parts = is_divided(command, options) && !print_config && !is_among_ranks();
  const bool starts_ranks =
      starts_parts || (has_ranks(command) && !print_config && asks_for_processes(options));
  if (starts_ranks) held->drop();  // rank 0 has them too
  held.reset();
  const bool predicts = only_predicts(command, options);
  if (print_config) {
    std::fputs(options.print_config().c_str(), stdout);
    return 0;
  }
  if (predicts) {
    give_back_words(fetches, words);
    return run_words(*find_command("infer"), "infer", std::move(words));
  }
  running = &named;
  take_hub_choice(table, options);
  // ms-swift fetches what its lines name, from ModelScope.
  const bool as_swift = is_of_swift(options.profile().name);
  hub::set_fetch_missing({.allowed = fetches || as_swift,
                          .first = as_swift ? hub::Hub::kModelScope : hub::Hub::kHuggingFace});
  if (starts_ranks) {
    give_back_words(fetches, words);
    words.insert(words.begin(), typed);
    if (!starts_parts) return launch_job(options, words);
    return launch_job(launch_for_parts(options.get_int("tensor_parallel_size")), words);
  }
  if (command.first_does_all && !is_divided(command, options) && is_another_rank()) {
    log::info(
        "danlu {}: rank 0 answers, and RANK says that this is another one (unset it to answer "
        "here)",
        command.name);
    return 0;
  }
  return run_command(command, options);
}

int run(const std::vector<std::string>& words) {
  if (words.empty() || is_help(words[0])) {
    std::fputs(overview().c_str(), stdout);
    return 0;
  }
  if (words[0] == "--version" || words[0] == "version") {
    std::puts("danlu " DANLU_VERSION);
    return 0;
  }
  if (words[0] == "help" && words.size() == 3 && words[1] == "--man") {
    write_man_pages(words[2]);
    return 0;
  }
  if (words[0] == "help") {
    std::fputs(
        words.size() > 1 ? command_named(words[1]).options().help().c_str() : overview().c_str(),
        stdout);
    return 0;
  }
  if (!find_command(words[0])) refuse_foreign_line(words);
  const Command& command = command_named(words[0]);
  // Whoever started a job's processes has said it.
  if (command.name == "serve" && words[0] != command.name && !std::getenv("DANLU_JOB"))
    log::notice("danlu {}: it is called serve here, the same flags go to it", words[0]);
  std::vector<std::string> rest(words.begin() + 1, words.end());
  if (command.name == "eval") rest = eval_words(std::move(rest));
  return run_words(command, words[0], std::move(rest));
}

/// A full disk shows only when buffered output is flushed; success may not be claimed before that.
void flush_output() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  constexpr const char* kUnwritten =
      "standard output cannot be written: it is closed, the disk is full or the reader is gone";
  if (!running || !running->makes_files) throw IoError(std::string(translated(kUnwritten)));
  log::warning("{}; the files of danlu {} are complete", kUnwritten, running->name);
}

/// Whoever starts us without one of them would find a data file under its number. What takes its
/// place fails as a closed one does: it is opened for the other direction.
void occupy_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    [[maybe_unused]] const int same =  // the lowest free number
        ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

/// The exit code of main. Where the engine is open it ends the process itself: what libtorch's
/// libraries put back at the end of a program takes 0.07 s and is nobody's.
int leave(int code) {
  if (!engine_is_open()) return code;
  // Not all files: a thread may hold standard input.
  std::fflush(stdout);
  ::_exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  // A file-size limit then fails the write, which is reported, instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const char* debug = std::getenv("DANLU_DEBUG");
  const bool rethrow = debug && *debug && std::string(debug) != "0";
  try {
    // A launcher's ranks leave both to it.
    if (!std::getenv("DANLU_JOB")) {
      name_interrupts();
      log::report_unknown_environment();
    }
    const int code = run({argv + 1, argv + argc});
    flush_output();
    return leave(code);
  } catch (...) {
    const int code = report_current_error(running);
    if (rethrow) throw;
    return leave(code);
  }
}
