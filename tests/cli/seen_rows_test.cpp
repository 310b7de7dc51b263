// Trainings whose rows name pictures and videos in every way, and damage that only decoding finds.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "cli/own_folder.h"
#include "cli/seeing_model.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using ::testing::HasSubstr;

std::string base64_of(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

class SeenRows : public OwnFolder {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    seeing_ = make_seeing_model(*this / "");
  }
  static std::filesystem::path media(const std::string& name) {
    return shared_dir() / "golden/vl" / name;
  }
  /// Two rows, each with this before its question and these columns.
  std::string rows_with(const std::string& tag, const json& columns) const {
    std::string lines;
    for (const char* answer : {"dog 7", "fox 14"}) {
      json row = columns;
      row["messages"] = {{{"role", "user"}, {"content", tag + "the lazy fox?"}},
                         {{"role", "assistant"}, {"content", answer}}};
      lines += row.dump() + "\n";
    }
    return lines;
  }
  ProgramResult train(const std::string& run_name, const std::string& rows,
                      const std::vector<std::string>& more = {}) const {
    write(run_name + ".jsonl", rows);
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      seeing_.model,
                                      "--dataset",
                                      run_name + ".jsonl",
                                      "--output_dir",
                                      run_name,
                                      "--no-version-dir",
                                      "--plot_loss",
                                      "false",
                                      "--tuner",
                                      "full",
                                      "--freeze_vit",
                                      "false",
                                      "--dtype",
                                      "fp32",
                                      "--max_steps",
                                      "2",
                                      "--batch_size",
                                      "2",
                                      "--val_ratio",
                                      "0",
                                      "--max_length",
                                      "400",
                                      "--logging_steps",
                                      "1",
                                      "--warmup_ratio",
                                      "0",
                                      "--lr",
                                      "0.01",
                                      "--device",
                                      "cpu",
                                      "--cache_dir",
                                      "cache"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  SeeingModel seeing_;
};

TEST_F(SeenRows, APictureTrainsTheSameHoweverItIsNamed) {
  const std::filesystem::path file = media("rows/media/a.png");
  const std::string base64 = base64_of(content_of(file));
  const ProgramResult named = train("named", rows_with("<image>", {{"images", {file}}}));
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.err, HasSubstr(" visual + "));
  const auto steps = steps_of(*this / "named");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_GT(steps[0].at("visual_tokens_per_second"), 0);
  EXPECT_GT(steps[0].at("text_tokens_per_second"), 0);
  const json others = {{{"image", "data:image/png;base64," + base64}},
                       {{"images", {{{"bytes", base64}, {"path", "a.png"}}}}},
                       {{"images", {"file://" + file.string()}}}};
  for (size_t i = 0; i < others.size(); ++i) {
    const std::string name = "other" + std::to_string(i);
    const ProgramResult other = train(name, rows_with("<image>", others[i]));
    ASSERT_EQ(other.exit_code, 0) << other.err;
    const auto got = steps_of(*this / name);
    for (size_t step = 0; step < steps.size(); ++step) {
      EXPECT_EQ(got.at(step).at("loss"), steps[step].at("loss")) << name;
      EXPECT_EQ(got.at(step).at("grad_norm"), steps[step].at("grad_norm")) << name;
    }
  }
}

TEST_F(SeenRows, FilesOfVideosAreTrainedOn) {
  for (const char* name : {"clip.mp4", "clip.webm", "clip.mkv", "clip.gif"}) {
    const ProgramResult result =
        train(name, rows_with("<video>", {{"videos", {media("video") / name}}}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("[VIDEO 1] "));
    EXPECT_THAT(result.err, HasSubstr("2 read, 2 kept"));
    const auto steps = steps_of(*this / name);
    EXPECT_LT(steps.at(1).at("loss"), steps.at(0).at("loss")) << name;
  }
}

TEST_F(SeenRows, ATowerIsTrainedWholeBesideAdapters) {
  const std::string rows = rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  // Adapters change nothing before they have learnt, so the tower's first gradients are the same.
  const std::vector<std::string> once = {"--max_steps",      "1",    "--max_grad_norm", "0",
                                         "--freeze_aligner", "false"};
  const auto with = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), once.begin(), once.end());
    const ProgramResult result = train(name, rows, more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  };
  with("whole", {"--freeze_llm", "true"});
  with("beside", {"--tuner", "lora_llm", "--lora_dropout", "0", "--merge_lora", "true"});
  const ProgramResult compared = run({"diff", "whole", "beside-merged", "--json"});
  const json found = json::parse(compared.out);
  size_t of_tower = 0, of_decoder = 0;
  for (const json& tensor : found.at("differences")) {
    const std::string name = tensor.at("name");
    ++(name.find("visual.") == std::string::npos ? of_decoder : of_tower);
  }
  EXPECT_EQ(of_tower, 0u) << compared.out;
  EXPECT_GT(of_decoder, 5u) << compared.out;
}

