// hub/fetch_file.h: one file from a hub into a place of its own, whole and verified.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/client.h"
#include "hub/repository.h"

namespace danlu::hub {

struct FileToFetch {
  const Repository& repository;
  const Listing& listing;
  RemoteFile file;
  std::filesystem::path part;  ///< grows here; what lies there is gone on from
};

/// Bytes that came over the network, for a progress line; taken back when they are thrown away.
using CountBytes = std::function<void(int64_t)>;

/// Makes `part` the listed content. Goes on from what is there with a Range; a server that sends
/// the whole file, or knows no such range, begins anew. Broken connections, 408, 429 and 5xx are
/// tried again, and a content of the wrong hash once, from the beginning. Verified by SHA-256 where
/// the hub says it, else by git's SHA-1; by what the answer's ETag says where the list says
/// neither. True: so it was; false: there is nothing but the size to go by. Errors: CommError
/// naming the file for what came wrong (empty, a web page, cut short, too long, an LFS pointer,
/// another hash, another commit): `part` is then gone, where its bytes are known to be bad; IoError
/// (disk); of the repository's kind; as throw_interrupted.
bool fetch_file(Client& client, const FileToFetch& what, const CountBytes& count);

/// Lower-case hex of what `file` holds: SHA-256, or that of git's blob. Errors: IoError.
std::string sha256_of(const std::filesystem::path& file);
std::string git_sha1_of(const std::filesystem::path& file);
/// Whether `file` has the size and the hash that are listed.
bool has_content(const std::filesystem::path& file, const RemoteFile& listed);

}  // namespace danlu::hub
