// `danlu init`, `verify` and `merge` through the program.
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/trained_adapter.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class ModelVerb : public TrainedAdapter {
 protected:
  ProgramResult init(const std::string& output, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"init", "--config", good("config.json"), "--output",
                                          output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string weights_of(const std::string& model) const {
    return content_of((*this) / model / "model.safetensors");
  }
  ProgramResult merge(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"merge", "--adapters", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string answer(const std::vector<std::string>& model) const {
    std::vector<std::string> arguments = {"infer", "--prompt", "fox?", "--max_new_tokens", "16"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
};

json header_of(const std::string& safetensors) {
  uint64_t length = 0;
  std::memcpy(&length, safetensors.data(), sizeof length);
  return json::parse(safetensors.substr(8, length));
}

/// Adds `change` to the first number of an F32 tensor of a safetensors file.
void perturb(const fs::path& file, const std::string& tensor, float change) {
  std::string bytes = content_of(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const json entry = header_of(bytes).at(tensor);
  ASSERT_EQ(entry.at("dtype"), "F32");
  char* place = bytes.data() + 8 + length + entry.at("data_offsets").at(0).get<uint64_t>();
  float value = 0;
  std::memcpy(&value, place, sizeof value);
  value += change;
  std::memcpy(place, &value, sizeof value);
  write_content(file, bytes);
}

// --- init --------------------------------------------------------------------------------------

TEST_F(ModelVerb, InitIsAFunctionOfItsSeed) {
  ASSERT_EQ(init("a", {"--seed", "7"}).exit_code, 0);
  ASSERT_EQ(init("b", {"--seed", "7"}).exit_code, 0);
  ASSERT_EQ(init("c", {"--seed", "8"}).exit_code, 0);
  EXPECT_EQ(weights_of("a"), weights_of("b"));
  EXPECT_NE(weights_of("a"), weights_of("c"));
}

TEST_F(ModelVerb, InitWritesWhatOtherReadersOpen) {
  ASSERT_EQ(init("made", {"--dtype", "bf16", "--tokenizer", good("tokenizer")}).exit_code, 0);
  EXPECT_THAT(run({"inspect", "made"}).out, HasSubstr("names and shapes fit config.json"));
  EXPECT_EQ(json::parse(content_of((*this) / "made/config.json"))["torch_dtype"], "bfloat16");
  if (std::system("python3 -c 'pass' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to check with";
  const std::string script = std::string(DANLU_SOURCE_DIR) + "/tests/weights/check_safetensors.py";
  const std::string listed = ((*this) / "listed.json").string();
  ASSERT_EQ(std::system(("python3 '" + script + "' '" +
                         ((*this) / "made/model.safetensors").string() + "' > '" + listed + "'")
                            .c_str()),
            0);
  const json tensors = json::parse(content_of(listed));
  EXPECT_EQ(tensors.at("lm_head.weight").at(0), "BF16");
  EXPECT_EQ(tensors.at("lm_head.weight").at(1), json({320, 32}));
}

TEST_F(ModelVerb, InitLeavesNothingWhereItFails) {
  write("in_the_way", "");
  expect_error(init("in_the_way/made"), 8, {"in_the_way"});
  expect_error(init("new/made", {"--tokenizer", "nowhere"}), 4, {"nowhere"});
  EXPECT_FALSE(fs::exists((*this) / "new"));
}

// --- verify ------------------------------------------------------------------------------------

class Verify : public ModelVerb {
 protected:
  fs::path copy_of_golden_model() const {
    // Not its modes: what is only read there is written here.
    fs::create_directory((*this) / "llama");
    fs::copy(shared_dir() / "golden" / "llama", (*this) / "llama");
    for (const auto& entry : fs::directory_iterator((*this) / "llama"))
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
    return (*this) / "llama";
  }
  ProgramResult verify(const fs::path& model, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"verify", model, "--golden",
                                          shared_dir() / "golden" / "llama" / "golden.safetensors"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(Verify, AnEqualModelPassesWithTheWorstTensorFirst) {
  DANLU_REQUIRES_SHARED();
  const ProgramResult result = verify(copy_of_golden_model(), {"--rows", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("verified: "));
  EXPECT_THAT(result.out, HasSubstr("hidden_states.1 "));
  EXPECT_THAT(result.out, Not(HasSubstr("above tolerance")));
  // The same differences are too large for a smaller tolerance, and the rows are those above it.
  const ProgramResult strict = verify((*this) / "llama", {"--rows", "3", "--tolerance", "1e-9"});
  EXPECT_EQ(strict.exit_code, 4) << strict.out;
  EXPECT_THAT(strict.out, HasSubstr("differs: "));
  EXPECT_THAT(strict.out, HasSubstr("… and "));
}

TEST_F(Verify, TheFirstLayerThatDeviatesIsNamed) {
  DANLU_REQUIRES_SHARED();
  const std::vector<std::pair<std::string, std::string>> places = {
      {"model.layers.1.mlp.down_proj.weight", "first deviation: layer 1"},
      {"model.layers.0.self_attn.v_proj.weight", "first deviation: layer 0"},
      {"lm_head.weight", "first deviation: head"}};
  for (const auto& [tensor, words] : places) {
    const fs::path model = copy_of_golden_model();
    perturb(model / "model.safetensors", tensor, 3.0f);
    const ProgramResult result = verify(model);
    EXPECT_EQ(result.exit_code, 4) << tensor << result.err;
    EXPECT_THAT(result.out, HasSubstr(words)) << tensor;
    EXPECT_THAT(result.out, HasSubstr("above tolerance"));
    fs::remove_all(model);
  }
}

TEST_F(Verify, WithAdaptersTheMergedModelIsComparedToo) {
  DANLU_REQUIRES_SHARED();
  const fs::path golden = shared_dir() / "golden";
  const auto with = [&](const std::vector<std::string>& adapters) {
    std::vector<std::string> arguments = {"verify",   golden / "llama",
                                          "--golden", golden / "lora_llama/golden.safetensors",
                                          "--rows",   "0"};
    arguments.insert(arguments.end(), adapters.begin(), adapters.end());
    return run(arguments);
  };
  const ProgramResult result = with({"--adapters", golden / "lora_llama"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nlogits_merged "));
}

TEST_F(Verify, AnswersOfOtherShapeOrNothingToCompareAreErrors) {
  expect_error(run({"verify", good("model"), "--golden", "none.safetensors"}), 8,
               {"none.safetensors"});
  expect_error(run({"verify", "--golden", "none.safetensors"}), 2, {"no model was given"});
  expect_error(run({"verify", good("model"), "--golden", good("model") / "model.safetensors"}), 4,
               {"nothing to compare", "input_ids"});
}

// --- merge -------------------------------------------------------------------------------------

TEST_F(ModelVerb, AMergedModelAnswersAsItsAdapterDid) {
  train_adapter();
  const ProgramResult result = merge({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // The base model and the place are found out.
  EXPECT_THAT(result.err, HasSubstr("wrote "));
  EXPECT_THAT(result.err, HasSubstr("next: danlu chat --model "));
  EXPECT_EQ(answer({"--model", "run-merged"}), answer({"--adapters", "run"}));
  EXPECT_NE(answer({"--model", "run-merged"}), answer({"--model", good("model")}));
}

TEST_F(ModelVerb, AMergeIsRoundedToTheStoredTypeAlone) {
  train_adapter();
  ASSERT_EQ(run({"convert", good("model"), "base16", "--to", "hf", "--dtype", "bf16"}).exit_code,
            0);
  const auto merged = [&](const std::string& output, const std::vector<std::string>& dtype) {
    std::vector<std::string> arguments = {"--model", "base16", "--output", output};
    arguments.insert(arguments.end(), dtype.begin(), dtype.end());
    const ProgramResult result = merge(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(merged("own", {}), HasSubstr("stored in BF16: logits move by up to "));
  EXPECT_THAT(merged("wide", {"--dtype", "fp32"}), Not(HasSubstr("stored in")));
  EXPECT_EQ(json::parse(content_of((*this) / "own/config.json"))["torch_dtype"], "bfloat16");
  EXPECT_EQ(json::parse(content_of((*this) / "wide/config.json"))["torch_dtype"], "float32");
  // The base is in bf16: had its sums been so, too, storing them as fp32 would add nothing.
  EXPECT_EQ(run({"diff", "own", "wide", "--tolerance", "0"}).exit_code, 4);
  for (const auto& [output, dtype] :
       std::vector<std::pair<std::string, std::string>>{{"own", "bf16"}, {"wide", "fp32"}}) {
    const ProgramResult made = run({"convert", "base16", "by_convert", "--to", "hf", "--adapters",
                                    "run", "--dtype", dtype, "--overwrite"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const ProgramResult same = run({"diff", output, "by_convert"});
    EXPECT_EQ(same.exit_code, 0) << same.out;
  }
}

TEST_F(ModelVerb, WhatNoModelComputesWithIsMergedByConvert) {
  const fs::path config = train_adapter() / "adapter_config.json";
  const json good_config = json::parse(content_of(config));
  // The hint's line as it is typed.
  const std::vector<std::string> convert = {"convert", good("model"), "made", "--to",
                                            "hf",      "--adapters",  "run",  "--overwrite"};
  for (const auto& [key, value, said] : std::vector<std::tuple<std::string, json, std::string>>{
           {"bias", "lora_only", "bias = \"lora_only\" is not supported"},
           {"fan_in_fan_out", true, "fan_in_fan_out is for transposed"}}) {
    json changed = good_config;
    changed[key] = value;
    write_content(config, changed.dump());
    expect_error(merge({"--output", "merged"}), 4,
                 {said, "danlu convert MODEL DIR --to hf --adapters ADAPTER merges it"});
    const ProgramResult made = run(convert);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
}

TEST_F(ModelVerb, AMergeAboveTheToleranceWritesNothing) {
  train_adapter();
  expect_error(merge({"--output", "merged", "--tolerance", "0"}), 4,
               {"above the tolerance 0", "nothing was written"});
  EXPECT_FALSE(fs::exists((*this) / "merged"));
}

TEST_F(ModelVerb, TheOutputIsLookedAtBeforeAnythingIsLoaded) {
  train_adapter();
  // A base that cannot be loaded: an error about the output means nothing was.
  const fs::path base = copy_model("base");
  fs::resize_file(base / "model.safetensors", 1000);
  fs::create_directory((*this) / "taken");
  write("taken/file", "");
  expect_error(merge({"--model", "base", "--output", "taken"}), 2,
               {"[--output] taken exists and is not empty", "--overwrite"});
  write("in_the_way", "");
  expect_error(merge({"--model", "base", "--output", "in_the_way/merged"}), 8,
               {"in_the_way", "Not a directory"});
  for (const char* input : {"base", "run"}) {
    expect_error(merge({"--model", "base", "--output", input, "--overwrite"}), 2,
                 {"holds the source"});
  }
  expect_error(merge({"--model", "base", "--output", "new/merged"}), 4, {"model.safetensors"});
  EXPECT_FALSE(fs::exists((*this) / "new"));
}

TEST_F(ModelVerb, AnAdapterOnAnotherBaseIsNamed) {
  train_adapter();
  copy_model("other");
  const auto said = HasSubstr("run: the adapter was trained on " + good("model").string() +
                              "; here it is put on ");
  const ProgramResult merged = merge({"--model", "other", "--output", "merged"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_THAT(merged.err, said);
  const auto ask_with = [&](const fs::path& model) {
    return run({"infer", "--model", model, "--adapters", "run", "--prompt", "fox?",
                "--max_new_tokens", "1"})
        .err;
  };
  EXPECT_THAT(ask_with("other"), said);
  EXPECT_THAT(ask_with(good("model")), Not(said));
  // What it names is on another machine: a hub's cache has directories of its own.
  replace_in_file((*this) / "run/adapter_config.json", good("model").string(), "Qwen/Tiny1.5");
  EXPECT_THAT(ask_with("other"), HasSubstr("trained on Qwen/Tiny1.5; here it is put on other"));
  for (const char* place : {"models--Qwen--Tiny1.5/snapshots/1", "modelscope/Qwen/Tiny1___5"}) {
    fs::create_directories(((*this) / place).parent_path());
    fs::copy((*this) / "other", (*this) / place, fs::copy_options::recursive);
    EXPECT_THAT(ask_with(place), Not(HasSubstr("here it is put on")));
  }
}

TEST_F(ModelVerb, MergeReadsAConfigurationFile) {
  train_adapter();
  write("merge.yaml", "model_name_or_path: " + good("model").string() +
                          "\nadapter_name_or_path: run\nexport_dir: merged\n");
  const ProgramResult result = run({"merge", "merge.yaml"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists((*this) / "merged/config.json"));
}

TEST_F(ModelVerb, MergingTheSameAdapterTwiceWarns) {
  train_adapter();
  const ProgramResult first = merge({"--output", "once"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("already holds")));
  const json record = json::parse(content_of((*this) / "once/args.json"));
  ASSERT_EQ(record.at("merged_adapters").size(), 1u);
  EXPECT_EQ(record["merged_adapters"][0]["base"], good("model").string());

  const ProgramResult second = merge({"--model", "once", "--output", "twice"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("warning: once already holds this adapter"));
  EXPECT_EQ(json::parse(content_of((*this) / "twice/args.json")).at("merged_adapters").size(), 2u);
  const ProgramResult asked = run({"infer", "--model", "once", "--adapters", "run", "--prompt",
                                   "fox?", "--max_new_tokens", "1"});
  EXPECT_THAT(asked.err, HasSubstr("already holds this adapter"));
}

TEST_F(ModelVerb, TheTemplateOfTrainingStaysWithTheMergedModel) {
  train_adapter({"--template", "default"});
  ASSERT_EQ(merge({"--output", "merged"}).exit_code, 0);
  const ProgramResult asked =
      run({"infer", "--model", "merged", "--prompt", "fox?", "--max_new_tokens", "16"});
  EXPECT_THAT(asked.err, HasSubstr("template: default, from merged/args.json"));
  const auto with = [&](const std::string& name) {
    return run({"infer", "--model", "merged", "--prompt", "fox?", "--prompt-type", name});
  };
  EXPECT_EQ(prompt_tokens(asked), prompt_tokens(with("default")));
  EXPECT_NE(prompt_tokens(asked), prompt_tokens(with("chatml")));
  // The model's own template is no news.
  fs::remove_all((*this) / "run");
  train_adapter();
  ASSERT_EQ(merge({"--output", "plain"}).exit_code, 0);
  EXPECT_THAT(run({"infer", "--model", "plain", "--prompt", "fox?", "--max_new_tokens", "1"}).err,
              Not(HasSubstr("template: ")));
}

TEST_F(ModelVerb, TemplatesOfFilesAreCopiedBesideTheMergedModel) {
  write("mine.jinja",
        "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}");
  // A rate at which rounding alone stays far below what merging allows.
  train_adapter({"--template", "mine.jinja", "--lr", "0.03"});
  const std::string adapted = answer({"--adapters", "run"});
  const ProgramResult merged = merge({"--output", "merged"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  fs::remove((*this) / "mine.jinja");
  EXPECT_EQ(answer({"--model", "merged"}), adapted);
  // The run names a file that is gone now: said, not passed over.
  expect_error(run({"infer", "--adapters", "run", "--prompt", "fox?"}), 4,
               {"args.json", "mine.jinja", "hint: name the template with --template"});
}

}  // namespace
}  // namespace danlu::test
