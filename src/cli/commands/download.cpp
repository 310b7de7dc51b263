// `danlu download`: models and data sets from the hubs, with the flags of their own tools.
#include "hub/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/commands/hub_choice.h"
#include "hub/address.h"
#include "hub/cache.h"
#include "hub/environment.h"

namespace danlu::cli {
namespace {

using hub::Hub;
using hub::Kind;

std::vector<OptionSpec> what_to_download() {
  return {
      {.name = "model",
       .help =
           "the model, ORGANISATION/NAME or the address of its page, of what git clones or of a "
           "file; or the first word that is no flag",
       .aliases = {"model_id", "repo_id"},
       .group = "What"},
      {.name = "dataset", .help = "the data set, ORGANISATION/NAME", .group = "What"},
      {.name = "repo_type",
       .default_text = "model",
       .help = "what the first word names",
       .choices = {"model", "dataset"},
       .group = "What"},
      {.name = "revision", .help = "branch, tag or commit; the hub's default", .group = "What"},
      {.name = "include",
       .type = OptionType::kList,
       .help = "only files that match one of these shell patterns",
       .group = "What"},
      {.name = "exclude",
       .type = OptionType::kList,
       .help = "no files that match one of these shell patterns",
       .group = "What"},
  };
}

std::vector<OptionSpec> where_to_and_from() {
  return {
      {.name = "hub",
       .help = "where from; without it the variables USE_HF, USE_MODELSCOPE_HUB, HF_ENDPOINT and "
               "MODELSCOPE_ENDPOINT choose, else --model and --dataset mean ModelScope and a word "
               "Hugging Face, as with their own tools",
       .choices = {"hf", "modelscope"},
       .group = "From"},
      hub_choice_option("From"),
      {.name = "token",
       .help = "of your account; HF_TOKEN or MODELSCOPE_API_TOKEN, and what their tools' login "
               "left, do as well",
       .group = "From"},
      {.name = "local_dir",
       .help = "directory for plain files; without it the hub's cache",
       .aliases = {"output_dir"},
       .group = "To"},
      {.name = "directory_prefix",
       .help = "of the address of a file, as with wget: directory that gets it (default: this one)",
       .aliases = {"P"},
       .group = "To"},
      {.name = "output_document",
       .help = "of the address of a file, as with wget: what it is called here",
       .aliases = {"O"},
       .group = "To"},
      {.name = "cache_dir",
       .help = "the cache; HF_HUB_CACHE, HF_HOME and MODELSCOPE_CACHE do as well",
       .group = "To"},
  };
}

std::vector<OptionSpec> how_to_download() {
  return {
      {.name = "max_workers",
       .type = OptionType::kInt,
       .default_text = "8",
       .help = "files at a time",
       .range = at_least(1).up_to(64),
       .group = "How"},
      {.name = "force_download",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "fetch what is there too, and replace files that were changed by hand",
       .group = "How"},
      {.name = "max_retries",
       .type = OptionType::kInt,
       .default_text = "5",
       .help = "of a request that fails in passing; what has come is gone on from",
       .range = at_least(0).up_to(1000),
       .group = "How"},
      {.name = "timeout",
       .type = OptionType::kFloat,
       .default_text = "30",
       .help = "seconds without a byte, after which a connection is made anew",
       .range = at_least(1),
       .group = "How"},
      {.name = "offline",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "look into the caches only; HF_HUB_OFFLINE=1 does as well",
       .aliases = {"local_files_only"},
       .group = "How"},
      {.name = "resume_download",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"continue", "c"},
       .ignored_because = "every download goes on where the one before stopped"},
      {.name = "local_dir_use_symlinks",
       .help = "accepted",
       .ignored_because = "--local_dir always gets plain files"},
      {.name = "quiet",
       .type = OptionType::kBool,
       .help = "accepted",
       .aliases = {"q"},
       .ignored_because = "LOG_LEVEL=warning is quieter"},
  };
}

/// The words, without the names of the hubs' own tools before them.
struct Words {
  std::optional<Hub> tool;
  std::vector<std::string> rest;
};

Words words_of(const Options& options) {
  Words words{.tool = {}, .rest = options.positional()};
  if (words.rest.size() < 2 || words.rest[1] != "download") return words;
  const std::string& tool = words.rest[0];
  if (tool == "modelscope") words.tool = Hub::kModelScope;
  if (tool == "huggingface-cli" || tool == "hf") words.tool = Hub::kHuggingFace;
  if (words.tool) words.rest.erase(words.rest.begin(), words.rest.begin() + 2);
  return words;
}

Hub hub_of(const Options& options, const Words& words, bool is_flagged) {
  if (options.is_set("hub"))
    return options.get_string("hub") == "hf" ? Hub::kHuggingFace : Hub::kModelScope;
  if (words.tool) return *words.tool;
  if (const auto chosen = hub::hub_by_environment()) return *chosen;
  return is_flagged ? Hub::kModelScope : Hub::kHuggingFace;
}

/// What addresses say beside the repository.
struct AddressedFiles {
  std::vector<std::string> folders;
  std::string endpoint;
  bool are_files = false;  ///< every word is the address of a file
};

/// The repository and files of addresses in place of these. Errors: UsageError, also for addresses
/// of several repositories.
AddressedFiles take_addresses(hub::Repository& repository, std::vector<std::string>& files) {
  AddressedFiles taken;
  taken.are_files = true;
  std::vector<std::string> named = {repository.id};
  named.insert(named.end(), files.begin(), files.end());
  if (!hub::parse_address(named.front())) return {};
  files.clear();
  for (const std::string& word : named) {
    const std::optional<hub::Address> address = hub::parse_address(word);
    taken.are_files &= address && !address->file.empty() && !address->file.ends_with('/');
    if (!address) {
      files.push_back(word);
      continue;
    }
    if (&word == &named.front()) repository = address->repository;
    const hub::Repository& other = address->repository;
    if (other.id != repository.id || other.hub != repository.hub || other.kind != repository.kind ||
        other.revision != repository.revision)
      throw UsageError(tr("[download] {} and {}: one is fetched at a time", named.front(), word),
                       tr("give the line twice"));
    if (address->file.ends_with('/')) {
      taken.folders.push_back(address->file);
    } else if (!address->file.empty()) {
      files.push_back(address->file);
    }
    taken.endpoint = address->endpoint;
  }
  return taken;
}

/// Where wget would put them: in this directory, under the last part of the address.
void put_as_wget_does(const Options& options, const AddressedFiles& addressed,
                      hub::DownloadRequest& request) {
  const bool is_named = options.is_set("output_document");
  const bool is_asked = is_named || options.is_set("directory_prefix");
  const char* const flag = is_named ? "output_document" : "directory_prefix";
  if (is_asked && !addressed.are_files) {
    throw UsageError(tr("[{}] is for the address of a file", options.given_as(flag)),
                     tr("--local_dir DIR takes a whole repository"));
  }
  const bool has_place = options.is_set("local_dir") || options.is_set("cache_dir");
  if (is_asked && has_place) {
    throw UsageError(tr("[{}] and {} both say where the file goes", options.given_as(flag),
                        options.given_as(options.is_set("local_dir") ? "local_dir" : "cache_dir")));
  }
  if (!addressed.are_files || has_place) return;
  request.local_dir = options.get_string_or("directory_prefix", ".");
  for (const std::string& file : request.files)
    request.names[file] = std::filesystem::path(file).filename();
  for (const auto& [file, name] : request.names) {
    const auto same = std::count_if(request.names.begin(), request.names.end(),
                                    [&](const auto& other) { return other.second == name; });
    if (same < 2) continue;
    throw UsageError(
        tr("[download] {} of these files are called {}: one would replace another", same, name),
        tr("give the line twice, with -P or -O"));
  }
  if (!is_named) return;
  if (request.files.size() > 1) {
    throw UsageError(tr("[{}] names one file, and {} are asked for",
                        options.given_as("output_document"), request.files.size()));
  }
  const std::filesystem::path name = options.get_string("output_document");
  if (!name.has_filename() || std::filesystem::is_directory(name)) {
    throw UsageError(
        tr("[{}] must name a file, got {}", options.given_as("output_document"), name.string()),
        tr("-P DIR names the directory"));
  }
  request.local_dir = name.has_parent_path() ? name.parent_path() : ".";
  request.names[request.files.front()] = name.filename();
}

hub::DownloadRequest request_from(const Options& options) {
  Words words = words_of(options);
  hub::Repository repository;
  const bool names_model = options.is_set("model"), names_dataset = options.is_set("dataset");
  if (names_model && names_dataset)
    throw UsageError(tr("[download] --model and --dataset: one is fetched at a time"),
                     tr("give the line twice"));
  if (names_model || names_dataset) {
    repository.id = options.get_string(names_model ? "model" : "dataset");
  } else if (!words.rest.empty()) {
    repository.id = words.rest.front();
    words.rest.erase(words.rest.begin());
  } else {
    throw UsageError(tr("[download] what to fetch is missing"),
                     tr("danlu download Qwen/Qwen2.5-0.5B --local_dir DIR"));
  }
  const bool is_dataset = names_dataset || options.get_string("repo_type") == "dataset";
  repository.kind = is_dataset ? Kind::kDataset : Kind::kModel;
  repository.hub = hub_of(options, words, names_model || names_dataset);
  const AddressedFiles addressed = take_addresses(repository, words.rest);
  repository.revision = options.get_string_or("revision", repository.revision);
  hub::DownloadRequest request = hub::request_by_environment(repository);
  request.files = words.rest;
  if (!addressed.endpoint.empty() && !hub::hub_by_environment())
    request.client.endpoint = addressed.endpoint;
  request.include = options.get_list("include");
  request.include.insert(request.include.end(), addressed.folders.begin(), addressed.folders.end());
  request.exclude = options.get_list("exclude");
  request.local_dir = options.get_string_or("local_dir", "");
  put_as_wget_does(options, addressed, request);
  request.cache = options.get_string_or("cache_dir", request.cache.string());
  request.client.token = options.get_string_or("token", request.client.token);
  request.client.timeout_s = options.get_float("timeout");
  request.client.max_retries = static_cast<int>(options.get_int("max_retries"));
  request.workers = static_cast<int>(options.get_int("max_workers"));
  request.force = options.get_bool("force_download");
  hub::require_valid(repository);
  return request;
}

/// What the cache has, where nothing may be fetched.
std::filesystem::path found_offline(const hub::DownloadRequest& request, const std::string& why) {
  std::vector<std::string> looked;
  if (request.local_dir.empty()) {
    if (const auto found = hub::find_in_cache(request.cache, request.repository, looked))
      return *found;
  }
  hub::throw_not_had(
      request.repository.kind,
      tr("[download] {} is not there, and {} forbids to fetch it", request.repository.id, why),
      tr("fetch it where there is a network and copy the directory, or unset that"));
}

void report(const hub::DownloadRequest& request, const hub::Downloaded& done) {
  const bool is_named = done.commit != request.repository.revision_or_default();
  const std::string revision =
      is_named ? fmt::format("{} ({})", request.repository.revision_or_default(),
                             done.commit.substr(0, 12))
               : done.commit;
  log::info("{} {}: {} files, {} fetched ({}), each verified", request.repository.id, revision,
            done.num_files, done.num_fetched, format_bytes(done.fetched_bytes));
  if (done.num_unverified > 0)
    log::warning("the hub says no hash of {} files: only their size could be checked",
                 done.num_unverified);
}

}  // namespace

