// Planted faults: what NPU_SIM_FAULT and NpuSimInject say.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "core/report.h"
#include "npu_sim.h"

namespace npu_sim {
namespace {

struct Fault {
  std::string kind, name;
  int64_t nth = 1, value = 0;
  int card = -1;  // -1: any
  int64_t seen = 0;
};

struct Faults {
  std::mutex lock;
  std::vector<Fault> list;
};

bool add_faults(Faults& faults, const std::string& words);

Faults& faults() {
  static Faults* the = [] {
    Faults* made = new Faults;
    const char* words = std::getenv("NPU_SIM_FAULT");
    if (words && !add_faults(*made, words)) {
      std::fprintf(stderr, "NPU SIMULATOR: NPU_SIM_FAULT=%s is not understood\n", words);
      std::exit(2);
    }
    return made;
  }();
  return *the;
}

/// [card<n>/]kind:name:nth[:value], and for slow kind:name:milliseconds.
bool parse(std::string item, Fault* fault) {
  if (item.rfind("card", 0) == 0) {
    const size_t slash = item.find('/');
    if (slash == std::string::npos) return false;
    fault->card = std::atoi(item.substr(4, slash - 4).c_str());
    item = item.substr(slash + 1);
  }
  std::istringstream in(item);
  std::string nth, value;
  if (!std::getline(in, fault->kind, ':') || !std::getline(in, fault->name, ':') ||
      !std::getline(in, nth, ':')) {
    return false;
  }
  std::getline(in, value);
  fault->nth = std::atoll(nth.c_str());
  fault->value = std::atoll(value.c_str());
  const std::string& k = fault->kind;
  if ((k == "call" || k == "task") && fault->value == 0) return false;
  return fault->nth > 0 && (k == "call" || k == "task" || k == "hang" || k == "slow" ||
                            k == "kill" || k == "dead" || k == "link");
}

bool add_faults(Faults& to, const std::string& words) {
  std::istringstream in(words);
  std::string item;
  while (std::getline(in, item, ';')) {
    Fault fault;
    if (item.empty()) continue;
    if (!parse(item, &fault)) return false;
    to.list.push_back(fault);
  }
  return true;
}

bool meets(const Fault& fault, const std::string& name, int card) {
  return (fault.name == "*" || fault.name == name) && (fault.card < 0 || fault.card == card);
}

}  // namespace

aclError planted_call_error(const char* function, int card) {
  Faults& all = faults();
  std::lock_guard hold(all.lock);
  for (Fault& fault : all.list) {
    if (fault.kind != "call" || !meets(fault, function, card)) continue;
    if (++fault.seen == fault.nth) return static_cast<aclError>(fault.value);
  }
  return 0;
}

TaskFault planted_task_fault(const std::string& operation, int card) {
  int64_t sleep_ms = 0;
  TaskFault result;
  {
    Faults& all = faults();
    std::lock_guard hold(all.lock);
    for (Fault& fault : all.list) {
      if (fault.kind == "call" || !meets(fault, operation, card)) continue;
      if (fault.kind == "slow") {
        sleep_ms = fault.nth;
        continue;
      }
      if (++fault.seen != fault.nth) continue;
      if (fault.kind == "kill") ::kill(getpid(), SIGKILL);
      if (fault.kind == "task") result = {TaskFault::kFail, static_cast<aclError>(fault.value)};
      if (fault.kind == "hang") result = {TaskFault::kHang, 107020};
      if (fault.kind == "link") result = {TaskFault::kLink, 107020};
      if (fault.kind == "dead")
        result = {TaskFault::kDead, fault.value ? static_cast<aclError>(fault.value) : 507010};
    }
  }
  if (sleep_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
  return result;
}

}  // namespace npu_sim

extern "C" {

int NpuSimInject(const char* words) {
  npu_sim::Faults& all = npu_sim::faults();
  std::lock_guard hold(all.lock);
  return npu_sim::add_faults(all, words) ? 0 : 1;
}

void NpuSimClearFaults() {
  npu_sim::Faults& all = npu_sim::faults();
  std::lock_guard hold(all.lock);
  all.list.clear();
}
}
