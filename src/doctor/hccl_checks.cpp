// What NPUs and cards need to talk to each other, and memory of theirs that is taken.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <set>

#include "base/message.h"
#include "doctor/cards.h"
#include "doctor/check.h"
#include "doctor/child.h"
#include "doctor/devices.h"
#include "doctor/ports.h"

namespace danlu::doctor {
namespace {

constexpr int64_t kHcclPorts = 16;  ///< of the host, from its base port on

bool is_address(const std::string& text) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, text.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

/// A whole number of a variable within its range; a finding where it is not.
int64_t number_variable(const SystemRoots& roots, const char* name, int64_t least, int64_t most,
                        int64_t otherwise, Finding& finding) {
  const std::string value = roots.variable(name);
  if (value.empty()) return otherwise;
  const auto number = number_of(value);
  if (number && *number >= least && *number <= most) return *number;
  finding.add(Verdict::kFailed, tr("{}={} is not between {} and {}", name, value, least, most),
              tr("unset it: {} holds then", otherwise));
  return otherwise;
}

bool is_seen(const SystemRoots& roots, int64_t pid) {
  std::error_code none;
  return fs::exists(roots.proc / fmt::format("{}", pid), none);
}

/// Idle chips hold some 5 % for their own firmware.
bool is_mostly_taken(const std::optional<Usage>& memory) {
  return memory && memory->total > 0 && memory->used > memory->total / 5;
}

void add_unseen(const SystemRoots& roots, const std::string& card, int64_t pid, Finding& finding) {
  if (is_seen(roots, pid)) return;
  finding.add(Verdict::kWarning, tr("{}: process {} holds memory and is not seen here", card, pid),
              tr("it is another container's, or dead: ps on the host, then kill it or reset the "
                 "card"));
}

void look_at_npus(const SystemRoots& roots, const NpuInfo& info, Finding& finding) {
  std::set<std::pair<int64_t, int64_t>> explained;
  for (const NpuProcess& process : info.processes) {
    explained.insert({process.npu, process.chip});
    add_unseen(roots, fmt::format("NPU {}", process.npu), process.pid, finding);
  }
  for (const NpuChip& chip : info.chips) {
    if (explained.count({chip.npu, chip.chip}) || !is_mostly_taken(chip.hbm_mb)) continue;
    finding.add(Verdict::kWarning,
                tr("NPU {} chip {}: {} of {} MB are taken, by no process", chip.npu, chip.chip,
                   chip.hbm_mb->used, chip.hbm_mb->total),
                tr("a dead process may have left it: npu-smi set -t reset -i {} -c {}", chip.npu,
                   chip.chip));
  }
}

}  // namespace

Finding check_hccl(const SystemRoots& roots) {
  if (!has_npu(roots)) return Finding::not_here(tr("no Ascend device, driver or tool"));
  Finding finding;
  const int64_t base = number_variable(roots, "HCCL_IF_BASE_PORT", 1024, 65520, 60000, finding);
  const int64_t timeout_s = number_variable(roots, "HCCL_CONNECT_TIMEOUT", 120, 7200, 120, finding);
  std::vector<int64_t> taken;
  for (int64_t port = base; port < base + kHcclPorts; ++port) {
    if (try_port(port) == EADDRINUSE) taken.push_back(port);
  }
  if (taken.empty()) {
    finding.add(Verdict::kOk, tr("ports {} to {} are free", base, base + kHcclPorts - 1));
  } else {
    finding.add(Verdict::kWarning,
                tr("ports in use: {}", fmt::format("{}", fmt::join(taken, ", "))),
                tr("HCCL_IF_BASE_PORT names others, the same on all machines; an older job may "
                   "still run (ss -ltnp)"));
  }
  finding.add(Verdict::kOk, tr("ranks wait {} s for each other", timeout_s));
  constexpr int64_t kLargest = 1'000'000;
  const int64_t hang_s = number_variable(roots, "HCCL_EXEC_TIMEOUT", 0, kLargest, 1836, finding);
  finding.add(Verdict::kOk, hang_s == 0
                                ? tr("HCCL gives up no exchange that hangs")
                                : tr("HCCL gives up an exchange that hangs after {} s", hang_s));
  const int64_t buffer_mb = number_variable(roots, "HCCL_BUFFSIZE", 1, kLargest, 200, finding);
  finding.add(Verdict::kOk, tr("each group of ranks takes {} MB of a card", 2 * buffer_mb));
  if (const std::string address = roots.variable("HCCL_IF_IP");
      !address.empty() && !is_address(address)) {
    finding.add(Verdict::kFailed, tr("HCCL_IF_IP={} is no address", address),
                tr("the address of this machine that the others reach"));
  }
  return finding;
}

Finding check_links(const SystemRoots& roots) {
  auto tool = find_program(roots, "hccn_tool");
  if (!tool) {
    SystemRoots driver = roots;
    driver.programs = {roots.ascend / "driver/tools"};
    tool = find_program(driver, "hccn_tool");
  }
  const auto npus = ask_npus(roots);
  if (!tool || !npus.answer) return Finding::not_here(tr("no hccn_tool, or no NPU"));
  Finding finding;
  int64_t number = 0;
  for (const NpuChip& chip : npus.answer->chips) {
    const int64_t card = chip.physical.value_or(number++);
    for (const char* question : {"-link", "-net_health"}) {
      const ChildResult answer = run_program(*tool, {"-i", fmt::format("{}", card), question, "-g"},
                                             roots.program_timeout_s);
      const bool is_link = std::string_view(question) == "-link";
      const std::string said =
          value_of(answer.out, is_link ? "link status" : "net health status").value_or("");
      const bool is_good = is_link ? said == "UP" : said == "Success";
      if (is_good) continue;
      finding.add(
          Verdict::kWarning,
          fmt::format("NPU {}: {} {}", card, question + 1,
                      said.empty() ? describe_failure(answer, roots.program_timeout_s) : said),
          is_link ? tr("one machine needs no such link; several: cable, switch, address "
                       "(hccn_tool -i {} -ip -g)",
                       card)
                  : std::string());
    }
  }
  if (finding.read.empty())
    finding.read = tr("the links of {} NPUs are up", npus.answer->chips.size());
  return finding;
}

Finding check_stale(const SystemRoots& roots) {
  const auto npus = ask_npus(roots);
  const auto tool = find_program(roots, "nvidia-smi");
  if (!npus.answer && !tool) return Finding::not_here(tr("no card that says who uses it"));
  Finding finding;
  if (npus.answer) look_at_npus(roots, *npus.answer, finding);
  if (tool) {
    const ChildResult listed = run_program(*tool, gpu_process_query(), roots.program_timeout_s);
    if (listed.succeeded()) {
      for (const GpuProcess& process : parse_gpu_processes(listed.out))
        add_unseen(roots, "GPU", process.pid, finding);
    }
  }
  if (finding.read.empty()) finding.read = tr("no memory is held by processes that are not here");
  return finding;
}

}  // namespace danlu::doctor
