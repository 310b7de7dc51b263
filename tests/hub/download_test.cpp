// A download from hubs that keep their word, and what it leaves.
#include "hub/cache.h"
#include "hub/fetch_file.h"
#include "hub/hub_test.h"

namespace danlu::hub {
namespace {

namespace fs = std::filesystem;

class Download : public HubTest {};

TEST_F(Download, MakesTheCacheOfHuggingFacesOwnTool) {
  const Downloaded done = download(request());
  EXPECT_EQ(done.directory, snapshot());
  EXPECT_EQ(done.num_fetched, 3u);
  EXPECT_EQ(done.num_unverified, 0u);
  expect_whole(snapshot());
  const fs::path folder_of = folder / "cache" / "models--org--tiny";
  EXPECT_EQ(text_of(folder_of / "refs" / "main"), fake.commit);
  // Contents are named by their hash: SHA-256 in LFS, git's SHA-1 otherwise.
  const std::string weights = test::sha256_by_coreutils(fake.files["model.safetensors"].content);
  EXPECT_EQ(fs::read_symlink(snapshot() / "model.safetensors"), "../../blobs/" + weights);
  const std::string notes = test::git_sha1_by_coreutils(fake.files["sub/notes.md"].content);
  EXPECT_EQ(fs::read_symlink(snapshot() / "sub" / "notes.md"), "../../../blobs/" + notes);
}

TEST_F(Download, IsDoneOnceOnly) {
  download(request());
  fake.forget_requests();
  EXPECT_EQ(download(request()).num_fetched, 0u);
  EXPECT_TRUE(fake.requests_for("/resolve/").empty());
}

TEST_F(Download, IntoADirectoryRecordsWhatHuggingFacesToolRecords) {
  download(local_request());
  expect_whole(folder / "model");
  const fs::path records = folder / "model" / ".cache" / "huggingface" / "download";
  std::istringstream record(text_of(records / "model.safetensors.metadata"));
  std::string commit, etag;
  double timestamp = 0;
  record >> commit >> etag >> timestamp;
  EXPECT_EQ(commit, fake.commit);
  EXPECT_EQ(etag, test::sha256_by_coreutils(fake.files["model.safetensors"].content));
  EXPECT_GT(timestamp, 1e9);
  for (const auto& entry : fs::recursive_directory_iterator(folder / "model"))
    EXPECT_FALSE(entry.path().string().ends_with(".incomplete")) << entry.path();
}

TEST_F(Download, AFileThatSomebodyChangedIsKeptUnlessForced) {
  download(local_request());
  std::ofstream(folder / "model" / "config.json") << "{\"mine\": 1}";
  fs::last_write_time(folder / "model" / "config.json",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  DownloadRequest again = local_request();
  EXPECT_THAT(error_of(again), AllOf(HasSubstr("config.json"), HasSubstr("--force-download")));
  EXPECT_EQ(text_of(folder / "model" / "config.json"), "{\"mine\": 1}");
  again.force = true;
  download(again);
  expect_whole(folder / "model");
}

TEST_F(Download, AnLfsPointerOfACloneIsReplaced) {
  fs::create_directories(folder / "model");
  std::ofstream(folder / "model" / "model.safetensors")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:" << std::string(64, 'a')
      << "\nsize 300000\n";
  download(local_request());
  expect_whole(folder / "model");
}

TEST_F(Download, PatternsAndNamesChooseFiles) {
  DownloadRequest some = request();
  some.include = {"*.json", "sub/"};
  EXPECT_EQ(download(some).num_files, 2u);
  some.exclude = {"sub/*"};
  EXPECT_EQ(download(some).num_files, 1u);
  some.include = {"*.gguf"};
  EXPECT_THAT(error_of(some), HasSubstr("none of its 3 files"));
  DownloadRequest named = request();
  named.files = {"configs.json"};
  EXPECT_THAT(error_of(named), AllOf(HasSubstr("has no file 'configs.json'"),
                                     HasSubstr("did you mean config.json?")));
}

TEST_F(Download, WhereAMirrorListsNoHashesTheTreeHasThem) {
  fake.lists_hashes = false;
  EXPECT_EQ(download(request()).num_unverified, 0u);
  expect_whole(snapshot());
  EXPECT_EQ(fake.requests_for("/tree/").size(), 1u);
}

TEST_F(Download, PagesOfATreeAreFollowed) {
  fake.lists_hashes = false;
  fake.rule = [this](const HubRequest& asked) {
    if (asked.path.find("/tree/") == std::string::npos) return HubAnswer{.status = 0};
    HubAnswer all = fake.honest(asked);
    const size_t middle = all.body.find("},{") + 1;
    if (asked.target.find("cursor=2") != std::string::npos) {
      all.body = "[" + all.body.substr(middle + 1);
    } else {
      all.body = all.body.substr(0, middle) + "]";
      all.headers.emplace_back("Link", "<" + fake.url() + asked.path + "?cursor=2>; rel=\"next\"");
    }
    return all;
  };
  EXPECT_EQ(download(request()).num_files, 3u);
}

TEST_F(Download, DataSetsHaveTheirOwnAddresses) {
  DownloadRequest data = request();
  data.repository.kind = Kind::kDataset;
  const Downloaded done = download(data);
  EXPECT_EQ(done.directory.parent_path().parent_path().filename(), "datasets--org--tiny");
  EXPECT_FALSE(fake.requests_for("/datasets/org/tiny/resolve/").empty());
}

TEST_F(Download, AnEmptyFileIsAFile) {
  fake.files["__init__.py"] = {""};
  download(request());
  expect_whole(snapshot());
}

TEST_F(Download, OneContentUnderTwoNamesIsFetchedOnce) {
  fake.files["copy.safetensors"] = fake.files["model.safetensors"];
  download(request());
  expect_whole(snapshot());
  EXPECT_EQ(fake.requests_for(".safetensors").size(), 1u);
}

TEST_F(Download, WithoutLinksTheSnapshotHoldsFiles) {
  DownloadRequest plain = request();
  plain.links = false;
  download(plain);
  expect_whole(snapshot());
  EXPECT_FALSE(fs::is_symlink(snapshot() / "model.safetensors"));
}

// --- ModelScope ----------------------------------------------------------------------------------

TEST_F(Download, MakesTheCacheOfModelScopesOwnTool) {
  const Downloaded done = download(request(Hub::kModelScope));
  EXPECT_EQ(done.directory, folder / "cache" / "models" / "org--tiny" / "snapshots" / "master");
  expect_whole(done.directory);
  EXPECT_EQ(download(request(Hub::kModelScope)).num_fetched, 0u);
}

TEST_F(Download, FromModelScopeIntoADirectoryLeavesPlainFiles) {
  download(local_request(Hub::kModelScope));
  expect_whole(folder / "model");
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "model"))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 3u);
}

