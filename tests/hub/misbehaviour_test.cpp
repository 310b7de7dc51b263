// Each way in which hubs, mirrors and networks misbehave: what comes is whole and right, or an
// error names what is wrong and nothing has the file's name.
#include <sys/resource.h>

#include "base/progress.h"
#include "hub/hub_test.h"
#include "support/file_size_limit.h"

namespace danlu::hub {
namespace {

namespace fs = std::filesystem;

class Misbehaviour : public HubTest {
 protected:
  /// An error with these words, and not one file published.
  void expect_refused(const DownloadRequest& wanted, const std::vector<std::string>& words,
                      ExitCode expected = ExitCode::kComm) {
    ExitCode code = ExitCode::kSuccess;
    const std::string error = error_of(wanted, &code);
    for (const std::string& word : words) EXPECT_THAT(error, HasSubstr(word));
    EXPECT_EQ(code, expected) << error;
    EXPECT_THAT(error, Not(testing::EndsWith("| "))) << "an error without a remedy";
    expect_nothing_published(snapshot());
    expect_nothing_published(folder / "model");
  }
  size_t times_asked(const std::string& name) const {
    return fake.requests_for("/resolve/" + fake.commit + "/" + name).size();
  }
};

// --- redirects -----------------------------------------------------------------------------------

TEST_F(Misbehaviour, AnAbsoluteRedirectToAnotherHostLosesTheToken) {
  DownloadRequest with_token = request();
  with_token.client.token = "hf_secret";
  // A renamed repository is redirected on its own host, a file to a store elsewhere.
  fake.rule = [this](const HubRequest& asked) {
    if (asked.path == "/api/models/org/old/revision/main")
      return HubAnswer{.status = 307,
                       .headers = {{"Location", "/api/models/org/tiny/revision/main?blobs=true"}}};
    if (asked.path.starts_with("/org/old/resolve/"))
      return HubAnswer{.status = 307,
                       .headers = {{"Location", "/org/tiny" + asked.path.substr(8)}}};
    if (asked.path.starts_with("/org/tiny/resolve/"))
      return HubAnswer{.status = 302,
                       .headers = {{"X-Repo-Commit", fake.commit},
                                   {"Location", fake.url("localhost") + "/store" + asked.path}}};
    if (asked.path.starts_with("/store")) {
      HubRequest stored = asked;
      stored.path = asked.path.substr(6);
      return fake.honest(stored);
    }
    return HubAnswer{.status = 0};
  };
  with_token.repository.id = "org/old";
  const Downloaded done = download(with_token);
  expect_whole(done.directory);
  EXPECT_EQ(done.directory.parent_path().parent_path().filename(), "models--org--old");
  for (const HubRequest& asked : fake.requests()) {
    const bool elsewhere = asked.path.starts_with("/store");
    EXPECT_EQ(asked.header("authorization"), elsewhere ? "" : "Bearer hf_secret") << asked.target;
    EXPECT_EQ(asked.header("accept-encoding"), "identity");
  }
  EXPECT_EQ(fake.requests_for("/store").size(), 3u);
}

TEST_F(Misbehaviour, RedirectsInACircleEnd) {
  for_file("model.safetensors", [](const HubRequest& asked) {
    return HubAnswer{.status = 302, .headers = {{"Location", asked.path}}};
  });
  expect_refused(request(), {"model.safetensors", "too many redirects"});
}

TEST_F(Misbehaviour, ARedirectToAFileOfThisMachineIsNotFollowed) {
  for_file("config.json", [](const HubRequest&) {
    return HubAnswer{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}};
  });
  expect_refused(request(), {"config.json", "no http URL"});
}

// --- what was begun ------------------------------------------------------------------------------

class Begun : public Misbehaviour {
 protected:
  /// As a process that was killed leaves it.
  void begin_with(const std::string& bytes) {
    const std::string etag = test::sha256_by_coreutils(weights());
    part_ = folder / "cache" / "models--org--tiny" / "blobs" / (etag + ".incomplete");
    fs::create_directories(part_.parent_path());
    std::ofstream(part_, std::ios::binary) << bytes;
  }
  const std::string& weights() { return fake.files["model.safetensors"].content; }
  std::string range_asked() const {
    const auto asked = fake.requests_for("model.safetensors");
    return asked.empty() ? "nothing" : asked.front().header("range");
  }
  fs::path part_;
};

TEST_F(Begun, IsGoneOnFromWithARange) {
  begin_with(weights().substr(0, 123'456));
  const Downloaded done = download(request());
  EXPECT_EQ(range_asked(), "bytes=123456-");
  expect_whole(done.directory);
  // 300000 - 123456 of the weights, and the two small files.
  EXPECT_EQ(done.fetched_bytes, 176'544u + fake.files["config.json"].content.size() +
                                    fake.files["sub/notes.md"].content.size());
}

TEST_F(Begun, IsBegunAnewWhereTheServerAnswers200) {
  begin_with(weights().substr(0, 1000));
  for_file("model.safetensors", [this](const HubRequest&) {
    return HubAnswer{.status = 200, .headers = {}, .body = weights()};
  });
  expect_whole(download(request()).directory);
}

TEST_F(Begun, IsBegunAnewWhereTheServerAnswers416) {
  begin_with(weights().substr(0, 1000));
  for_file("model.safetensors", [](const HubRequest& asked) {
    return HubAnswer{.status = asked.header("range").empty() ? 0 : 416};
  });
  expect_whole(download(request()).directory);
  EXPECT_EQ(times_asked("model.safetensors"), 2u);
}

TEST_F(Begun, IsBegunAnewWhereItsBytesWereBad) {
  begin_with(std::string(5000, 'x'));
  expect_whole(download(request()).directory);
  EXPECT_EQ(times_asked("model.safetensors"), 2u);
}

TEST_F(Begun, ThatIsWholeIsOnlyVerified) {
  begin_with(weights());
  expect_whole(download(request()).directory);
  EXPECT_EQ(range_asked(), "nothing");
}

TEST_F(Begun, ThatIsLongerThanTheFileIsBegunAnew) {
  begin_with(weights() + "more");
  expect_whole(download(request()).directory);
}

TEST_F(Begun, AnotherPartThanWasAskedForIsAnError) {
  begin_with(weights().substr(0, 1000));
  for_file("model.safetensors", [](const HubRequest&) {
    return HubAnswer{.status = 206,
                     .headers = {{"Content-Range", "bytes 0-299999/300000"}},
                     .body = std::string(300000, 'a')};
  });
  expect_refused(request(), {"model.safetensors", "another part"});
}

// --- what comes is wrong -------------------------------------------------------------------------

TEST_F(Misbehaviour, AWrongHashIsTriedOnceMoreAndThenAnError) {
  for_file("model.safetensors", [](const HubRequest&) {
    return HubAnswer{.status = 200, .headers = {}, .body = std::string(300'000, 'z')};
  });
  expect_refused(request(), {"model.safetensors", "its hash is", "not kept"});
  EXPECT_EQ(times_asked("model.safetensors"), 2u);
  expect_refused(local_request(), {"its hash is"});
}

TEST_F(Misbehaviour, AWrongHashOfASmallFileIsGitsSha1) {
  const std::string other(fake.files["config.json"].content.size(), ' ');
  for_file("config.json", [other](const HubRequest&) {
    return HubAnswer{.status = 200, .headers = {}, .body = other};
  });
  expect_refused(request(), {"config.json", test::git_sha1_by_coreutils(other)});
}

TEST_F(Misbehaviour, AWebPageInPlaceOfWeightsIsNamedSo) {
  for_file("model.safetensors", [](const HubRequest&) {
    return HubAnswer{.status = 200,
                     .headers = {{"Content-Type", "text/html; charset=utf-8"}},
                     .body = "<!DOCTYPE html><html>log in</html>"};
  });
  expect_refused(request(), {"model.safetensors", "a web page came"});
  // Without the type, and as long as the file.
  fs::remove_all(folder / "cache");
  std::string page = "<html>";
  page.resize(fake.files["config.json"].content.size(), ' ');
  for_file("config.json", [page](const HubRequest&) {
    return HubAnswer{.status = 200, .headers = {}, .body = page};
  });
  expect_refused(request(), {"config.json", "a web page came"});
}

TEST_F(Misbehaviour, AWebPageInPlaceOfTheListIsNamedSo) {
  fake.rule = [](const HubRequest&) {
    return HubAnswer{.status = 200, .headers = {{"Content-Type", "text/html"}}, .body = "<html>"};
  };
  expect_refused(request(), {"a web page came where the list of files", "login"});
}

TEST_F(Misbehaviour, AnEmptyBodyIsNamedSo) {
  for_file("model.safetensors", [](const HubRequest&) { return HubAnswer{.status = 200}; });
  expect_refused(request(), {"model.safetensors", "it came empty", "300000"});
}

TEST_F(Misbehaviour, ASizeOfZeroInTheListIsNotBelieved) {
  fake.rule = [this](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    if (asked.path.find("/revision/") == std::string::npos) return answer;
    for (size_t at = 0; (at = answer.body.find("\"size\":300000")) != std::string::npos;)
      answer.body.replace(at, 13, "\"size\":0");
    return answer;
  };
  expect_whole(download(request()).directory);
}

TEST_F(Misbehaviour, AServerThatSendsLessThanIsListedIsNamed) {
  for_file("model.safetensors", [this](const HubRequest&) {
    return HubAnswer{.status = 200,
                     .headers = {},
                     .body = fake.files["model.safetensors"].content.substr(0, 1000)};
  });
  expect_refused(request(), {"model.safetensors", "1000 bytes are sent, and the hub lists 300000"});
}

TEST_F(Misbehaviour, AServerThatSendsMoreThanIsListedIsNamed) {
  for_file("config.json", [](const HubRequest&) {
    return HubAnswer{
        .status = 200, .headers = {{"Content-Encoding", "x"}}, .body = std::string(99, 'a')};
  });
  expect_refused(request(), {"config.json", "more bytes came"});
}

TEST_F(Misbehaviour, AFileThatChangesUnderWayIsNamed) {
  for_file("model.safetensors", [](const HubRequest&) {
    return HubAnswer{
        .status = 200, .headers = {{"X-Repo-Commit", std::string(40, 'f')}}, .body = "x"};
  });
  expect_refused(request(), {"model.safetensors", "changed while it was fetched"});
  for_file("model.safetensors", [](const HubRequest&) {
    return HubAnswer{.status = 200,
                     .headers = {{"X-Linked-Etag", '"' + std::string(64, 'a') + '"'}},
                     .body = "x"};
  });
  expect_refused(request(), {"model.safetensors", "changed while it was fetched"});
}

// --- connections ---------------------------------------------------------------------------------

TEST_F(Misbehaviour, ACutConnectionIsGoneOnFrom) {
  int cuts = 0;
  for_file("model.safetensors", [&](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    if (++cuts < 5) answer.cut_after = 50'000;
    return answer;
  });
  // More cuts than retries: each try that got further counts anew.
  expect_whole(download(request()).directory);
  EXPECT_EQ(fake.requests_for("model.safetensors").back().header("range"), "bytes=200000-");
}

TEST_F(Misbehaviour, AConnectionThatIsAlwaysCutAtOnceEnds) {
  for_file("model.safetensors", [&](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    answer.cut_after = 0;
    return answer;
  });
  expect_refused(request(), {"model.safetensors", "HF_ENDPOINT"});
  EXPECT_EQ(times_asked("model.safetensors"), 3u);  // and two retries
}

TEST_F(Misbehaviour, ASlowServerIsWaitedFor) {
  for_file("model.safetensors", [&](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    answer.pause_ms = 5;
    return answer;
  });
  expect_whole(download(request()).directory);
}

TEST_F(Misbehaviour, AConnectionThatStandsStillIsMadeAnew) {
  int tries = 0;
  DownloadRequest impatient = request();
  impatient.client.timeout_s = 1;
  for_file("model.safetensors", [&](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    if (++tries == 1) answer.stall_ms = 600'000;
    return answer;
  });
  expect_whole(download(impatient).directory);
  EXPECT_EQ(times_asked("model.safetensors"), 2u);
}

TEST_F(Misbehaviour, TooManyRequestsAreMadeAgainAfterRetryAfter) {
  int tries = 0;
  for_file("config.json", [&](const HubRequest&) {
    if (++tries > 2) return HubAnswer{.status = 0};
    return HubAnswer{.status = 429, .headers = {{"Retry-After", "0"}}};
  });
  expect_whole(download(request()).directory);
  EXPECT_EQ(tries, 3);
}

TEST_F(Misbehaviour, AHubThatAsksForAnHourIsNotWaitedFor) {
  for_file("config.json", [](const HubRequest&) {
    return HubAnswer{.status = 429, .headers = {{"Retry-After", "3600"}}};
  });
  expect_refused(request(), {"HTTP 429", "too many requests", "the same line goes on"});
  EXPECT_EQ(times_asked("config.json"), 1u);
}

TEST_F(Misbehaviour, AHubThatIsDownForAMomentIsAskedAgain) {
  int tries = 0;
  fake.rule = [&](const HubRequest&) { return HubAnswer{.status = ++tries < 3 ? 503 : 0}; };
  expect_whole(download(request()).directory);
}

TEST_F(Misbehaviour, NobodyAtTheAddressIsAnErrorWithTheMirror) {
  DownloadRequest nowhere = request();
  nowhere.client.endpoint = "http://127.0.0.1:1";
  expect_refused(nowhere, {"http://127.0.0.1:1", "HF_ENDPOINT"});
}

// --- refusals ------------------------------------------------------------------------------------

TEST_F(Misbehaviour, ARepositoryThatIsNotThere) {
  DownloadRequest other = request();
  other.repository.id = "org/tinny";
  expect_refused(other, {"org/tinny", "no such model", "--hub modelscope"}, ExitCode::kModel);
  other.repository.kind = Kind::kDataset;
  expect_refused(other, {"org/tinny", "no such data set"}, ExitCode::kData);
  // Without a token the hub says 401 of what is not there.
  fake.rule = [](const HubRequest&) {
    return HubAnswer{.status = 401, .headers = {{"X-Error-Code", "RepoNotFound"}}};
  };
  expect_refused(request(), {"no such model", "HF_TOKEN"}, ExitCode::kModel);
  fake.rule = nullptr;
  other.repository = {Hub::kModelScope, Kind::kModel, "org/tinny", {}};
  other.client.hub = Hub::kModelScope;
  expect_refused(other, {"no such model", "MODELSCOPE_API_TOKEN", "--hub hf"}, ExitCode::kModel);
}

TEST_F(Misbehaviour, ARevisionThatIsNotThere) {
  for (const Hub hub : {Hub::kHuggingFace, Hub::kModelScope}) {
    DownloadRequest other = request(hub);
    other.repository.revision = "v9";
    expect_refused(other, {"no revision 'v9'", "--revision"}, ExitCode::kModel);
  }
  DownloadRequest upwards = request();
  upwards.repository.revision = "../../x";
  expect_refused(upwards, {"is no branch"}, ExitCode::kUsage);
  upwards.repository = {Hub::kHuggingFace, Kind::kModel, "../etc", {}};
  expect_refused(upwards, {"is no name of a repository"}, ExitCode::kUsage);
}

TEST_F(Misbehaviour, AGatedRepositoryNamesThePageAndTheToken) {
  fake.rule = [](const HubRequest& asked) {
    return HubAnswer{.status = asked.header("authorization").empty() ? 401 : 403,
                     .headers = {{"X-Error-Code", "GatedRepo"}}};
  };
  expect_refused(request(), {"there is no token", fake.url() + "/org/tiny", "HF_TOKEN"},
                 ExitCode::kModel);
  DownloadRequest with_token = request();
  with_token.client.token = "hf_other";
  expect_refused(with_token, {"has not given this token's user access"}, ExitCode::kModel);
}

TEST_F(Misbehaviour, AFileThatIsListedAndNotThere) {
  for_file("sub/notes.md", [](const HubRequest&) {
    return HubAnswer{.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}}};
  });
  expect_refused(request(), {"sub/notes.md is listed, and the hub does not have it"},
                 ExitCode::kModel);
}

TEST_F(Misbehaviour, NamesThatLeadOutOfTheDirectoryAreRefused) {
  const auto original = fake.files;
  for (const char* name : {"../evil", "a/../../evil", "/etc/evil", "a//b", "a\\b", "a/./b",
                           ".cache/huggingface/download/config.json.metadata"}) {
    fake.files = original;
    fake.files[name] = {"evil"};
    expect_refused(request(), {"the hub lists a file '", "nothing was fetched"}, ExitCode::kModel);
    expect_refused(local_request(), {"the hub lists a file '"}, ExitCode::kModel);
    EXPECT_TRUE(fake.requests_for("/resolve/").empty()) << name;
  }
  EXPECT_FALSE(fs::exists(folder / "evil"));
}

// --- nothing looks whole before it is ------------------------------------------------------------

TEST_F(Misbehaviour, ADirectoryGetsNoFileBeforeAllAreWhole) {
  // One worker: config.json comes first and is right, the weights come never.
  DownloadRequest one = local_request();
  one.workers = 1;
  for_file("model.safetensors", [](const HubRequest&) { return HubAnswer{.status = 500}; });
  expect_refused(one, {"model.safetensors", "HTTP 500"});
  fake.rule = nullptr;
  fake.forget_requests();
  download(one);
  expect_whole(folder / "model");
  EXPECT_EQ(times_asked("config.json"), 0u) << "what had come was kept";
}

TEST_F(Misbehaviour, AFileThatMayNotGrowNamesTheRemedy) {
  const int said = test::with_file_size_limit(100'000, [&] {
    std::ofstream(folder / "said") << error_of(request());
    return 7;
  });
  ASSERT_EQ(said, 7);
  const std::string error = text_of(folder / "said");
  EXPECT_THAT(error, AllOf(HasSubstr("cannot be written"), HasSubstr("ulimit -f"),
                           HasSubstr("the same line then goes on")));
  expect_nothing_published(snapshot());
  expect_whole(download(request()).directory);
}

TEST_F(Misbehaviour, SpaceIsAskedForBeforeTheFirstByte) {
  fake.rule = [this](const HubRequest& asked) {
    HubAnswer answer = fake.honest(asked);
    if (asked.path.find("/revision/") == std::string::npos) return answer;
    for (size_t i = 0; (i = answer.body.find("\"size\":300000")) != std::string::npos;)
      answer.body.replace(i, 13, "\"size\":9000000000000000");
    return answer;
  };
  expect_refused(request(), {"9.0 PB"}, ExitCode::kIo);
  EXPECT_TRUE(fake.requests_for("/resolve/").empty());
}

}  // namespace
}  // namespace danlu::hub
