// tests/cli/served_program.h: `danlu serve` running beside a test.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {

/// Starts with the object, on a port that is free, and ends with it.
class ServedProgram {
 public:
  /// arguments: behind `danlu serve --port 0`, or another name of it. Errors: std::runtime_error
  /// with what it printed.
  explicit ServedProgram(const std::vector<std::string>& arguments,
                         const std::string& command = "serve") {
    std::vector<std::string> words = {danlu_path(), command, "--port", "0"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> raw;
    for (std::string& word : words) raw.push_back(word.data());
    raw.push_back(nullptr);
    const std::string log = (folder_ / "log").string();
    child_ = ::fork();
    if (child_ == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      ::setenv("DANLU_LANG", "en", 1);
      ::setenv("LOG_LEVEL", "info", 1);
      for (const char* name : {"API_HOST", "API_PORT", "API_KEY", "API_MODEL_NAME"})
        ::unsetenv(name);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
    await_start();
  }
  ~ServedProgram() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ServedProgram(const ServedProgram&) = delete;
  ServedProgram& operator=(const ServedProgram&) = delete;

  uint16_t port() const { return port_; }
  pid_t pid() const { return child_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder_ / "log").rdbuf();
    return text.str();
  }
  void send(int signal) { ::kill(child_, signal); }
  /// The exit code, 128 + a signal; waits for it.
  int wait() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  void await_start() {
    const std::string mark = "://127.0.0.1:";
    for (int i = 0; i < 12000; ++i) {
      const std::string text = log();
      const size_t at = text.find(mark);
      if (at != text.npos && text.find("/v1", at) != text.npos) {
        port_ = static_cast<uint16_t>(std::stoi(text.substr(at + mark.size())));
        return;
      }
      if (::waitpid(child_, nullptr, WNOHANG) != 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(child_, SIGKILL);
    throw std::runtime_error("danlu serve did not start: " + log());
  }

  const TemporaryDirectory folder_;
  pid_t child_ = -1;
  uint16_t port_ = 0;
};

}  // namespace danlu::test
