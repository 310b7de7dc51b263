#include "hub/listing.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace danlu::hub {
namespace {

/// What stands in a JSON answer. Errors: CommError for anything else, a web page above all.
Json json_of(const ClientSettings& settings, const Client::Text& text) {
  try {
    return parse_json(text.body, settings.endpoint);
  } catch (const Error& error) {
    const bool is_page = text.head.header("content-type").starts_with("text/html");
    throw CommError(is_page
                        ? tr("[download] {}: a web page came where the list of files was asked for",
                             settings.endpoint)
                        : tr("[download] {}: the list of files is damaged: {}", settings.endpoint,
                             error.what()),
                    tr("is that address a hub (HF_ENDPOINT, MODELSCOPE_ENDPOINT), and does this "
                       "network ask for "
                       "a login in a browser first?"));
  }
}

std::string api_of(const ClientSettings& settings, const Repository& repository) {
  return settings.endpoint + (repository.hub == Hub::kHuggingFace ? "/api/" : "/api/v1/") +
         repository.kinds() + "/" + repository.id;
}

std::optional<uint64_t> size_of(const Json& object, const char* key) {
  const auto size = json_get<int64_t>(object, key);
  if (!size || *size < 0) return std::nullopt;
  return static_cast<uint64_t>(*size);
}

bool is_hex(const std::string& text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string hash_of(const Json& object, const char* key, size_t size) {
  const std::string text = json_get<std::string>(object, key).value_or("");
  return is_hex(text, size) ? text : std::string();
}

/// An entry of siblings or of a tree: the names differ.
RemoteFile file_of(const Json& entry, const char* name, const char* blob, const char* lfs_hash) {
  RemoteFile file;
  file.path = json_get<std::string>(entry, name).value_or("");
  file.size = size_of(entry, "size");
  file.git_sha1 = hash_of(entry, blob, 40);
  if (const auto lfs = json_get<Json>(entry, "lfs"); lfs && lfs->is_object()) {
    file.sha256 = hash_of(*lfs, lfs_hash, 64);
    if (const auto size = size_of(*lfs, "size")) file.size = size;
  }
  return file;
}

/// "<https://…>; rel="next"" -> the URL.
std::string next_page(const std::string& link) {
  const size_t rel = link.find("rel=\"next\"");
  if (rel == std::string::npos) return {};
  const size_t open = link.rfind('<', rel), close = link.find('>', open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return link.substr(open + 1, close - open - 1);
}

std::vector<RemoteFile> tree_of(Client& client, const Repository& repository,
                                const std::string& commit) {
  std::vector<RemoteFile> files;
  std::string url =
      api_of(client.settings(), repository) + "/tree/" + commit + "?recursive=true&expand=false";
  while (!url.empty()) {
    const Client::Text text = client.get_text(url);
    for (const Json& entry : json_of(client.settings(), text)) {
      if (json_get<std::string>(entry, "type").value_or("") == "file")
        files.push_back(file_of(entry, "path", "oid", "oid"));
    }
    const std::string next = next_page(text.head.header("link"));
    if (next == url) break;
    url = next;
  }
  return files;
}

Listing huggingface_list(Client& client, const Repository& repository) {
  const std::string url = api_of(client.settings(), repository) + "/revision/" +
                          url_encoded(repository.revision_or_default(), /*keep_slashes=*/false) +
                          "?blobs=true";
  const Json answer = json_of(client.settings(), client.get_text(url));
  Listing listing{.commit = hash_of(answer, "sha", 40), .files = {}};
  if (listing.commit.empty()) {
    throw CommError(tr("[download] {}: the answer names no commit of {}",
                       client.settings().endpoint, repository.id),
                    tr("is that address a hub (HF_ENDPOINT)?"));
  }
  bool says_hashes = true;
  for (const Json& entry : json_get<Json>(answer, "siblings").value_or(Json::array())) {
    listing.files.push_back(file_of(entry, "rfilename", "blobId", "sha256"));
    says_hashes = says_hashes && !listing.files.back().etag().empty();
  }
  if (!says_hashes) listing.files = tree_of(client, repository, listing.commit);
  return listing;
}

/// Adds the files of one answer, and says how many entries it had.
size_t add_modelscope_files(const Json& answer, std::vector<RemoteFile>& files) {
  Json data = json_get<Json>(answer, "Data").value_or(Json::object());
  if (data.is_object()) data = json_get<Json>(data, "Files").value_or(Json::array());
  for (const Json& entry : data) {
    if (json_get<std::string>(entry, "Type").value_or("blob") == "tree") continue;
    files.push_back({.path = json_get<std::string>(entry, "Path").value_or(""),
                     .size = size_of(entry, "Size"),
                     .sha256 = hash_of(entry, "Sha256", 64),
                     .git_sha1 = {}});
  }
  return data.size();
}

Listing modelscope_list(Client& client, const Repository& repository) {
  constexpr size_t kPageSize = 200;
  const std::string revision = repository.revision_or_default();
  Listing listing{.commit = revision, .files = {}};
  const std::string query =
      "?Revision=" + url_encoded(revision, /*keep_slashes=*/false) + "&Recursive=True";
  const std::string api = api_of(client.settings(), repository);
  if (repository.kind == Kind::kModel) {
    add_modelscope_files(json_of(client.settings(), client.get_text(api + "/repo/files" + query)),
                         listing.files);
    return listing;
  }
  for (int page = 1;; ++page) {
    const std::string url =
        fmt::format("{}/repo/tree{}&PageNumber={}&PageSize={}", api, query, page, kPageSize);
    if (add_modelscope_files(json_of(client.settings(), client.get_text(url)), listing.files) <
        kPageSize)
      return listing;
  }
}

[[noreturn]] void throw_gated(const ClientSettings& settings, const Repository& repository) {
  const std::string page = settings.endpoint + "/" +
                           (repository.kind == Kind::kDataset ? "datasets/" : "") + repository.id;
  if (settings.token.empty()) {
    throw_not_had(repository.kind,
                  tr("[download] {}: its owner gives it only to users that are known, and there is "
                     "no token",
                     repository.id),
                  tr("ask for access at {}, then give your token: HF_TOKEN=hf_…", page));
  }
  throw_not_had(
      repository.kind,
      tr("[download] {}: its owner has not given this token's user access", repository.id),
      tr("ask for access at {} as the user of the token", page));
}

[[noreturn]] void throw_unknown_repository(const ClientSettings& settings,
                                           const Repository& repository) {
  const char* token = settings.hub == Hub::kHuggingFace ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN";
  const char* other = settings.hub == Hub::kHuggingFace ? "modelscope" : "hf";
  throw_not_had(repository.kind,
                repository.kind == Kind::kModel
                    ? tr("[download] {}: {} has no such model, or hides it from this user",
                         repository.id, settings.endpoint)
                    : tr("[download] {}: {} has no such data set, or hides it from this user",
                         repository.id, settings.endpoint),
                tr("check the name (capitals count); a private one needs a token ({}); the other "
                   "hub: --hub {}; data sets: --dataset NAME",
                   token, other));
}

}  // namespace

Listing list_files(Client& client, const Repository& repository) {
  require_valid(repository);
  Listing listing;
  try {
    listing = repository.hub == Hub::kHuggingFace ? huggingface_list(client, repository)
                                                  : modelscope_list(client, repository);
  } catch (const Failure& failure) {
    throw_of_hub(client.settings(), repository, {}, failure);
  }
  require_safe_names(repository, listing);
  for (RemoteFile& file : listing.files) {
    // Mirrors have listed 0 for files that are not empty: the hash knows better.
    if (file.size == 0 && !file.etag().empty() && !is_of_nothing(file.etag())) file.size.reset();
  }
  return listing;
}

std::string file_url(const std::string& endpoint, const Repository& repository,
                     const std::string& commit, const std::string& path) {
  const std::string revision = url_encoded(commit, /*keep_slashes=*/false);
  if (repository.hub == Hub::kModelScope) {
    return fmt::format("{}/api/v1/{}/{}/repo?Revision={}&FilePath={}", endpoint, repository.kinds(),
                       repository.id, revision, url_encoded(path, /*keep_slashes=*/false));
  }
  return fmt::format("{}/{}{}/resolve/{}/{}", endpoint,
                     repository.kind == Kind::kDataset ? "datasets/" : "", repository.id, revision,
                     url_encoded(path, /*keep_slashes=*/true));
}

void throw_of_hub(const ClientSettings& settings, const Repository& repository,
                  const std::string& path, const Failure& failure) {
  const std::string& code = failure.error_code;
  if (code == "GatedRepo") throw_gated(settings, repository);
  if (code == "RevisionNotFound" ||
      (failure.status == 404 && failure.body.find("evision") != std::string::npos)) {
    throw_not_had(
        repository.kind,
        tr("[download] {} has no revision '{}'", repository.id, repository.revision_or_default()),
        tr("leave --revision out, or name a branch, tag or commit that {} shows",
           settings.endpoint));
  }
  if (!path.empty() && (code == "EntryNotFound" || failure.status == 404)) {
    throw_not_had(
        repository.kind,
        tr("[download] {}: {} is listed, and the hub does not have it: it changes at this "
           "moment, or a mirror has not fetched it yet",
           repository.id, path),
        tr("the same line goes on later"));
  }
  if (failure.status == 401 && code != "RepoNotFound" && !settings.token.empty()) {
    throw_not_had(
        repository.kind, tr("[download] {} does not know this token", settings.endpoint),
        tr("make a new one in your account's settings, or take --token and HF_TOKEN out"));
  }
  if (failure.status == 403) throw_gated(settings, repository);
  if (code == "RepoNotFound" || failure.status == 404 || failure.status == 401)
    throw_unknown_repository(settings, repository);
  throw_unreachable(settings, path.empty() ? repository.id : path, failure);
}

}  // namespace danlu::hub
