// eval/sandbox/runner/namespaces.h: what the runner leaves of the system before it starts a
// program.
//
// Started by root it leaves the namespaces as root does and the program enters a user namespace of
// its own later, in which there is one user (map_nobody); started by anyone else the user
// namespace comes first, since it gives the right to the others.
#pragma once
#include <sys/types.h>

#include "eval/sandbox/runner/request.h"

namespace danlu::eval::runner {

/// The system's /proc, held open: it is out of reach once the root is another.
class ProcFolder {
 public:
  ProcFolder();
  /// unshare, and a look whether it did anything: where a container's filter only pretends, what
  /// comes next would happen to the system itself. `name`: of the namespace in /proc/self/ns.
  /// Errors: Unavailable.
  void leave(int flag, const char* name, sandbox_protocol::Layer layer) const;
  /// Makes kInsideUser of the new user namespace of `process` who is kNobody here, and nobody else.
  /// The same for groups. REQUIRES: root. Errors: Unavailable.
  void map_nobody(pid_t process) const;
  /// Enters a new user namespace whose one user, kInsideUser, is who started this process; no
  /// groups
  ///  can be taken on or given up in it. Errors: Unavailable.
  void map_self() const;

 private:
  void write(const std::string& name, const std::string& text) const;
  /// "net:[4026531840]"
  std::string namespace_id(const char* name, sandbox_protocol::Layer layer) const;
  int fd_;
};

/// Enters new namespaces for mounts, processes (the next child), network, IPC, host name and
/// control groups; before them one for users, mapped, unless started by root. Errors: Unavailable.
void leave_namespaces(const ProcFolder& proc, bool is_root);

/// Makes the root of this mount namespace a file system in memory that is read only and holds
/// nothing but request.binds, /dev/urandom, the program as kProgramFile, and an empty kScratch that
/// can be written, but not executed from, up to request.file_bytes. Errors: Unavailable.
void make_root(const Request& request);

}  // namespace danlu::eval::runner
