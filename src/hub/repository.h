// hub/repository.h: what is asked of which hub, and what the hub says is there.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danlu::hub {

enum class Hub { kHuggingFace, kModelScope };
enum class Kind { kModel, kDataset };

/// "Hugging Face", "ModelScope".
const char* hub_name(Hub hub);

struct Repository {
  Hub hub = Hub::kHuggingFace;
  Kind kind = Kind::kModel;
  std::string id;        ///< "org/name"; at Hugging Face also a bare name
  std::string revision;  ///< branch, tag or commit; empty: the hub's default
  /// "main" at Hugging Face, "master" at ModelScope, unless one is named.
  std::string revision_or_default() const;
  const char* kinds() const { return kind == Kind::kModel ? "models" : "datasets"; }
};

/// Errors: UsageError if the id cannot be one, or the revision would lead out of a directory.
void require_valid(const Repository& repository);

struct RemoteFile {
  std::string path;              ///< in the repository, "/" between parts
  std::optional<uint64_t> size;  ///< bytes; not every mirror says it
  std::string sha256;            ///< of the content; empty: not said
  std::string git_sha1;          ///< of git's blob of the content; empty: not said
  /// What names the content in caches: the SHA-256 where there is one.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

/// Whether that is the hash of an empty content, SHA-256 or that of git's blob.
bool is_of_nothing(const std::string& hash);

struct Listing {
  std::string commit;  ///< Hugging Face: 40 hex digits; ModelScope: the revision
  std::vector<RemoteFile> files;
};

/// Errors: of the repository's kind, if a name would lead out of a directory, is not printable or
/// stands twice, or leads into where the download keeps its own files.
void require_safe_names(const Repository& repository, const Listing& listing);

/// The files that match one of `include` (all, if it is empty) and none of `exclude`: shell
/// patterns in which * matches / too; one that ends in / takes what is below.
std::vector<RemoteFile> chosen(const std::vector<RemoteFile>& files,
                               const std::vector<std::string>& include,
                               const std::vector<std::string>& exclude);

/// ModelError or DataError by the kind of the repository: it, a revision or a file of it is not to
/// be had.
[[noreturn]] void throw_not_had(Kind kind, const std::string& message, const std::string& hint);

}  // namespace danlu::hub
