// tests/support/rank_process.h: finds a rank of a job among the processes of this machine.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace danlu::test {

/// The process that is rank `rank` of a job started in `directory`; 0: none, which kill() would
/// take for everybody.
inline pid_t process_of(const std::filesystem::path& directory, int64_t rank) {
  const std::string variable = '\0' + ("RANK=" + std::to_string(rank)) + '\0';
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    if (!std::filesystem::equivalent(process.path() / "cwd", directory, error) || error) continue;
    std::ostringstream environment;
    environment << std::ifstream(process.path() / "environ", std::ios::binary).rdbuf();
    if (environment.str().find(variable) != std::string::npos)
      return std::stoi(process.path().filename().string());
  }
  return 0;
}

}  // namespace danlu::test
