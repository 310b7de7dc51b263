// `danlu download` as it is typed, and names of models in other commands, against a fake hub.
#include <csignal>
#include <fstream>

#include "cli/bad_input.h"
#include "support/fake_hub.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DownloadCommand : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    for (const auto& entry : fs::directory_iterator(good("model"))) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file())
        hub_.files[name] = {content_of(entry.path()), name.ends_with(".safetensors")};
    }
  }

  /// With both hubs at the fake one and caches in the test's folder.
  ProgramResult run_at(const std::vector<std::string>& words,
                       std::map<std::string, std::string> more = {}, int signal = 0) const {
    std::map<std::string, std::string> environment = {
        {"HF_ENDPOINT", hub_.url()},
        {"MODELSCOPE_ENDPOINT", hub_.url()},
        {"HF_HOME", ((*this) / "hf").string()},
        {"MODELSCOPE_CACHE", ((*this) / "ms").string()},
        {"OMP_NUM_THREADS", "1"},
        {"no_proxy", "127.0.0.1,localhost"}};
    for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE",
                             "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
                             "USE_HF", "USE_MODELSCOPE_HUB", "MODELSCOPE_API_TOKEN"})
      environment[name] = "";
    for (auto& [name, value] : more) environment[name] = value;
    return run_danlu(words, {.environment = environment,
                             .directory = ((*this) / "").string(),
                             .signal = signal,
                             .signal_after = signal ? "from " : ""});
  }
  bool asked_modelscope() const { return !hub_.requests_for("/api/v1/").empty(); }
  bool asked_huggingface() const { return !hub_.requests_for("/api/models/").empty(); }
  void expect_whole(const fs::path& directory) const {
    for (const auto& [name, file] : hub_.files)
      EXPECT_EQ(content_of(directory / name), file.content) << name;
  }

  FakeHub hub_;
};

TEST_F(DownloadCommand, TheGuidesLinesAskTheHubOfTheirOwnTool) {
  const std::pair<std::vector<std::string>, bool> lines[] = {
      {{"download", "--model", "org/tiny", "--local_dir", "a"}, true},
      {{"download", "modelscope", "download", "--model", "org/tiny", "--local_dir", "b"}, true},
      {{"download", "modelscope", "download", "org/tiny", "--local_dir", "h"}, true},
      {{"download", "--resume-download", "org/tiny", "--local-dir", "c"}, false},
      {{"download", "org/tiny", "--local-dir", "d", "--local-dir-use-symlinks", "False"}, false},
      {{"download", "huggingface-cli", "download", "org/tiny", "--local-dir", "e"}, false},
      {{"download", "--hub", "hf", "--model", "org/tiny", "--local_dir", "f"}, false},
      {{"pull", "org/tiny", "--hub", "modelscope", "--local_dir", "g"}, true}};
  for (const auto& [words, is_modelscope] : lines) {
    hub_.forget_requests();
    const ProgramResult result = run_at(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(asked_modelscope(), is_modelscope) << result.err;
    EXPECT_EQ(asked_huggingface(), !is_modelscope) << result.err;
    const std::string directory = result.out.substr(0, result.out.find('\n'));
    expect_whole((*this) / directory);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(is_modelscope ? "from ModelScope" : "from Hugging Face"),
                      HasSubstr("each verified")));
  }
}

TEST_F(DownloadCommand, VariablesChooseTheHub) {
  EXPECT_EQ(run_at({"download", "--model", "org/tiny"}, {{"USE_HF", "1"}}).exit_code, 0);
  EXPECT_FALSE(asked_modelscope());
  hub_.forget_requests();
  // A mirror that is named alone is meant.
  EXPECT_EQ(run_at({"download", "--model", "org/tiny"},
                   {{"MODELSCOPE_ENDPOINT", ""}, {"HF_HOME", "other"}})
                .exit_code,
            0);
  EXPECT_FALSE(asked_modelscope());
}

TEST_F(DownloadCommand, AnotherProcessGoesOnWhereOneWasCutOff) {
  const size_t size = hub_.files["model.safetensors"].content.size();
  const auto half = static_cast<long long>(size / 2);
  hub_.rule = [&](const HubRequest& asked) {
    if (!asked.path.ends_with("/model.safetensors")) return HubAnswer{.status = 0};
    HubAnswer answer = hub_.honest(asked);
    answer.cut_after = half;
    return answer;
  };
  const ProgramResult cut = run_at({"download", "org/tiny", "--max_retries", "0"});
  expect_error(cut, 7, {"model.safetensors", "hint: "});
  EXPECT_EQ(cut.out, "");
  hub_.rule = nullptr;
  hub_.forget_requests();
  const ProgramResult again = run_at({"download", "org/tiny"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const auto asked = hub_.requests_for("model.safetensors");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked.front().header("range"), "bytes=" + std::to_string(half) + "-");
}

TEST_F(DownloadCommand, AnInterruptSaysThatTheLineGoesOn) {
  hub_.rule = [&](const HubRequest& asked) {
    HubAnswer answer = hub_.honest(asked);
    answer.stall_ms = 600'000;
    return answer;
  };
  const ProgramResult result = run_at({"download", "org/tiny"}, {}, SIGINT);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("stopped by SIGINT"), HasSubstr("the same line goes on")));
}

