// `danlu download` as it is typed, and names of models in other commands, against a fake hub.
#include <csignal>
#include <fstream>

#include "cli/bad_input.h"
#include "cli/guide_lines.h"
#include "support/fake_hub.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAnatomy = "fox?,a,b,c,d,B\ndog?,a,b,c,d,A\n";

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

// --- what the guides print -----------------------------------------------------------------------

TEST_F(DownloadCommand, GuideEsLinesWithItsMirror) {
  DANLU_REQUIRES_SHARED();
  const std::string guide = "e_mindspeed_llm_guide.txt";
  const auto lines = commands_of(guide, "huggingface-cli download");
  ASSERT_EQ(lines.size(), 2u);
  const auto exports = commands_of(guide, "export HF_");
  ASSERT_EQ(exports.size(), 2u);
  std::map<std::string, std::string> environment;
  for (const std::string& line : exports) {
    Words words = words_of(line);
    words.erase(words.begin());
    environment.merge(environment_of(words));
  }
  EXPECT_EQ(environment["HF_ENDPOINT"], "https://hf-mirror.com");
  environment["HF_ENDPOINT"] = hub_.url();
  for (const std::string& line : lines) {
    hub_.forget_requests();
    Words words = words_of(line);
    ASSERT_EQ(words.size(), 5u) << line;
    hub_.id = words[2];
    words[4] = ((*this) / words[4].substr(1)).string();  // not into somebody's home
    words.insert(words.begin(), "download");
    const ProgramResult result = run_at(words, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_FALSE(asked_modelscope());
    expect_whole(words.back());
  }
}

TEST_F(DownloadCommand, SnapshotDownloadOfGuidesCAndE) {
  DANLU_REQUIRES_SHARED();
  for (const char* guide : {"c_mindspeed_llm_practice.txt", "e_mindspeed_llm_guide.txt"}) {
    const auto lines = commands_of(guide, "snapshot_download(");
    ASSERT_EQ(lines.size(), 1u);
    ASSERT_THAT(lines[0], HasSubstr(R"(("Qwen/Qwen1.5-0.5B", local_dir= "./"))"));
    hub_.id = "Qwen/Qwen1.5-0.5B";
    hub_.forget_requests();
    const ProgramResult result =
        run_at({"download", "--model", "Qwen/Qwen1.5-0.5B", "--local_dir", "./"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(asked_modelscope());
    expect_whole((*this) / "");
  }
}

TEST_F(DownloadCommand, AddressesThatGuideAGivesToGit) {
  DANLU_REQUIRES_SHARED();
  const auto lines = commands_of(kAlpacaGuide, "git lfs clone");
  ASSERT_EQ(lines.size(), 4u);
  for (const std::string& line : lines) {
    const std::string address = words_of(line).back();
    hub_.id = address.substr(address.find(".cn/") + 4);
    hub_.id.resize(hub_.id.size() - 4);  // .git
    hub_.forget_requests();
    const ProgramResult result = run_at({"download", address, "--local_dir", "a"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(asked_modelscope());
    EXPECT_FALSE(asked_huggingface());
    expect_whole((*this) / "a");
    fs::remove_all((*this) / "a");
  }
}

TEST_F(DownloadCommand, AddressesThatGuideCGivesToWget) {
  DANLU_REQUIRES_SHARED();
  const auto lines = commands_of("c_mindspeed_llm_practice.txt", "wget ");
  ASSERT_EQ(lines.size(), 11u);
  int64_t num_data_sets = 0;
  for (const std::string& line : lines) {
    const std::string address = words_of(line).at(1);
    const std::string resolve = "/resolve/main/", host = "https://huggingface.co/",
                      data_sets = "datasets/";
    const size_t at = address.find(resolve);
    std::string name = address.substr(host.size(), at - host.size());
    const std::string file = address.substr(at + resolve.size());
    const bool is_data_set = name.starts_with(data_sets);
    num_data_sets += is_data_set ? 1 : 0;
    hub_.id = is_data_set ? name.substr(data_sets.size()) : name;
    hub_.files = {{file, {"what is in " + file, true}}, {"other", {"other", false}}};
    const ProgramResult result = run_at({"download", address, "--local_dir", "a"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(content_of((*this) / "a" / file), "what is in " + file);
    EXPECT_FALSE(fs::exists((*this) / "a/other")) << "one file was asked for";
    EXPECT_EQ(hub_.requests_for("/api/datasets/").empty(), !is_data_set);
    hub_.forget_requests();
    fs::remove_all((*this) / "a");
    // As the guide has it, after `cd`: the next line reads the file by its name there.
    const std::string name_here = fs::path(file).filename();
    const ProgramResult here = run_at({"download", address});
    EXPECT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(here.out, name_here + "\n");
    EXPECT_EQ(content_of((*this) / name_here), "what is in " + file);
    EXPECT_FALSE(fs::exists((*this) / ".danlu-download"));
    hub_.forget_requests();
  }
  EXPECT_EQ(num_data_sets, 2);
}

TEST_F(DownloadCommand, AFilesAddressIsPutWhereWgetWould) {
  hub_.files["docs/c.txt"] = {"c", false};
  const std::string model = "https://huggingface.co/org/tiny",
                    address = model + "/resolve/main/docs/c.txt";
  ASSERT_EQ(run_at({"download", "-c", "-P", "there", address}).exit_code, 0);
  EXPECT_EQ(content_of((*this) / "there/c.txt"), "c");
  ASSERT_EQ(run_at({"download", "-O", "named/d.txt", address}).exit_code, 0);
  EXPECT_EQ(content_of((*this) / "named/d.txt"), "c");
  for (const char* directory : {"there", "named"})
    EXPECT_EQ(contents_below((*this) / directory).size(), 1u) << directory;
  ASSERT_EQ(run_at({"download", address}).exit_code, 0);
  EXPECT_EQ(content_of((*this) / "c.txt"), "c") << "without a word: where the line is typed";
  // The same again asks for nothing; a file of another content is nobody's to replace.
  EXPECT_EQ(run_at({"download", "-P", "there", address}).exit_code, 0);
  write("there/c.txt", "mine");
  expect_error(run_at({"download", "-P", "there", address}), 2, {"c.txt", "--force-download"});
  EXPECT_EQ(content_of((*this) / "there/c.txt"), "mine");
  expect_error(run_at({"download", "-O", "x", address, model + "/resolve/main/config.json"}), 2,
               {"names one file, and 2 are asked for"});
  expect_error(run_at({"download", address, model + "/resolve/main/other/c.txt"}), 2,
               {"2 of these files are called c.txt"});
  expect_error(run_at({"download", "-P", "x", model}), 2, {"is for the address of a file"});
  expect_error(run_at({"download", "-P", "x", "--local_dir", "y", address}), 2,
               {"both say where the file goes"});
}

TEST_F(DownloadCommand, AddressesOfManyKinds) {
  const std::string model = "https://huggingface.co/org/tiny";
  hub_.files["docs/a b.txt"] = {"a b", false};
  hub_.files["docs/c.txt"] = {"c", false};
  EXPECT_EQ(run_at({"download", model, "--local_dir", "page"}).exit_code, 0);
  expect_whole((*this) / "page");
  const auto got = [&](const Words& words, const std::string& folder) {
    Words line = {"download", "--local_dir", folder};
    line.insert(line.end(), words.begin(), words.end());
    const ProgramResult result = run_at(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> names;
    for (const auto& [name, content] : contents_below((*this) / folder))
      if (name.find("/.cache/") == name.npos) names.push_back(name);
    return names;
  };
  EXPECT_THAT(got({model + "/blob/main/docs/a%20b.txt?download=true"}, "file"),
              testing::ElementsAre(HasSubstr("docs/a b.txt")));
  EXPECT_THAT(got({model + "/tree/main/docs"}, "folder"),
              testing::UnorderedElementsAre(HasSubstr("docs/a b.txt"), HasSubstr("docs/c.txt")));
  EXPECT_THAT(got({model + "/resolve/main/config.json", model + "/resolve/main/docs/c.txt"}, "two"),
              testing::UnorderedElementsAre(HasSubstr("config.json"), HasSubstr("docs/c.txt")));
  EXPECT_THAT(got({hub_.url() + "/org/tiny/raw/main/docs/c.txt"}, "mirror"),
              testing::ElementsAre(HasSubstr("docs/c.txt")));
  for (const char* address : {"https://example.org/org/tiny", "https://huggingface.co/org",
                              "https://huggingface.co/spaces/org/tiny",
                              "https://huggingface.co/org/tiny/edit/main/README.md"})
    expect_error(run_at({"download", address}), 2, {address, "leads to no repository", "hint: "});
  expect_error(run_at({"download", model, "https://huggingface.co/org/other"}), 2,
               {"one is fetched at a time"});
}

// --- names in other commands ---------------------------------------------------------------------

TEST_F(DownloadCommand, AModelsNameSaysWhatToTypeIsFetchedOrIsFound) {
  fs::create_directories((*this) / "mmlu/test");
  write("mmlu/test/anatomy_test.csv", kAnatomy);
  const std::vector<std::vector<std::string>> lines = {
      {"tokenize", "--model", "org/tiny", "hi"},
      {"plan", "--model", "org/tiny", "--batch_size", "1", "--max_length", "16"},
      {"convert", "org/tiny", "mg", "--to", "mcore"},
      {"inspect", "org/tiny"},
      {"infer", "--model", "org/tiny", "--prompt", "hi", "--max_new_tokens", "1"},
      {"eval", "org/tiny", "--tasks", "mmlu_anatomy", "--data_dir", "mmlu"},
      {"eval", "--model", "hf", "--model_args", "pretrained=org/tiny", "--tasks", "mmlu_anatomy",
       "--data_dir", "mmlu"}};
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

TEST_F(DownloadCommand, ABenchmarksDataSaysWhatToTypeIsFetchedOrIsFound) {
  hub_.id = "cais/mmlu";
  hub_.files = {{"test/anatomy_test.csv", {kAnatomy, false}}, {"README.md", {"MMLU", false}}};
  const Words line = {"eval", good("model").string(), "--tasks", "mmlu_anatomy"};
  expect_error(run_at(line), 3,
               {"data of mmlu", "looked in ", "datasets--cais--mmlu",
                "danlu download --dataset cais/mmlu --hub hf fetches it, and so does --download",
                "--data_dir DIR"});
  EXPECT_TRUE(hub_.requests().empty()) << "fetched without being asked";
  Words fetching = line;
  fetching.push_back("--download");
  const ProgramResult fetched = run_at(fetching);
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_THAT(fetched.out, AllOf(HasSubstr("|anatomy|"), HasSubstr("|acc")));
  EXPECT_FALSE(hub_.requests_for("/api/datasets/cais/mmlu").empty());
  hub_.forget_requests();
  const ProgramResult found = run_at(line);
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(found.out, fetched.out);
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
