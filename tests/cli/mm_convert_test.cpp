// `danlu mm-convert` as users type it: the guide's lines, every way of writing its lists, cutting
// anew, and what goes wrong; the same format by `danlu convert`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/own_folder.h"
#include "cli/vision_model_dir.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace mm_convert_test {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class MmConvert : public OwnFolder {
 protected:
  /// hf_to_mm of "hf" into `to`, cut as `layers` and `blocks` say.
  Words to_mm(const std::string& to, const std::string& layers, const std::string& blocks,
              const std::string& tp = "1") const {
    return {"mm-convert",
            "Qwen2_5_VLConverter",
            "hf_to_mm",
            "--cfg.mm_dir",
            to,
            "--cfg.hf_config.hf_dir",
            "hf",
            "--cfg.parallel_config.llm_pp_layers",
            layers,
            "--cfg.parallel_config.vit_pp_layers",
            blocks,
            "--cfg.parallel_config.tp_size",
            tp};
  }
  /// Nothing is written or changed.
  void expect_refused(const Words& words, int exit_code, const Words& texts) const {
    const auto before = contents_below(folder_);
    expect_error(run(words), exit_code, texts);
    EXPECT_EQ(contents_below(folder_), before);
  }
};

/// The lines of the guide that begin with mm-convert, as a shell splits them: quotes taken off.
std::vector<Words> guide_mm_lines() {
  std::istringstream text(content_of(shared_dir() / "guides/d_mindspeed_mm.txt"));
  std::vector<Words> lines;
  std::string line;
  bool goes_on = false;
  while (std::getline(text, line)) {
    if (line.starts_with("mm-convert")) lines.emplace_back();
    if (!goes_on && !line.starts_with("mm-convert")) continue;
    goes_on = line.ends_with('\\');
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      std::erase(word, '"');
      if (word != "\\") lines.back().push_back(word);
    }
  }
  return lines;
}

TEST_F(MmConvert, TheGuidesLinesRunAsTyped) {
  DANLU_REQUIRES_SHARED();
  const std::vector<Words> lines = guide_mm_lines();
  ASSERT_EQ(lines.size(), 2u);
  write_vision_model(*this / "ckpt/hf_path/Qwen2-VL-2B-Instruct", {.tied = true});
  ok(lines[0]);
  EXPECT_EQ(
      content_of(*this / "ckpt/mm_path/Qwen2-VL-2B-Instruct/latest_checkpointed_iteration.txt"),
      "release");
  EXPECT_TRUE(fs::exists(
      *this / "ckpt/mm_path/Qwen2-VL-2B-Instruct/release/mp_rank_00/model_optim_rng.pt"));
  expect_same("ckpt/mm_path/Qwen2-VL-2B-Instruct", "ckpt/hf_path/Qwen2-VL-2B-Instruct");

  // What was trained in four stages goes back.
  write_vision_model(*this / "ckpt/hf_path/Qwen2-VL-7B-Instruct", {.in_two_files = true});
  Words cut = lines[0];
  for (std::string& word : cut) {
    if (const size_t at = word.find("2B"); at != word.npos) word.replace(at, 2, "7B");
    if (word == "[[28]]") word = "[[1,10,10,7]]";
    if (word == "[[32]]") word = "[[32,0,0,0]]";
  }
  ok(cut);
  ok(lines[1]);
  const std::string hf = "ckpt/hf_path/Qwen2-VL-7B-Instruct/",
                    back = "ckpt/mm_to_hf/Qwen2-VL-7B-Instruct/";
  expect_same(back, hf);
  for (const char* file : {"config.json", "preprocessor_config.json"})
    EXPECT_EQ(content_of(*this / (back + file)), content_of(*this / (hf + file))) << file;
  // In the files that the original has, each tensor where that has it.
  const std::string index = "model.safetensors.index.json";
  EXPECT_EQ(nlohmann::json::parse(content_of(*this / (back + index)))["weight_map"],
            nlohmann::json::parse(content_of(*this / (hf + index)))["weight_map"]);
  EXPECT_THAT(ok(lines[1]).err, HasSubstr("up to date"));
}