OptionTable download_options() {
  std::vector<OptionSpec> specs;
  for (auto part : {what_to_download(), where_to_and_from(), how_to_download()})
    specs.insert(specs.end(), part.begin(), part.end());
  return OptionTable("download", "fetch models and data sets from Hugging Face or ModelScope",
                     "danlu download ORGANISATION/NAME [FILE…] [--local_dir DIR] [flags]",
                     std::move(specs));
}

int run_download(const Options& options) {
  const hub::DownloadRequest request = request_from(options);
  const std::string variable = hub::offline_variable();
  if (options.get_bool("offline") || !variable.empty()) {
    const std::string why = variable.empty() ? options.given_as("offline") : variable;
    fmt::print("{}\n", found_offline(request, why).string());
    return 0;
  }
  watch_interrupts();
  log::info("{}: from {} ({}) into {}", request.repository.id, hub_name(request.repository.hub),
            request.client.endpoint,
            request.local_dir.empty() ? request.cache.string() : request.local_dir.string());
  const hub::Downloaded done = hub::download(request);
  report(request, done);
  if (request.names.empty()) fmt::print("{}\n", done.directory.string());
  for (const auto& [file, name] : request.names)
    fmt::print("{}\n", (done.directory / name).lexically_normal().string());
  return 0;
}

}  // namespace danlu::cli
