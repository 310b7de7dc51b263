#include "hub/repository.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace danlu::hub {
namespace {

bool is_word(const std::string& part) {
  return !part.empty() && part != "." && part != ".." &&
         std::all_of(part.begin(), part.end(), [](unsigned char byte) {
           return std::isalnum(byte) != 0 || byte == '-' || byte == '_' || byte == '.';
         });
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char byte : path) {
    if (byte == '/') {
      parts.emplace_back();
    } else {
      parts.back() += byte;
    }
  }
  return parts;
}

/// Empty, or why the name may not become a file's.
const char* fault_of(const std::string& path) {
  for (const std::string& part : parts_of(path)) {
    if (part.empty() || part == "." || part == "..") return "it leads out of its directory";
  }
  const bool printable = std::none_of(path.begin(), path.end(), [](unsigned char byte) {
    return byte < 0x20 || byte == 0x7f || byte == '\\';
  });
  if (!printable) return "it holds a backslash or a control character";
  // Where hubs' tools keep what they know of the files.
  if (path.starts_with(".cache/huggingface/")) return "the download's own files lie there";
  return nullptr;
}

bool matches(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
    return ::fnmatch(whole.c_str(), path.c_str(), 0) == 0;
  });
}

}  // namespace

const char* hub_name(Hub hub) { return hub == Hub::kHuggingFace ? "Hugging Face" : "ModelScope"; }

std::string Repository::revision_or_default() const {
  if (!revision.empty()) return revision;
  return hub == Hub::kHuggingFace ? "main" : "master";
}

bool is_of_nothing(const std::string& hash) {
  return hash == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" ||
         hash == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
}

void require_valid(const Repository& repository) {
  const std::vector<std::string> parts = parts_of(repository.id);
  const bool may_be_bare = repository.hub == Hub::kHuggingFace;
  const bool counted = parts.size() == 2 || (parts.size() == 1 && may_be_bare);
  if (!counted || !std::all_of(parts.begin(), parts.end(), is_word) ||
      repository.id.find("--") != std::string::npos) {
    throw UsageError(tr("[download] '{}' is no name of a repository", repository.id),
                     tr("a name is ORGANISATION/NAME, as in Qwen/Qwen2.5-0.5B"));
  }
  for (const std::string& part : parts_of(repository.revision_or_default())) {
    if (!is_word(part))
      throw UsageError(
          tr("[download] --revision '{}' is no branch, tag or commit", repository.revision),
          tr("leave it out for the newest, or copy one from the repository's page"));
  }
}

void require_safe_names(const Repository& repository, const Listing& listing) {
  std::set<std::string> seen;
  for (const RemoteFile& file : listing.files) {
    const char* fault = fault_of(file.path);
    if (!fault && !seen.insert(file.path).second) fault = "it stands there twice";
    if (!fault) continue;
    std::string shown;
    for (const char byte : file.path) shown += static_cast<unsigned char>(byte) < 0x20 ? '?' : byte;
    throw_not_had(repository.kind,
                  tr("[download] {}: the hub lists a file '{}', and {}; nothing was fetched",
                     repository.id, shown, fault),
                  tr("no honest repository has such a name: do not use this one"));
  }
}

std::vector<RemoteFile> chosen(const std::vector<RemoteFile>& files,
                               const std::vector<std::string>& include,
                               const std::vector<std::string>& exclude) {
  std::vector<RemoteFile> out;
  for (const RemoteFile& file : files) {
    if (!include.empty() && !matches(file.path, include)) continue;
    if (!matches(file.path, exclude)) out.push_back(file);
  }
  return out;
}

void throw_not_had(Kind kind, const std::string& message, const std::string& hint) {
  if (kind == Kind::kModel) throw ModelError(message, hint);
  throw DataError(message, hint);
}

}  // namespace danlu::hub
