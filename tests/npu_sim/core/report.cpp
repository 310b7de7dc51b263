#include "core/report.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core/config.h"
#include "npu_sim.h"

namespace npu_sim {
namespace {

struct Reports {
  std::mutex lock;
  std::map<std::string, int64_t> counters;
  std::string last_violation;
  bool abort = number_from_environment("NPU_SIM_ABORT", 1) != 0;
};

Reports& reports() {
  static Reports* the = new Reports;
  return *the;
}

struct ThreadText {
  std::string message, given;
  bool present = false;
  aclError last = 0;
};
thread_local ThreadText thread_text;
std::atomic<AliveCounter> alive_counter = nullptr;

std::string all_counters() {
  std::lock_guard hold(reports().lock);
  std::string text;
  for (const auto& [name, value] : reports().counters)
    text += name + " " + std::to_string(value) + "\n";
  return text;
}

}  // namespace

aclError fail(aclError code, const std::string& text) {
  thread_text.message = text;
  thread_text.present = true;
  thread_text.last = code;
  return code;
}

const char* take_message() {
  if (!thread_text.present) return nullptr;
  thread_text.given = thread_text.message;
  thread_text.present = false;
  return thread_text.given.c_str();
}

aclError last_error(bool clear) {
  const aclError code = thread_text.last;
  if (clear) thread_text.last = 0;
  return code;
}

void violation(const std::string& text) {
  bool abort = false;
  {
    std::lock_guard hold(reports().lock);
    ++reports().counters["violations"];
    reports().last_violation = text;
    abort = reports().abort;
  }
  std::fprintf(stderr, "NPU SIMULATOR: broken rule: %s\n", text.c_str());
  if (abort) std::abort();
}

void abort_on_violation(bool abort) {
  std::lock_guard hold(reports().lock);
  reports().abort = abort;
}

void count(const std::string& name, int64_t by) {
  std::lock_guard hold(reports().lock);
  reports().counters[name] += by;
}

void count_peak(const std::string& name, int64_t value) {
  std::lock_guard hold(reports().lock);
  int64_t& peak = reports().counters[name];
  if (value > peak) peak = value;
}

int64_t counted(const std::string& name) {
  std::lock_guard hold(reports().lock);
  const auto found = reports().counters.find(name);
  return found == reports().counters.end() ? 0 : found->second;
}

void write_counters_file() {
  std::string path = config().counters_file;
  if (path.empty()) return;
  const size_t at = path.find("%p");
  if (at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  if (std::FILE* file = std::fopen(path.c_str(), "w")) {
    std::fputs(all_counters().c_str(), file);
    std::fclose(file);
  }
}

void set_alive_counter(AliveCounter counter) { alive_counter = counter; }

int64_t alive(const char* kind) {
  const AliveCounter counter = alive_counter;
  return counter ? counter(kind) : 0;
}

void announce() {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  std::fprintf(
      stderr,
      "NPU SIMULATOR: nothing here was measured on an Ascend device; a CPU computes as %s would "
      "(variant %s)\n",
      config().chip.name, kOldVariant ? "old" : "current");
}

}  // namespace npu_sim

extern "C" {

int64_t NpuSimCounter(const char* name) { return npu_sim::counted(name); }
int64_t danlu_sim_counter(const char* name) { return npu_sim::counted(name); }

const char* NpuSimCounters() {
  thread_local std::string text;
  text = npu_sim::all_counters();
  return text.c_str();
}

void NpuSimResetCounters() {
  std::lock_guard hold(npu_sim::reports().lock);
  npu_sim::reports().counters.clear();
  npu_sim::reports().last_violation.clear();
}

void NpuSimAbortOnViolation(int abort) { npu_sim::abort_on_violation(abort != 0); }

const char* NpuSimLastViolation() {
  thread_local std::string text;
  std::lock_guard hold(npu_sim::reports().lock);
  text = npu_sim::reports().last_violation;
  return text.c_str();
}
}
