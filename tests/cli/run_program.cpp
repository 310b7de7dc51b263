#include "cli/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// In the child: files as stdin, stdout and stderr, then the program. Never returns.
[[noreturn]] void become_program(const std::vector<std::string>& arguments,
                                 const ProgramSettings& settings, const std::string& files) {
  const auto redirect = [&](const char* name, int flags, int target) {
    const int fd = ::open((files + "/" + name).c_str(), flags, 0600);
    if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(125);
  };
  redirect("in", O_RDONLY, STDIN_FILENO);
  redirect("out", O_WRONLY | O_CREAT, STDOUT_FILENO);
  redirect("err", O_WRONLY | O_CREAT, STDERR_FILENO);
  for (const char* name :
       {"LC_ALL", "LC_MESSAGES", "LANG", "LOG_LEVEL", "DANLU_LANG", "DANLU_CACHE", "XDG_CACHE_HOME",
        "HF_HOME", "HF_HUB_CACHE", "MODELSCOPE_CACHE"}) {
    ::unsetenv(name);
  }
  ::setenv("HOME", files.c_str(), 1);
  for (const auto& [name, value] : settings.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!settings.directory.empty() && ::chdir(settings.directory.c_str()) != 0) ::_exit(125);
  // The tests may themselves run under nohup, or behind a script's &.
  ::signal(SIGHUP, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::alarm(static_cast<unsigned>(settings.timeout_s));
  std::vector<char*> argv = {const_cast<char*>("danlu")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(settings.program.empty() ? danlu_path().c_str() : settings.program.c_str(), argv.data());
  ::_exit(126);
}

/// Waits for the end of the program; on the way sends the signal asked for.
int status_of(pid_t child, const ProgramSettings& settings, const std::string& files) {
  int status = 0;
  bool sent = settings.signal == 0;
  while (!sent && ::waitpid(child, &status, WNOHANG) == 0) {
    const std::string printed = content_of(files + "/out") + content_of(files + "/err");
    if (printed.find(settings.signal_after) == printed.npos ||
        (settings.signal_when && !settings.signal_when())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    ::kill(child, settings.signal);
    sent = true;
  }
  // If it ended by itself, its status is known already.
  if (sent) ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

std::string danlu_path() { return std::string(DANLU_BUILD_DIR) + "/danlu"; }

ProgramResult run_danlu(const std::vector<std::string>& arguments,
                        const ProgramSettings& settings) {
  const TemporaryDirectory directory;
  const std::string files = directory.path();
  std::ofstream(files + "/in", std::ios::binary) << settings.input;
  const pid_t child = ::fork();
  if (child == 0) become_program(arguments, settings, files);
  const int status = status_of(child, settings, files);
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = content_of(files + "/out");
  result.err = content_of(files + "/err");
  return result;
}

std::set<std::string> opened_libraries(const ProgramResult& result) {
  std::set<std::string> paths;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("calling init: ");
    if (at != line.npos)
      paths.insert(std::filesystem::path(line.substr(at + 14)).lexically_normal());
  }
  return paths;
}

std::vector<std::string> listed_commands() {
  std::vector<std::string> names;
  std::istringstream lines(run_danlu({"--help"}).out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ") && line.size() > 2 && line[2] != ' ') {
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return names;
}

}  // namespace danlu::test
