// cli/hostfile.h: the machines of a job, as DeepSpeed and Open MPI list them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace danlu::cli {

struct Host {
  std::string name;   ///< or address
  int64_t slots = 1;  ///< processes
};

/// Lines `NAME slots=N`; `#` begins a comment. Errors: IoError; UsageError with the line's number
/// for what is no such line and for a machine that stands twice.
std::vector<Host> read_hostfile(const std::filesystem::path& file);

/// The place of this machine, which has these names and addresses. Errors: UsageError where none
/// stands there, or two do.
size_t find_own_host(const std::filesystem::path& file, const std::vector<Host>& hosts,
                     const std::set<std::string>& own_names);

/// Host name, with and without its domain, and the addresses of all interfaces but loopback.
std::set<std::string> own_names();

}  // namespace danlu::cli
