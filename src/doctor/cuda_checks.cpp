// NVIDIA: driver, device files, cards, and whether the libtorch that is here can use them.
#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "base/message.h"
#include "doctor/cards.h"
#include "doctor/check.h"
#include "doctor/child.h"
#include "doctor/devices.h"
#include "doctor/engine.h"

namespace danlu::doctor {
namespace {

/// "12.4" -> 1204; 0 if it is no version.
int64_t version_rank(const std::string& version) {
  const size_t dot = version.find('.');
  const auto major = number_of(version.substr(0, dot));
  const auto minor =
      dot == version.npos ? std::optional<int64_t>(0) : number_of(version.substr(dot + 1));
  return major && minor ? *major * 100 + *minor : 0;
}

/// What the driver can run at most, of the head of nvidia-smi's table: "CUDA Version: 12.4".
std::string cuda_of_driver(const SystemRoots& roots) {
  const auto program = find_program(roots, "nvidia-smi");
  if (!program) return "";
  const ChildResult result = run_program(*program, {}, roots.program_timeout_s);
  static const std::regex version(R"(CUDA Version:\s*(\d+\.\d+))");
  // It stands in the head; std::regex needs a stack as long as what it reads.
  const std::string head = result.out.substr(0, 4096);
  std::smatch found;
  return std::regex_search(head, found, version) ? found[1].str() : "";
}

void compare_with_engine(const SystemRoots& roots, Finding& finding) {
  const EngineAnswer answer = ask_engine(roots);
  if (!answer.build) return;  // the check of libtorch says it
  const LibtorchBuild& build = *answer.build;
  if (!build.has_cuda) {
    finding.add(Verdict::kWarning, tr("libtorch is built for CPUs: runs do not use the cards"),
                tr("build Danlu with a CUDA build of libtorch: cmake -DTorch_DIR=…"));
    return;
  }
  const std::string driver = cuda_of_driver(roots);
  const int64_t can = version_rank(driver), wants = version_rank(build.cuda_runtime);
  if (can == 0 || wants == 0) return;
  if (can / 100 < wants / 100) {
    finding.add(Verdict::kFailed,
                tr("the driver is for CUDA {}, libtorch for {}", driver, build.cuda_runtime),
                tr("a newer driver, or a libtorch for CUDA {}", driver));
  } else {
    finding.add(Verdict::kOk,
                tr("the driver is for CUDA {}, libtorch for {}", driver, build.cuda_runtime));
  }
}

}  // namespace

std::vector<fs::path> numbered_files(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix) && number_of(std::string_view(name).substr(prefix.size())))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Finding check_cuda(const SystemRoots& roots) {
  const auto cards = numbered_files(roots.dev, "nvidia");
  const auto driver = line_in(roots.proc / "driver/nvidia/version");
  const auto tool = find_program(roots, "nvidia-smi");
  if (cards.empty() && !driver && !tool)
    return Finding::not_here(tr("no NVIDIA device, driver or tool"));
  const std::string container = tr("in a container: docker run --gpus all");
  // Linux under Windows has the driver of Windows behind one file.
  const bool is_wsl = fs::exists(roots.dev / "dxg");
  if (!driver && !is_wsl) {
    return {Verdict::kFailed,
            tr("{} is not there: the driver is not loaded",
               (roots.proc / "driver/nvidia/version").string()),
            tr("install the NVIDIA driver, or load it: modprobe nvidia")};
  }
  if (cards.empty() && !is_wsl) {
    return {Verdict::kFailed,
            tr("the driver is loaded, but there is no {}", (roots.dev / "nvidia0").string()),
            container};
  }
  Finding finding{
      Verdict::kOk,
      is_wsl ? tr("the driver is that of Windows") : tr("{} device files", cards.size()), ""};
  const auto gpus = ask_gpus(roots);
  if (!gpus.is_there()) {
    finding.add(Verdict::kWarning, tr("nvidia-smi is not here"), container);
  } else if (!gpus.answer) {
    finding.add(Verdict::kFailed, gpus.failure, tr("dmesg says what the driver met"));
  } else {
    for (const GpuCard& card : *gpus.answer) {
      finding.add(Verdict::kOk, tr("GPU {}: {}, capability {}, driver {}", card.index, card.name,
                                   card.compute_capability, card.driver));
    }
  }
  compare_with_engine(roots, finding);
  return finding;
}

}  // namespace danlu::doctor
