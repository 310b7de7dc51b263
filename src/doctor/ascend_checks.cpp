// Ascend: device files, driver, CANN. None of it was run beside a card: see docs/doctor.md.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <stdexcept>

#include "base/message.h"
#include "doctor/cards.h"
#include "doctor/check.h"
#include "doctor/child.h"
#include "doctor/devices.h"

namespace danlu::doctor {
namespace {

Finding no_npu() { return Finding::not_here(tr("no Ascend device, driver or tool")); }

std::string docker_devices() {
  return tr(
      "in a container: --device=/dev/davinci0 … --device=/dev/davinci_manager "
      "--device=/dev/devmm_svm --device=/dev/hisi_hdc, and the driver's folder mounted");
}

void add_health(const NpuInfo& info, Finding& finding) {
  finding.add(Verdict::kOk, tr("npu-smi {}: {} chips", info.version, info.chips.size()));
  for (const NpuChip& chip : info.chips) {
    if (chip.health == "OK") continue;
    const bool is_warning = chip.health == "Warning";
    finding.add(is_warning ? Verdict::kWarning : Verdict::kFailed,
                tr("NPU {} chip {}: health {}", chip.npu, chip.chip, chip.health),
                tr("npu-smi info -t health -i {} says why", chip.npu));
  }
}

/// The folder of CANN, and the variable that names it; "" for its usual place.
struct Toolkit {
  fs::path folder;
  std::string variable;
};

std::optional<Toolkit> find_toolkit(const SystemRoots& roots) {
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    if (const std::string value = roots.variable(name); !value.empty()) return Toolkit{value, name};
  }
  const fs::path usual = roots.ascend / "ascend-toolkit/latest";
  std::error_code none;
  return fs::exists(usual, none) ? std::optional(Toolkit{usual, ""}) : std::nullopt;
}

/// "8.1.RC1" of the files that its installer leaves, else of the folder's real name; "": not said.
std::string cann_version(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> files = {folder / "ascend_toolkit_install.info", folder / "version.cfg"};
  for (const char* machine : {"aarch64-linux", "x86_64-linux"})
    files.push_back(folder / machine / "ascend_toolkit_install.info");
  static const std::regex version(R"((\d+\.\d+(\.[0-9A-Za-z]+)*))");
  std::smatch found;
  for (const fs::path& file : files) {
    const auto text = text_in(file);
    if (!text) continue;
    std::string said = value_of(*text, "version").value_or("");
    if (said.empty()) said = value_of(*text, "toolkit_installed_version").value_or("");
    said.resize(std::min<size_t>(said.size(), 200));  // std::regex needs a stack as long as it
    if (std::regex_search(said, found, version)) return found[1];
  }
  const std::string real = fs::canonical(folder, none).string();
  return std::regex_search(real, found, version) ? found[1].str() : "";
}

/// In a child: what a library does when it is opened is not done in this process.
ChildResult open_library(const fs::path& library, double timeout_s) {
  return ask_child(
      [&] {
        if (!::dlopen(library.c_str(), RTLD_NOW)) {
          const char* why = ::dlerror();
          throw std::runtime_error(why ? why : "?");
        }
        return std::string();
      },
      timeout_s);
}

/// A torch_npu that an interpreter would find: "2.5.1.post1" of "torch_npu-2.5.1.post1.dist-info".
std::string torch_npu_version(const SystemRoots& roots) {
  for (const fs::path& folder : roots.packages) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename();
      constexpr std::string_view kBefore = "torch_npu-", kBehind = ".dist-info";
      if (name.starts_with(kBefore) && name.ends_with(kBehind))
        return name.substr(kBefore.size(), name.size() - kBefore.size() - kBehind.size());
    }
  }
  return "";
}

struct KnownPair {
  const char* cann;  ///< beginning of its version
  std::vector<std::string> torch;
};

/// Not exhaustive. Source: vllm-ascend's versioning policy; 9.1.0 beside 2.7.1: MindSpeed's.
const std::vector<KnownPair>& known_pairs() {
  static const std::vector<KnownPair> pairs = {
      {"8.1.RC1", {"2.5.1"}},      {"8.2.RC1", {"2.5.1", "2.7.1"}}, {"8.3.RC2", {"2.7.1", "2.8.0"}},
      {"8.5", {"2.8.0", "2.9.0"}}, {"9.1.0", {"2.7.1", "2.10.0"}},  {"9.", {"2.10.0"}},
  };
  return pairs;
}

std::string lower_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

bool has_npu(const SystemRoots& roots) {
  std::error_code none;
  return !numbered_files(roots.dev, "davinci").empty() ||
         fs::exists(roots.dev / "davinci_manager", none) ||
         fs::exists(roots.ascend / "driver", none) || find_program(roots, "npu-smi").has_value();
}

Finding check_npu(const SystemRoots& roots) {
  if (!has_npu(roots)) return no_npu();
  Finding finding;
  const auto cards = numbered_files(roots.dev, "davinci");
  finding.read = tr("{} device files", cards.size());
  std::vector<std::string> missing, closed;
  std::vector<fs::path> wanted = cards;
  if (cards.empty()) missing.push_back((roots.dev / "davinci0").string());
  for (const char* name : {"davinci_manager", "devmm_svm", "hisi_hdc"})
    wanted.push_back(roots.dev / name);
  for (const fs::path& file : wanted) {
    std::error_code none;
    if (!fs::exists(file, none)) {
      missing.push_back(file.string());
    } else if (::access(file.c_str(), R_OK | W_OK) != 0) {
      closed.push_back(file.string());
    }
  }
  if (!missing.empty()) {
    finding.add(Verdict::kFailed, tr("not there: {}", fmt::format("{}", fmt::join(missing, " "))),
                docker_devices());
  }
  if (!closed.empty()) {
    finding.add(Verdict::kFailed,
                tr("not open to this user: {}", fmt::format("{}", fmt::join(closed, " "))),
                tr("usermod -a -G HwHiAiUser USER, and log in again"));
  }
  const auto npus = ask_npus(roots);
  if (!npus.is_there()) {
    finding.add(Verdict::kWarning, tr("npu-smi is not here"),
                tr("in a container: -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi"));
  } else if (!npus.answer) {
    finding.add(Verdict::kFailed, npus.failure, docker_devices());
  } else {
    add_health(*npus.answer, finding);
  }
  return finding;
}