TEST_F(SeenRows, ADamagedPictureDropsItsRow) {
  std::string png = content_of(media("rows/media/a.png"));
  for (size_t i = png.size() / 2; i < png.size() / 2 + 40; ++i) png[i] = '\0';
  write("broken.png", png);
  const std::string rows = rows_with("<image>", {{"images", {"broken.png"}}}) +
                           rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  const ProgramResult result = train("broken", rows);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 read, 2 kept, 2 dropped"));
  EXPECT_THAT(result.err, HasSubstr("2 damaged file (broken.jsonl:1: "));
  EXPECT_THAT(result.err, HasSubstr("broken.png: damaged picture: the checksum of IDAT is wrong"));
  EXPECT_EQ(train("strict", rows, {"--strict"}).exit_code, 3);
}

/// A JPEG whose tables of codes are none.
std::string broken_tables(std::string jpeg) {
  const size_t table = jpeg.find("\xff\xc4");
  for (size_t i = table + 5; i < table + 21; ++i) jpeg.at(i) = '\xff';
  return jpeg;
}

TEST_F(SeenRows, BrokenTablesAndVideosDropTheirRows) {
  write("broken.jpg", broken_tables(content_of(media("rows/media/b.jpg"))));
  std::string video = content_of(media("video/clip.mp4"));
  for (size_t i = 0; i < 400; ++i) video.at(video.size() * 10 / 24 + i) = static_cast<char>(i * 41);
  write("broken.mp4", video);
  const ProgramResult result =
      train("broken",
            rows_with("<image>", {{"images", {"broken.jpg"}}}) +
                rows_with("<video>", {{"videos", {"broken.mp4"}}}) +
                rows_with("<image>", {{"images", {media("rows/media/b.jpg")}}}),
            {"--max_dropped_ratio", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("6 read, 2 kept, 4 dropped"));
  EXPECT_THAT(result.err, HasSubstr("4 damaged file (broken.jsonl:1: "));
  EXPECT_THAT(result.err, HasSubstr("broken.jpg: damaged picture"));
}

TEST_F(SeenRows, AFileThatBreaksAfterItsTokensWereMadeIsNamedWithItsRow) {
  const std::string good = content_of(media("rows/media/b.jpg"));
  const std::string rows = rows_with("<image>", {{"images", {"later.jpg"}}});
  write("later.jpg", good);
  const ProgramResult before = train("later", rows, {"--max_steps", "1"});
  ASSERT_EQ(before.exit_code, 0) << before.err;
  write("later.jpg", broken_tables(good));
  const ProgramResult result = train("later", rows, {"--overwrite_output_dir"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("error: later.jsonl: row "));
  EXPECT_THAT(result.err, HasSubstr("later.jpg: damaged picture"));
}

TEST_F(SeenRows, WhatWasTunedOnSmallPicturesIsAskedAboutSmallOnes) {
  const std::string picture = media("rows/media/b.jpg");
  const ProgramResult tuned =
      train("small", rows_with("<image>", {{"images", {picture}}}), {"--max_pixels", "6400"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const auto asked = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"infer", "--model",  "small/checkpoint-2", "--image",
                                      picture, "--prompt", "the lazy fox?",      "--max_new_tokens",
                                      "8",     "-v"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const ProgramResult silent = asked({}), small = asked({"--max_pixels", "6400"}),
                      large = asked({"--max_pixels", "100000"});
  ASSERT_EQ(silent.exit_code, 0) << silent.err;
  EXPECT_THAT(silent.err, HasSubstr("pictures as in the run"));
  EXPECT_THAT(silent.err, HasSubstr("--max_pixels 6400"));
  EXPECT_EQ(silent.out, small.out);
  EXPECT_THAT(large.err, testing::Not(HasSubstr("pictures as in the run")));
}

TEST_F(SeenRows, ANullColumnIsARowWithoutPictures) {
  const ProgramResult result = train(
      "null", rows_with("<image>", {{"images", nullptr}}) + rows_with("", {{"images", nullptr}}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("4 read, 2 kept, 2 dropped"));
  EXPECT_THAT(result.err, HasSubstr("differ in number"));
}

TEST_F(SeenRows, MegatronsFormIsRefusedBeforeTheTraining) {
  const ProgramResult result =
      train("mcore", rows_with("", {{"images", nullptr}}), {"--save_format", "mcore"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has no place for a vision tower"));
}

TEST_F(SeenRows, AProcessorOfAnotherTowerIsRefused) {
  const fs::path file = fs::path(seeing_.model) / "preprocessor_config.json";
  json config = json::parse(content_of(file));
  config["merge_size"] = 4;
  std::ofstream(file) << config;
  const ProgramResult result =
      train("other", rows_with("<image>", {{"images", {media("rows/media/a.png")}}}));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("merge_size is 4, and the model's vision tower has 2"));
  fs::remove(file);
  const ProgramResult none =
      train("none", rows_with("<image>", {{"images", {media("rows/media/a.png")}}}));
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("has no preprocessor_config.json"));
}

TEST_F(SeenRows, WithoutThreadsAheadTheNumbersAreTheSame) {
  const std::string rows = rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  const ProgramResult usual = train("usual", rows),
                      none = train("none", rows, {"--dataloader_num_workers", "0"});
  ASSERT_EQ(usual.exit_code, 0) << usual.err;
  ASSERT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(steps_of(*this / "none").at(1).at("loss"), steps_of(*this / "usual").at(1).at("loss"));
}

TEST_F(SeenRows, AdaptersAreSpokenOfWhereThereAreAny) {
  const std::string rows = rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  const ProgramResult full = train("full", rows);
  EXPECT_THAT(full.err, HasSubstr("finished 2 steps"));
  EXPECT_THAT(full.err, testing::Not(HasSubstr("adapters on the vision tower")));
  const ProgramResult lora = train("lora", rows, {"--tuner", "lora"});
  // Two blocks: attn.qkv, attn.proj and the three matrices of the MLP.
  EXPECT_THAT(lora.err, HasSubstr("adapters on the vision tower too: 10 linear layers there"));
}

// PEFT and LLaMA-Factory (model_utils/visual.py): names choose modules that have them, in the tower
// as elsewhere. The decoder has q_proj and gate_proj, the tower's two blocks gate_proj alone.
TEST_F(SeenRows, NamedTargetsChooseLayersOfTheTowerByTheirNames) {
  const std::string rows = rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  const auto adapted = [&](const std::string& name, const std::string& targets) {
    const ProgramResult result =
        train(name, rows, {"--tuner", "lora", "--lora_target", targets, "--max_steps", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(adapted("none", "q_proj,v_proj"), HasSubstr("no adapters on the vision tower"));
  EXPECT_THAT(adapted("gates", "q_proj,gate_proj"),
              HasSubstr("adapters on the vision tower too: 2 linear layers there"));
}

// ms-swift (optimizers/multimodal.py) leaves such a group empty.
TEST_F(SeenRows, TheRateOfAFrozenPartIsNoError) {
  const std::string rows = rows_with("<image>", {{"images", {media("rows/media/a.png")}}});
  const ProgramResult result = train("frozen", rows,
                                     {"--freeze_vit", "true", "--max_steps", "1", "--vit_lr",
                                      "1e-5", "--aligner_lr", "1e-5", "-v"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--vit_lr has no effect"));
  EXPECT_THAT(result.err, HasSubstr("--aligner_lr has no effect"));
}

TEST_F(SeenRows, MissingFilesPointToTheFolderOfPictures) {
  const std::string rows = rows_with("<image>", {{"images", {"a.png"}}});
  const ProgramResult lost = train("lost", rows);
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.err, HasSubstr("2 rows: missing file"));
  EXPECT_THAT(lost.err, HasSubstr("hint: --media_dir says where relative paths of pictures begin"));
}

}  // namespace
}  // namespace danlu::test
