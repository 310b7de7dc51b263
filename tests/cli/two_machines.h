// tests/cli/two_machines.h: two machines: network namespaces on one bridge, as a user without
// rights can make them.
#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_program.h"

namespace danlu::test {

/// Makes two machines, runs machine-N.sh on each, and `then` (which knows p0, p1: their cables)
/// when they have saved a checkpoint; each leaves machine-N.err and, in machine-N.end, its exit
/// code and the seconds since `then`. `hub` is the bridge.
inline constexpr const char* kMachines = R"sh(
export PATH=$PATH:/usr/sbin:/sbin
set -e
ip link set lo up
ip link add name hub type bridge
ip link set dev hub up
for i in 0 1; do
  unshare -n sleep 3600 &
  machine[$i]=$!
done
trap 'kill ${machine[0]} ${machine[1]}' EXIT
for i in 0 1; do
  until [ "$(readlink /proc/${machine[$i]}/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do
    kill -0 ${machine[$i]}
    sleep 0.05
  done
  ip link add name p$i type veth peer name eth0 netns ${machine[$i]}
  ip link set dev p$i master hub up
  on="nsenter -t ${machine[$i]} -n"
  $on ip link set lo up
  $on ip addr add 10.99.0.$((i + 1))/24 dev eth0
  $on ip link set eth0 up
done
[ "$1" = probe ] && exit 0
set +e
rm -f then machine-?.err machine-?.end
running() { kill -0 ${job[0]} && kill -0 ${job[1]}; } 2> /dev/null
for i in 0 1; do
  (nsenter -t ${machine[$i]} -n timeout 1500 bash machine-$i.sh > machine-$i.out 2> machine-$i.err
   echo "$? $((SECONDS - $(cat then 2> /dev/null || echo $SECONDS)))" > machine-$i.end) &
  job[$i]=$!
done
if [ -e then.sh ]; then
  until [ -e run/last/DONE ] || ! running; do sleep 0.02; done
  echo $SECONDS > then
  . ./then.sh
fi
wait ${job[0]} ${job[1]}
)sh";

struct MachineEnd {
  int exit_code = -1, seconds = -1;  ///< seconds since then.sh
  std::string err;
};

/// Their addresses are 10.99.0.1 and 10.99.0.2; both see one folder, where machine-0.sh and
/// machine-1.sh are what each does.
class TwoMachines {
 public:
  explicit TwoMachines(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Why this system cannot have them; empty: it can. Asked before run().
  std::string obstacle() {
    std::ofstream(folder_ / "machines.sh") << kMachines;
    std::string why;
    for (const std::vector<std::string>& how :
         std::vector<std::vector<std::string>>{{"-r", "-n"}, {"-n"}}) {
      unshare_ = how;
      const ProgramResult probe = script("probe");
      if (probe.exit_code == 0) return "";
      why += probe.err;
    }
    return why;
  }
  std::vector<MachineEnd> run() const {
    const ProgramResult result = script("run");
    std::vector<MachineEnd> ends(2);
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::string name = "machine-" + std::to_string(i);
      std::ifstream(folder_ / (name + ".end")) >> ends[i].exit_code >> ends[i].seconds;
      std::ostringstream err;
      err << std::ifstream(folder_ / (name + ".err")).rdbuf();
      ends[i].err = err.str();
    }
    return ends;
  }
  /// Flags of a launcher.
  static std::vector<std::string> launch(int64_t machine, int64_t nproc, const std::string& port) {
    return {"--nproc_per_node", std::to_string(nproc),
            "--nnodes",         "2",
            "--node_rank",      std::to_string(machine),
            "--master_addr",    "10.99.0.1",
            "--master_port",    port};
  }

 private:
  ProgramResult script(const std::string& word) const {
    ProgramSettings settings;
    settings.program = "/usr/bin/unshare";
    settings.directory = folder_;
    settings.environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", folder_ / "cache"}};
    std::vector<std::string> words = unshare_;
    words.insert(words.end(), {"bash", "machines.sh", word});
    return run_danlu(words, settings);
  }

  std::filesystem::path folder_;
  std::vector<std::string> unshare_;
};

}  // namespace danlu::test