TEST_F(DownloadCommand, GoesThroughAProxy) {
  const ProgramResult result =
      run_at({"download", "org/tiny", "--local_dir", "a"},
             {{"HF_ENDPOINT", "http://hub.invalid"}, {"http_proxy", hub_.url()}, {"no_proxy", ""}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_whole((*this) / "a");
}

TEST_F(DownloadCommand, TheTokenIsTheEnvironmentsOrTheLogins) {
  fs::create_directories((*this) / "hf");
  std::ofstream((*this) / "hf" / "token") << "hf_login\n";
  EXPECT_EQ(run_at({"download", "org/tiny", "--local_dir", "a"}).exit_code, 0);
  EXPECT_EQ(hub_.requests().front().header("authorization"), "Bearer hf_login");
  hub_.forget_requests();
  EXPECT_EQ(
      run_at({"download", "org/tiny", "--local_dir", "b"}, {{"HF_TOKEN", "hf_env"}}).exit_code, 0);
  EXPECT_EQ(hub_.requests().front().header("authorization"), "Bearer hf_env");
}

TEST_F(DownloadCommand, OfflineOnlyTheCachesAreLookedInto) {
  const std::map<std::string, std::string> offline = {{"HF_HUB_OFFLINE", "1"}};
  expect_error(run_at({"download", "org/tiny"}, offline), 4,
               {"org/tiny is not there, and HF_HUB_OFFLINE forbids", "hint: "});
  EXPECT_TRUE(hub_.requests().empty());
  ASSERT_EQ(run_at({"download", "org/tiny"}).exit_code, 0);
  hub_.forget_requests();
  const ProgramResult found = run_at({"download", "org/tiny"}, offline);
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("/snapshots/" + hub_.commit));
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(DownloadCommand, BadFlags) {
  expect_error(run_at({"download"}), 2, {"what to fetch is missing", "hint: danlu download"});
  expect_error(run_at({"download", "--model", "a/b", "--dataset", "c/d"}), 2, {"one is fetched"});
  expect_error(run_at({"download", "nonsense/a/b"}), 2, {"no name of a repository"});
  expect_error(run_at({"download", "a/b"}, {{"HF_ENDPOINT", "hf-mirror"}}), 2, {"not an address"});
}

// --- names in other commands ---------------------------------------------------------------------

TEST_F(DownloadCommand, AModelsNameSaysWhatToTypeIsFetchedOrIsFound) {
  const std::vector<std::vector<std::string>> lines = {
      {"tokenize", "--model", "org/tiny", "hi"},
      {"plan", "--model", "org/tiny", "--batch_size", "1", "--max_length", "16"},
      {"convert", "org/tiny", "mg", "--to", "mcore"},
      {"inspect", "org/tiny"},
      {"infer", "--model", "org/tiny", "--prompt", "hi", "--max_new_tokens", "1"}};
  for (const std::vector<std::string>& line : lines) {
    const ProgramResult missing = run_at(line);
    expect_error(missing, 4,
                 {"org/tiny", "looked in ",
                  "danlu download org/tiny --hub hf fetches it, and so does --download"});
  }
  EXPECT_TRUE(hub_.requests().empty()) << "fetched without being asked";
  std::vector<std::string> fetching = lines.front();
  fetching.insert(fetching.begin() + 1, "--download");
  const ProgramResult fetched = run_at(fetching);
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_THAT(fetched.err, HasSubstr("it is fetched from Hugging Face (" + hub_.url() + ")"));
  hub_.forget_requests();
  for (const std::vector<std::string>& line : lines) {
    const ProgramResult found = run_at(line);
    EXPECT_EQ(found.exit_code, 0) << line.front() << found.err;
  }
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(DownloadCommand, ALineOfMsSwiftFetchesFromModelScopeUnlessUseHf) {
  const std::vector<std::string> line = {
      "sft",        "--model_type", "qwen1half-0_5b-chat", "--dataset", good("good.jsonl"),
      "--sft_type", "lora",         "--output_dir",        "run",       "--dry_run"};
  hub_.id = "qwen/Qwen1.5-0.5B-Chat";
  const ProgramResult from_modelscope = run_at(line);
  EXPECT_THAT(from_modelscope.err, HasSubstr("it is fetched from ModelScope (" + hub_.url() + ")"));
  EXPECT_EQ(from_modelscope.exit_code, 0) << from_modelscope.err;
  EXPECT_FALSE(asked_huggingface());
  hub_.id = "Qwen/Qwen1.5-0.5B-Chat";
  const ProgramResult from_hf =
      run_at(line, {{"USE_HF", "1"}, {"MODELSCOPE_CACHE", ((*this) / "none").string()}});
  EXPECT_THAT(from_hf.err, HasSubstr("it is fetched from Hugging Face"));
  EXPECT_EQ(from_hf.exit_code, 0) << from_hf.err;
}

}  // namespace
}  // namespace danlu::test
