// doctor/system.h: where a machine says what it is, in one place, so that a test can give a folder.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/control_group.h"

namespace danlu::doctor {

namespace fs = std::filesystem;

struct SystemRoots {
  fs::path proc = "/proc";
  fs::path sys = "/sys";
  fs::path dev = "/dev";
  fs::path etc = "/etc";
  fs::path run = "/run";
  fs::path ascend = "/usr/local/Ascend";  ///< driver and CANN
  std::vector<fs::path> programs = {};  ///< where npu-smi, nvidia-smi and hccn_tool are looked for
  std::vector<fs::path> packages = {};  ///< where a torch_npu may be installed
  fs::path engine = {};                 ///< the library with libtorch
  std::vector<fs::path> storage = {};   ///< directories that runs write to
  std::map<std::string, std::string> environment = {};
  double program_timeout_s = 20;
  double network_timeout_s = 3;
  bool asks_network = true;                        ///< connections leave this machine
  int64_t now_s = 0;                               ///< since 1970
  std::optional<bool> clock_is_synchronised = {};  ///< as the kernel says; nothing: it does not

  /// The files and commands of the machine this process runs on.
  static SystemRoots of_this_machine();
  /// Everything below one folder, which holds proc/, sys/, dev/, …, bin/ and packages/; without
  /// environment, engine, storage and network.
  static SystemRoots below(const fs::path& folder);

  /// Empty: not set, or set to nothing.
  std::string variable(const std::string& name) const;
  /// For base/control_group.h.
  SystemFiles control_group() const;
};

/// Nothing if it cannot be read.
std::optional<std::string> text_in(const fs::path& file);
/// The first line without the spaces around it; nothing if it cannot be read.
std::optional<std::string> line_in(const fs::path& file);
std::vector<std::string> lines_of(std::string_view text);
std::string trimmed(std::string_view text);
/// Cut at runs of blanks.
std::vector<std::string> words_of(std::string_view text);
/// What follows `key` and a ':' or '=' in the first line that begins with it; nothing without one.
std::optional<std::string> value_of(std::string_view text, std::string_view key);
/// Nothing unless all of it is a whole number.
std::optional<int64_t> number_of(std::string_view text);

/// "0-3,8" -> {0, 1, 2, 3, 8}; nothing if it is of another form or above 65535.
std::optional<std::vector<int>> processors_of(std::string_view list);
/// The same backwards; "" for none.
std::string processor_list(const std::vector<int>& processors);
/// The processors that this process may run on, as /proc says; empty: not said.
std::vector<int> allowed_processors(const SystemRoots& roots);

/// "512 MiB", "62.8 GiB".
std::string binary_size(uint64_t bytes);

}  // namespace danlu::doctor
