#include "eval/sandbox/sandbox.h"

#include <string.h>
#include <sys/wait.h>

#include <charconv>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/own_library.h"
#include "base/threads.h"
#include "eval/sandbox/child_process.h"
#include "eval/sandbox/probe.h"
#include "eval/sandbox/protocol.h"

namespace danlu::eval {
namespace {
using namespace sandbox_protocol;

/// Beyond the program's own time: to put up and take down what is around it, on a busy machine.
constexpr int64_t kRunnerPatienceMs = 120'000;

struct RunnerAnswer {
  std::string_view outcome, detail, output;
  int number = 0;
};

/// Errors: InternalError if it is not of the form.
RunnerAnswer parsed(std::string_view text) {
  const size_t end = text.find('\n');
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  RunnerAnswer answer;
  size_t detail_size = 0;
  if (end != text.npos && second < end) {
    answer.outcome = text.substr(0, first);
    std::from_chars(text.data() + first + 1, text.data() + second, answer.number);
    const auto read = std::from_chars(text.data() + second + 1, text.data() + end, detail_size);
    const std::string_view rest = text.substr(end + 1);
    if (read.ptr == text.data() + end && detail_size <= rest.size()) {
      answer.detail = rest.substr(0, detail_size);
      answer.output = rest.substr(detail_size);
      return answer;
    }
  }
  throw InternalError("danlu-sandbox: " + std::string(text.substr(0, 500)));
}

std::string layer_hint(int layer) {
  if (layer == kUserNamespace)
    return tr(
        "root may set sysctl user.max_user_namespaces above 0 and, where they exist, "
        "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0; "
        "or evaluate outside of the container");
  return tr(
      "containers often refuse this: evaluate outside of one, or in one that was started with "
      "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined");
}

[[noreturn]] void throw_missing(int layer, const Interpreter& interpreter,
                                std::string_view reason) {
  if (layer == kInterpreter)
    throw DeviceError(
        tr("no model-written code was executed: {} {} does not start inside the sandbox ({})",
           interpreter.executable, interpreter.version, reason),
        tr("name another interpreter with --python"));
  throw DeviceError(tr("no model-written code was executed: this system does not let the sandbox "
                       "have {} ({})",
                       kLayerNames[layer], reason),
                    layer_hint(layer));
}

CodeVerdict verdict_of(const RunnerAnswer& answer, const SandboxSettings& settings) {
  using Outcome = CodeVerdict::Outcome;
  const std::string output(answer.output);
  if (answer.outcome == kPassed) return {Outcome::kPassed, "passed", output};
  if (answer.outcome == kFailed)
    return {Outcome::kFailed, "failed: " + std::string(answer.detail), output};
  if (answer.outcome == kTimedOut) return {Outcome::kTimedOut, "timed out", output, answer.number};
  if (answer.outcome == kExited)
    return {Outcome::kFailed,
            fmt::format("failed: ended before its last statement (exit code {})", answer.number),
            output};
  if (answer.outcome == kSignalled)
    return {Outcome::kKilled,
            fmt::format("killed: signal {} ({})", answer.number, ::strsignal(answer.number)),
            output};
  if (answer.outcome == kTooMuchOutput)
    return {Outcome::kKilled,
            fmt::format("killed: printed more than {} bytes", settings.output_bytes), output};
  throw InternalError("danlu-sandbox: " + std::string(answer.outcome));
}

}  // namespace

CodeSandbox::CodeSandbox(SandboxSettings settings)
    : settings_(std::move(settings)), interpreter_(find_interpreter(settings_.python)) {
  command_ = {own_library("danlu-sandbox").string(),
              fmt::format("timeout_ms={}", settings_.timeout_ms),
              fmt::format("memory={}", settings_.memory_bytes),
              fmt::format("output={}", settings_.output_bytes),
              fmt::format("file={}", settings_.file_bytes),
              "interpreter=" + interpreter_.executable,
              "libraries=" + interpreter_.library_path};
  for (const std::string& path : interpreter_.files) command_.push_back("bind=" + path);
  for (const std::string& path : interpreter_.foreign) command_.push_back("mask=" + path);
  probe();
}

void CodeSandbox::probe() const {
  const CodeVerdict verdict = run(sandbox_probe(settings_.memory_bytes));
  if (verdict.outcome == CodeVerdict::Outcome::kPassed) return;
  const int layer = missing_layer(verdict.detail);
  if (layer >= 0) throw_missing(layer, interpreter_, tr("it is there, and without effect"));
  const size_t line = verdict.output.find_last_not_of('\n');
  const size_t begin = verdict.output.rfind('\n', line) + 1;
  throw_missing(sandbox_protocol::kInterpreter, interpreter_,
                verdict.detail + (line == verdict.output.npos
                                      ? ""
                                      : "; " + verdict.output.substr(begin, line + 1 - begin)));
}

CodeVerdict CodeSandbox::run(std::string_view program) const {
  std::vector<std::string> command = command_;
  command.push_back(fmt::format("program={}", program.size()));
  const ChildResult result = ask_child(command, program, settings_.timeout_ms + kRunnerPatienceMs,
                                       kMaxDetailBytes + kMaxKeptOutputBytes + 1024);
  if (result.start_error != 0)
    throw IoError(tr("cannot start {}: {}", command[0], ::strerror(result.start_error)),
                  tr("it belongs to Danlu and lies beside its libraries: install Danlu again"));
  if (result.end == ChildEnd::kTooLate) throw InternalError("danlu-sandbox does not end");
  if (result.end == ChildEnd::kTooMuch) throw InternalError("danlu-sandbox says too much");
  if (WIFSIGNALED(result.status))
    throw InternalError(fmt::format("danlu-sandbox: signal {}", WTERMSIG(result.status)));
  const RunnerAnswer answer = parsed(result.output);
  if (answer.outcome != kUnavailable) return verdict_of(answer, settings_);
  int layer = kInterpreter;
  std::from_chars(answer.detail.data(), answer.detail.data() + answer.detail.size(), layer);
  throw_missing(layer, interpreter_, ::strerror(answer.number));
}

void CodeSandbox::run_all(const std::vector<std::string>& programs, size_t workers,
                          const OnVerdict& on_verdict) const {
  std::mutex mutex;
  parallel_for(programs.size(), workers, [&](size_t i) {
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("stopped while model-written code was being executed"));
    const CodeVerdict verdict = run(programs[i]);
    const std::lock_guard<std::mutex> lock(mutex);
    on_verdict(i, verdict);
  });
}

}  // namespace danlu::eval
