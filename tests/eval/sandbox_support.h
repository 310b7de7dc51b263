// tests/eval/sandbox_support.h: the sandbox that tests run programs in, where this system has one,
// and what every attack on it must leave as it was.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/sandbox/sandbox.h"

namespace danlu::eval {

/// Made once; null if this system lacks a layer, which `lacks` says then. Errors: all others of
/// CodeSandbox.
inline const CodeSandbox* shared_sandbox(std::string& lacks) {
  static std::string reason;
  static const std::unique_ptr<CodeSandbox> kSandbox = [] {
    try {
      return std::make_unique<CodeSandbox>(SandboxSettings{});
    } catch (const DeviceError& error) {
      reason = error.what();
      return std::unique_ptr<CodeSandbox>();
    }
  }();
  lacks = reason;
  return kSandbox.get();
}

inline bool sandbox_must_work() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

inline std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Processes below this one, however deep.
inline std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> found;
  std::istringstream list(text_of(fmt::format("/proc/{0}/task/{0}/children", process)));
  for (pid_t child; list >> child;) {
    found.push_back(child);
    for (const pid_t deeper : descendants_of(child)) found.push_back(deeper);
  }
  return found;
}

/// What each attack must leave as it was.
class SandboxAttack : public ::testing::Test {
 protected:
  void SetUp() override { mounts_ = text_of("/proc/self/mountinfo"); }
  void TearDown() override {
    EXPECT_THAT(descendants_of(::getpid()), ::testing::IsEmpty()) << "a process is left";
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a zombie is left";
    EXPECT_EQ(text_of("/proc/self/mountinfo"), mounts_);
  }

 private:
  std::string mounts_;
};

}  // namespace danlu::eval

/// Defines `sandbox`, or skips the test by the name of the layer that is missing; under CI=true it
/// fails.
#define DANLU_REQUIRES_SANDBOX()                                                   \
  std::string sandbox_lacks;                                                       \
  const ::danlu::eval::CodeSandbox* const own_sandbox =                            \
      ::danlu::eval::shared_sandbox(sandbox_lacks);                                \
  if (!own_sandbox && ::danlu::eval::sandbox_must_work()) FAIL() << sandbox_lacks; \
  if (!own_sandbox) GTEST_SKIP() << sandbox_lacks;                                 \
  [[maybe_unused]] const ::danlu::eval::CodeSandbox& sandbox = *own_sandbox
