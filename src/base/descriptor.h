// base/descriptor.h: whole reads, whole writes and syncs of an open file descriptor; names. Each
// leaves errno as the system call did: the caller knows the file's name and what it was doing.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace danlu {

/// A descriptor to read `path` with, which must be a regular file or an open pipe (standard input,
/// `<(command)`). Errors: IoError; at once for a named pipe, a socket or a device, which could keep
/// the program waiting or reading for ever. A terminal and /dev/null may be read.
int open_input(const std::filesystem::path& path);

/// Fills `to`; fewer bytes only at the end of the file. -1 on an error.
ssize_t read_full(int fd, void* to, size_t size_bytes);

/// Writes all of it, however little the system takes at a time. false on an error.
bool write_all(int fd, const void* from, size_t size_bytes);
/// The same. Errors: IoError naming `path`, which is open there; its hint as hint_of_full's.
void write_all_or_throw(int fd, std::string_view bytes, const std::filesystem::path& path,
                        const std::string& no_space);

/// fsync. true where the file system has no such thing (EINVAL, ENOSYS, ENOTSUP: some FUSE and
/// network mounts), for nothing can be done about that. false if data may be lost: EIO, ENOSPC, and
/// EROFS, which ext4 answers after an error made it read-only.
bool sync_descriptor(int fd);

/// Allows as many descriptors as the system lets this process have. A job of many ranks has
/// connections to all of them in several groups, and the usual 1024 are too few.
void allow_most_descriptors();

/// This machine's name in its network.
std::string host_name();

/// Whether `path` still names the file that is open: another process may have removed or replaced
/// it.
bool has_name(int fd, const char* path);

}  // namespace danlu
