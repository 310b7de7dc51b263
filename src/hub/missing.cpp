#include "hub/missing.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "hub/cache.h"
#include "hub/download.h"
#include "hub/environment.h"

namespace danlu::hub {
namespace {

FetchMissing current_policy;

/// The hubs that have it, the one to ask first before the other.
std::vector<Repository> in_order(Kind kind, const NamesOnHubs& names) {
  const Hub first = hub_by_environment().value_or(current_policy.first);
  std::vector<Repository> out;
  for (const Hub hub : {first, first == Hub::kHuggingFace ? Hub::kModelScope : Hub::kHuggingFace}) {
    const std::string& id = hub == Hub::kHuggingFace ? names.huggingface : names.modelscope;
    if (!id.empty()) out.push_back({.hub = hub, .kind = kind, .id = id, .revision = {}});
  }
  return out;
}

}  // namespace

void set_fetch_missing(const FetchMissing& policy) { current_policy = policy; }
const FetchMissing& fetch_missing() { return current_policy; }

std::optional<std::filesystem::path> find_or_fetch(Kind kind, const NamesOnHubs& names,
                                                   std::vector<std::string>& looked) {
  const std::vector<Repository> repositories = in_order(kind, names);
  for (const Repository& repository : repositories) {
    if (const auto found = find_in_cache(cache_of(repository.hub), repository, looked))
      return found;
  }
  if (!fetch_missing().allowed || !offline_variable().empty() || repositories.empty())
    return std::nullopt;
  const DownloadRequest request = request_by_environment(repositories.front());
  log::info("{} is in no cache here: it is fetched from {} ({}) into {}", request.repository.id,
            hub_name(request.repository.hub), request.client.endpoint, request.cache.string());
  return download(request).directory;
}

std::string how_to_fetch(Kind kind, const NamesOnHubs& names) {
  const std::vector<Repository> repositories = in_order(kind, names);
  if (repositories.empty()) return {};
  const std::string variable = offline_variable();
  if (!variable.empty())
    return tr("{} forbids to fetch it: unset that, or copy it into a cache", variable);
  const Repository& first = repositories.front();
  const std::string line =
      fmt::format("danlu download {}{} --hub {}", kind == Kind::kDataset ? "--dataset " : "",
                  first.id, first.hub == Hub::kHuggingFace ? "hf" : "modelscope");
  return tr("{} fetches it, and so does --download on this line", line);
}

}  // namespace danlu::hub