TEST_F(Download, ModelScopesTokenIsACookieToo) {
  DownloadRequest with_token = request(Hub::kModelScope);
  with_token.client.token = "ms-1";
  download(with_token);
  for (const HubRequest& asked : fake.requests()) {
    EXPECT_EQ(asked.header("cookie"), "m_session_id=ms-1");
    EXPECT_EQ(asked.header("authorization"), "Bearer ms-1");
  }
}

TEST_F(Download, ModelScopesDataSetsAreListedByPages) {
  for (int i = 0; i < 250; ++i) fake.files["part-" + std::to_string(1000 + i)] = {"x"};
  fake.rule = [this](const HubRequest& asked) {
    if (asked.path.find("/repo/tree") == std::string::npos) return HubAnswer{.status = 0};
    std::string page, separator;
    size_t at = 0;
    const bool first = asked.target.find("PageNumber=1&") != std::string::npos;
    for (const auto& [name, file] : fake.files) {
      if ((at++ < 200) != first) continue;
      page += separator + R"({"Type":"blob","Path":")" + name + R"(","Size":)" +
              std::to_string(file.content.size()) + "}";
      separator = ",";
    }
    return HubAnswer{.status = 200, .headers = {}, .body = R"({"Data":{"Files":[)" + page + "]}}"};
  };
  DownloadRequest data = local_request(Hub::kModelScope);
  data.repository.kind = Kind::kDataset;
  const Downloaded done = download(data);
  EXPECT_EQ(done.num_files, 253u);
  EXPECT_EQ(done.num_unverified, 253u);  // these pages say no hash
}

// --- what is in caches ---------------------------------------------------------------------------

TEST_F(Download, CachesOfOtherToolsAreFound) {
  const auto found = [&](Hub hub, const std::string& id, const std::string& revision = {}) {
    std::vector<std::string> looked;
    const auto at = find_in_cache(folder.path(), {hub, Kind::kModel, id, revision}, looked);
    EXPECT_FALSE(looked.empty());
    return at ? at->lexically_relative(folder.path()).string() : std::string();
  };
  const auto put = [&](const std::string& file, const std::string& content = "x") {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << content;
  };
  EXPECT_EQ(found(Hub::kHuggingFace, "o/m"), "");
  put("models--o--m/snapshots/abc/config.json");
  put("models--o--m/snapshots/def/config.json");
  put("models--o--m/refs/main", "abc");
  put("models--o--m/refs/v1", "def\n");
  EXPECT_EQ(found(Hub::kHuggingFace, "o/m"), "models--o--m/snapshots/abc");
  EXPECT_EQ(found(Hub::kHuggingFace, "o/m", "v1"), "models--o--m/snapshots/def");
  EXPECT_EQ(found(Hub::kHuggingFace, "o/m", "v2"), "");
  put("hub/models/o/m-0___5B/config.json");
  EXPECT_EQ(found(Hub::kModelScope, "o/m-0.5B"), "hub/models/o/m-0___5B");
  EXPECT_EQ(found(Hub::kModelScope, "o/m-0.5B", "v9"), "") << "which revision it is nobody knows";
  put("models/o--m-0.5B/snapshots/master/config.json");
  EXPECT_EQ(found(Hub::kModelScope, "o/m-0.5B"), "models/o--m-0.5B/snapshots/master");
}

}  // namespace
}  // namespace danlu::hub