/// MindSpeed-MM's parser can be told to read variables and files.
TEST_F(MmConvert, AFileOfKeysIsReadAndVariablesAreSaidNotToBe) {
  write_vision_model(*this / "hf", {.is_2_5 = true, .layers = 3, .blocks = 2});
  write("keys.yaml",
        "cfg:\n  mm_dir: from_file\n  hf_config:\n    hf_dir: hf\n  parallel_config:\n"
        "    llm_pp_layers: [[3]]\n    vit_pp_layers: [[2]]\n    tp_size: 1\n");
  const ProgramResult result = run_danlu(
      {"mm-convert", "Qwen2_5_VLConverter", "hf_to_mm", "--config", "keys.yaml"},
      {.environment = {{"MM_CONVERT_CFG__MM_DIR", "from_variable"}}, .directory = folder_.path()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("warning: MM_CONVERT_CFG__MM_DIR is set, and variables are not"));
  expect_same("from_file", "hf");
  EXPECT_FALSE(fs::exists(*this / "from_variable"));
}

TEST_F(MmConvert, ListsAreReadHoweverAShellLeavesThem) {
  write_vision_model(*this / "hf", {.is_2_5 = true, .layers = 4, .blocks = 3});
  int number = 0;
  std::string first;
  for (const auto& [layers, blocks] :
       {std::pair{"[[1,3]]", "[[3,0]]"}, std::pair{"[1,3]", "[3,0]"}, std::pair{"1,3", "3,0"},
        std::pair{"[ [1, 3] ]", "'[[3, 0]]'"}, std::pair{"\"[1, 3]\"", "[3 ,0]"}}) {
    const std::string to = "mm" + std::to_string(number++);
    ok(to_mm(to, layers, blocks));
    const std::string rank =
        content_of(*this / (to + "/release/mp_rank_00_001/model_optim_rng.pt"));
    if (first.empty()) first = rank;
    EXPECT_EQ(rank, first) << layers;
  }
  Words unquoted = to_mm("unquoted", "[[1,", "[[3,");
  unquoted.insert(unquoted.begin() + 9, "3]]");
  unquoted.insert(unquoted.begin() + 12, "0]]");
  ok(unquoted);
  EXPECT_EQ(content_of(*this / "unquoted/release/mp_rank_00_001/model_optim_rng.pt"), first);
  // In a file: nested as jsonargparse has it.
  write_content(*this / "line.yaml",
                "cfg:\n  mm_dir: by_file\n  hf_config:\n    hf_dir: hf\n  parallel_config:\n"
                "    llm_pp_layers: [[1, 3]]\n    vit_pp_layers: [[3, 0]]\n    tp_size: 1\n");
  const Words by_file = {"mm-convert", "Qwen2_5_VLConverter", "hf_to_mm", "--config", "line.yaml"};
  ok(by_file);
  EXPECT_EQ(content_of(*this / "by_file/release/mp_rank_00_001/model_optim_rng.pt"), first);
  Words shown = by_file;
  shown.push_back("--print_config");
  write_content(*this / "again.yaml", ok(shown).out);
  EXPECT_THAT(ok({"mm-convert", "--config", "again.yaml"}).err, HasSubstr("up to date"));
}

TEST_F(MmConvert, ACheckpointIsCutAgainAndGoesBack) {
  write_vision_model(*this / "hf", {.is_2_5 = true, .layers = 4, .blocks = 3, .newer_names = true});
  ok(to_mm("a", "[[4]]", "[[3]]"));
  Words line = {"mm-convert",
                "Qwen2_5_VLConverter",
                "resplit",
                "--cfg.source_dir",
                "a",
                "--cfg.target_dir",
                "b",
                "--cfg.source_parallel_config.llm_pp_layers",
                "[4]",
                "--cfg.source_parallel_config.vit_pp_layers",
                "[3]",
                "--cfg.target_parallel_config.llm_pp_layers",
                "[[0,1],[2,1]]",
                "--cfg.target_parallel_config.vit_pp_layers",
                "[[2,1],[0,0]]",
                "--cfg.target_parallel_config.tp_size",
                "2"};
  ok(line);
  for (const char* rank : {"00_000", "00_001", "01_000", "01_001"})
    EXPECT_TRUE(fs::exists(*this / ("b/release/mp_rank_" + std::string(rank))));
  expect_same("b", "hf");
  EXPECT_THAT(ok({"inspect", "b"}).out,
              testing::AllOf(HasSubstr("MindSpeed-MM"), HasSubstr("(layers [0,1],[2,1])"),
                             HasSubstr("vision      3 blocks")));
  // Without config.json beside it, as MindSpeed-MM leaves it, hf_dir says what it is.
  fs::remove(*this / "b/config.json");
  line[4] = "b", line[6] = "c";
  line.erase(line.begin() + 7, line.begin() + 11);
  expect_refused(line, 4, {"config.json"});
  line.insert(line.end(), {"--cfg.hf_config.hf_dir", "hf"});
  ok(line);
  ok({"convert", "c", "back", "--to", "hf"});
  expect_same("back", "hf");
  EXPECT_THAT(ok({"inspect", "back"}).out, HasSubstr("visual.blocks.*.attn.qkv.weight"));
}

TEST_F(MmConvert, ConvertKnowsTheFormatToo) {
  write_vision_model(*this / "hf", {.layers = 4, .blocks = 3, .tied = true});
  ok({"convert", "hf", "lists", "--to", "mm", "--llm_pp_layers", "0,4", "--vit_pp_layers", "3,0"});
  ok({"convert", "lists", "even", "--to", "mm", "--pp", "2", "--tp", "2"});
  ok({"convert", "even", "native", "--to", "native", "--tp", "2"});
  ok({"convert", "native", "back", "--to", "hf"});
  expect_same("back", "hf");
  expect_refused({"convert", "even", "x", "--to", "mcore"}, 4, {"vision tower", "--to mm"});
  expect_refused({"convert", "hf", "x", "--to", "mm", "--with_optimizer"}, 4, {"optimizer"});
  expect_refused(
      {"convert", "hf", "x", "--to", "native", "--llm_pp_layers", "4", "--vit_pp_layers", "3"}, 2,
      {"--to mm"});
  expect_refused({"convert", "hf", "x", "--to", "mm", "--llm_pp_layers", "2,2", "--vit_pp_layers",
                  "3,0", "--pp", "4"},
                 2, {"--llm_pp_layers", "--pp"});
}

TEST_F(MmConvert, WhatCannotBeIsSaidAndNothingIsLost) {
  write_vision_model(*this / "hf", {.is_2_5 = true, .layers = 4, .blocks = 3});
  expect_refused(to_mm("x", "[[1,2]]", "[[3,0]]"), 2, {"[1,2]", "4 layers", "2 pipeline stages"});
  expect_refused(to_mm("x", "[[1,3]]", "[[2,0]]"), 2, {"[2,0]", "3 layers"});
  expect_refused(to_mm("x", "[[1,3]]", "[[3]]"), 2, {"equal lengths"});
  expect_refused(to_mm("x", "[[1,3],[0]]", "[[3,0]]"), 2, {"list of whole numbers"});
  expect_refused(to_mm("x", "[[4.5]]", "[[3]]"), 2, {"list of whole numbers", "4.5"});
  expect_refused(to_mm("x", "[[-4]]", "[[3]]"), 2, {"list of whole numbers"});
  expect_refused(to_mm("x", "[[]]", "[[3]]"), 2, {"list of whole numbers"});
  expect_refused(to_mm("x", "[[4]]", "[[3]]", "4"), 2, {"tensor parallel size 4", "2 KV groups"});
  expect_refused(to_mm("x", "[[4]]", "[[3]]", "0"), 2, {"tp_size"});
  Words line = to_mm("x", "[[4]]", "[[3]]");
  line[6] = "nowhere";
  expect_refused(line, 2, {"--cfg.hf_config.hf_dir", "nowhere"});
  line.erase(line.begin() + 5, line.begin() + 7);
  expect_refused(line, 2, {"hf_to_mm needs --cfg.hf_config.hf_dir"});
  line = to_mm("x", "[[4]]", "[[3]]");
  line[1] = "Qwen2VLConverter";
  expect_refused(line, 2, {"qwen2_5_vl", "Qwen2_5_VLConverter"});
  line[1] = "Qwen2_5VLConverter";
  expect_refused(line, 2, {"Qwen2_5_VLConverter"});
  line = to_mm("x", "[[4]]", "[[3]]");
  line.insert(line.end(), {"--cfg.save_hf_dir", "y"});
  expect_refused(line, 2, {"--cfg.save_hf_dir", "hf_to_mm"});
  line[2] = "hf_to_hf";
  expect_refused(line, 2, {"hf_to_mm"});

  ok(to_mm("mm", "[[1,3]]", "[[3,0]]"));
  expect_refused(to_mm("mm", "[[4]]", "[[3]]"), 2, {"mm", "exists", "--overwrite"});
  expect_refused(to_mm("hf", "[[4]]", "[[3]]"), 2, {"hf"});
  const auto back = [&](const std::string& layers, const std::string& tp) {
    return Words{"mm-convert",
                 "Qwen2_5_VLConverter",
                 "mm_to_hf",
                 "--cfg.mm_dir",
                 "mm",
                 "--cfg.hf_config.hf_dir",
                 "hf",
                 "--cfg.save_hf_dir",
                 "x",
                 "--cfg.parallel_config.llm_pp_layers",
                 layers,
                 "--cfg.parallel_config.vit_pp_layers",
                 "[3,0]",
                 "--cfg.parallel_config.tp_size",
                 tp};
  };
  expect_refused(back("[2,2]", "1"), 2, {"[[2,2]]", "[[1,3]]"});
  expect_refused(back("[1,3]", "2"), 2, {"tp_size", "says 2", "saved with 1"});
  write_vision_model(*this / "deeper", {.is_2_5 = true, .layers = 5, .blocks = 3});
  line = back("[1,3]", "1");
  line[6] = "deeper";
  expect_refused(line, 4, {"does not cut 5 layers"});
  fs::remove_all(*this / "mm/release/mp_rank_00_000");
  expect_refused(back("[1,3]", "1"), 4, {"mp_rank_00_000"});
}

}  // namespace mm_convert_test
}  // namespace danlu::test
