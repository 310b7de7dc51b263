// tests/hub/hub_test.h: a fake hub, a folder, and downloads between them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "hub/download.h"
#include "support/fake_hub.h"
#include "support/temporary_directory.h"

namespace danlu::hub {

using test::FakeHub;
using test::HubAnswer;
using test::HubRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// An honest hub with a model of three files, one of them large and in LFS; answers of status 0 in
/// a rule are the hub's own.
class HubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);
    std::string weights(300'000, '\0');
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i * i % 251);
    fake.files = {{"config.json", {"{\"model_type\": \"qwen2\"}\n"}},
                  {"model.safetensors", {weights, /*is_lfs=*/true}},
                  {"sub/notes.md", {"# notes\n"}}};
  }

  static std::string text_of(const std::filesystem::path& file) {
    std::stringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }

  /// Into the cache, unless the test names a local_dir.
  DownloadRequest request(Hub hub = Hub::kHuggingFace) const {
    return {.repository = {.hub = hub, .kind = Kind::kModel, .id = fake.id, .revision = {}},
            .client = {.hub = hub,
                       .endpoint = fake.url(),
                       .token = {},
                       .max_retries = 2,
                       .timeout_s = 5,
                       .backoff_s = 0.01},
            .cache = folder / "cache",
            .local_dir = {},
            .files = {},
            .include = {},
            .exclude = {},
            .workers = 3};
  }
  DownloadRequest local_request(Hub hub = Hub::kHuggingFace) const {
    DownloadRequest out = request(hub);
    out.local_dir = folder / "model";
    return out;
  }

  /// The error of a download, "" if there is none: its text and its hint.
  static std::string error_of(const DownloadRequest& request, ExitCode* code = nullptr) {
    try {
      download(request);
    } catch (const Error& error) {
      if (code) *code = error.code();
      return std::string(error.what()) + " | " + error.hint();
    }
    return {};
  }

  void expect_whole(const std::filesystem::path& directory) const {
    for (const auto& [name, file] : fake.files)
      EXPECT_EQ(text_of(directory / name), file.content) << name;
  }

  /// What `answer` gives for the file, and the hub's own answer for everything else.
  void for_file(const std::string& name, std::function<HubAnswer(const HubRequest&)> answer) {
    fake.rule = [name, answer = std::move(answer)](const HubRequest& request) {
      const bool is_file =
          request.path.ends_with("/resolve/0123456789abcdef0123456789abcdef01234567/" + name) ||
          request.target.find("FilePath=" + name) != std::string::npos;
      return is_file ? answer(request) : HubAnswer{.status = 0};
    };
  }

  /// Nothing that could be taken for a file of the model has been made.
  void expect_nothing_published(const std::filesystem::path& directory) const {
    std::error_code error;
    for (const auto& [name, file] : fake.files)
      EXPECT_FALSE(std::filesystem::exists(directory / name, error)) << name;
  }

  std::filesystem::path snapshot() const {
    return folder / "cache" / "models--org--tiny" / "snapshots" / fake.commit;
  }

  FakeHub fake;
  const test::TemporaryDirectory folder;
};

}  // namespace danlu::hub