Finding check_driver(const SystemRoots& roots) {
  if (!has_npu(roots)) return no_npu();
  const auto info = text_in(roots.ascend / "driver/version.info");
  if (!info) {
    return {Verdict::kFailed,
            tr("{} is not there", (roots.ascend / "driver/version.info").string()),
            tr("in a container: -v /usr/local/Ascend/driver:/usr/local/Ascend/driver; else install "
               "the driver")};
  }
  Finding finding{Verdict::kOk, tr("driver {}", value_of(*info, "Version").value_or("?")), ""};
  const auto program = find_program(roots, "npu-smi");
  const auto npus = ask_npus(roots);
  if (!program || !npus.answer || npus.answer->chips.empty()) return finding;
  const std::string card = fmt::format("{}", npus.answer->chips.front().npu);
  const ChildResult board =
      run_program(*program, {"info", "-t", "board", "-i", card}, roots.program_timeout_s);
  const std::string firmware = value_of(board.out, "Firmware Version").value_or("");
  const std::string compatible = value_of(board.out, "Compatibility").value_or("");
  if (!firmware.empty()) finding.add(Verdict::kOk, tr("firmware {}", firmware));
  if (!compatible.empty() && compatible != "OK") {
    finding.add(Verdict::kFailed, tr("driver and firmware: {}", compatible),
                tr("install the firmware of the driver's own release"));
  }
  return finding;
}

Finding check_cann(const SystemRoots& roots) {
  const auto toolkit = find_toolkit(roots);
  if (!toolkit) {
    if (!has_npu(roots)) return Finding::not_here(tr("no CANN, and no Ascend device"));
    return {Verdict::kWarning,
            tr("no CANN: {} is not there, ASCEND_HOME_PATH is not set",
               (roots.ascend / "ascend-toolkit/latest").string()),
            tr("install CANN, then: source /usr/local/Ascend/ascend-toolkit/set_env.sh")};
  }
  std::error_code none;
  if (!fs::is_directory(toolkit->folder, none)) {
    return {Verdict::kFailed,
            tr("{}={} is no directory", toolkit->variable, toolkit->folder.string()),
            tr("source the set_env.sh of the CANN that is installed")};
  }
  const std::string version = cann_version(toolkit->folder);
  Finding finding{
      Verdict::kOk,
      tr("CANN {} in {}", version.empty() ? std::string("?") : version, toolkit->folder.string()),
      ""};
  const std::string source =
      tr("source {}", (toolkit->folder.parent_path() / "set_env.sh").string());
  if (toolkit->variable.empty())
    finding.add(Verdict::kWarning, tr("ASCEND_HOME_PATH is not set"), source);
  const fs::path library = toolkit->folder / "lib64/libascendcl.so";
  if (!fs::exists(library, none)) {
    finding.add(Verdict::kFailed, tr("{} is not there", library.string()),
                tr("install CANN's toolkit, not its run-time alone"));
    return finding;
  }
  const ChildResult opened = open_library(library, roots.program_timeout_s);
  if (!opened.succeeded()) {
    const std::string why =
        opened.exit_code == 1 ? opened.out : describe_failure(opened, roots.program_timeout_s);
    finding.add(Verdict::kFailed, tr("{}: cannot be loaded: {}", library.string(), why), source);
  }
  if (roots.variable("ATB_HOME_PATH").empty())
    finding.add(Verdict::kOk, tr("no NNAL (libatb.so), which Danlu does not use"));
  return finding;
}

Finding check_torch_npu(const SystemRoots& roots) {
  const std::string installed = torch_npu_version(roots);
  const auto toolkit = find_toolkit(roots);
  if (installed.empty()) return Finding::not_here(tr("no torch_npu; Danlu does not use it"));
  const std::string cann = toolkit ? cann_version(toolkit->folder) : "";
  if (cann.empty())
    return Finding::not_here(tr("torch_npu {}, but no CANN that says its version", installed));
  const std::string pair = tr("torch_npu {} beside CANN {}", installed, cann);
  for (const KnownPair& known : known_pairs()) {
    if (!lower_letters(cann).starts_with(lower_letters(known.cann))) continue;
    const bool is_known =
        std::any_of(known.torch.begin(), known.torch.end(), [&](const std::string& torch) {
          return installed == torch || installed.starts_with(torch + ".") ||
                 installed.starts_with(torch + "rc") || installed.starts_with(torch + "+");
        });
    if (is_known) return {Verdict::kOk, tr("{}: a known pair", pair), ""};
    return {Verdict::kWarning, tr("{}: not a known pair", pair),
            tr("known beside this CANN: torch_npu {}; Danlu does not use torch_npu",
               fmt::format("{}", fmt::join(known.torch, ", ")))};
  }
  return {Verdict::kWarning, tr("{}: no pair with this CANN is known", pair),
          tr("the release notes of torch_npu name its CANN; Danlu does not use torch_npu")};
}

}  // namespace danlu::doctor
