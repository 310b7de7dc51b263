// Adapters of ms-swift's tuner lora_llm, whose trained tower lies in a file of its own beside them.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "cli/seeing_model.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using ::testing::HasSubstr;

/// The tensors of a safetensors file that `renamed` gives a name, under that name, as such a file.
std::string chosen_tensors(const std::string& file,
                           const std::function<std::string(const std::string&)>& renamed) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const json header = json::parse(file.substr(sizeof length, length));
  json kept = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : header.items()) {
    const std::string new_name = name == "__metadata__" ? "" : renamed(name);
    if (new_name.empty()) continue;
    const size_t begin = tensor.at("data_offsets").at(0), end = tensor.at("data_offsets").at(1);
    kept[new_name] = tensor;
    kept[new_name]["data_offsets"] = {data.size(), data.size() + end - begin};
    data += file.substr(sizeof length + length + begin, end - begin);
  }
  const std::string text = kept.dump();
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data;
}

class TowerFile : public OwnFolder {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    seeing_ = make_seeing_model(*this / "");
  }
  ProgramResult train(const std::string& run_name, std::vector<std::string> more) const {
    std::vector<std::string> words = {"sft",
                                      "--model",
                                      seeing_.model,
                                      "--dataset",
                                      "rows.jsonl",
                                      "--dtype",
                                      "fp32",
                                      "--max_steps",
                                      "1",
                                      "--lr",
                                      "0.01",
                                      "--batch_size",
                                      "2",
                                      "--val_ratio",
                                      "0",
                                      "--max_length",
                                      "400",
                                      "--device",
                                      "cpu",
                                      "--plot_loss",
                                      "false",
                                      "--cache_dir",
                                      "cache",
                                      "--lora_dropout",
                                      "0",
                                      "--warmup_ratio",
                                      "0",
                                      "--no-version-dir",
                                      "--output_dir",
                                      run_name};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// An adapter of Danlu's own, which has its tower among the adapters, as ms-swift writes it.
  void split(const fs::path& from, const std::string& to) const {
    fs::create_directory(*this / to);
    const std::string all = content_of(from / "adapter_model.safetensors");
    const auto is_of_tower = [](const std::string& name) {
      return name.find(".visual.") != std::string::npos;
    };
    write(to + "/adapter_model.safetensors", chosen_tensors(all, [&](const std::string& name) {
            return is_of_tower(name) ? "" : name;
          }));
    // transformers since 4.52 calls the tower model.visual.
    write(to + "/vit.safetensors", chosen_tensors(all, [&](const std::string& name) {
            const std::string prefix = "base_model.model.";
            return is_of_tower(name) ? prefix + "model." + name.substr(prefix.size()) : "";
          }));
    json config = json::parse(content_of(from / "adapter_config.json"));
    config["modules_to_save"] = nullptr;
    write(to + "/adapter_config.json", config.dump());
  }
  /// The lines of a comparison of two models; none where they are equal.
  json differences(const std::string& a, const std::string& b) const {
    return json::parse(run({"diff", a, b, "--json"}).out).at("differences");
  }

  SeeingModel seeing_;
};

TEST_F(TowerFile, IsPartOfTheAdapterThatItLiesBeside) {
  json row = {{"images", {(shared_dir() / "golden/vl/rows/media/a.png").string()}},
              {"messages",
               {{{"role", "user"}, {"content", "<image>the lazy fox?"}},
                {{"role", "assistant"}, {"content", "dog 7"}}}}};
  write("rows.jsonl", row.dump() + "\n" + row.dump() + "\n");
  const ProgramResult tuned = train("own", {"--tuner", "lora_llm", "--merge_lora", "true"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  split(*this / "own/checkpoint-1", "swift");

  const ProgramResult merged =
      run({"merge", "--adapters", "swift", "--model", seeing_.model, "--output_dir", "merged"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(differences("own-merged", "merged").empty());
  EXPECT_FALSE(differences(seeing_.model, "merged").empty());

  const auto answer = [&](const std::string& adapters) {
    return run({"infer", "--model", seeing_.model, "--adapters", adapters, "--dataset",
                "rows.jsonl", "--max_new_tokens", "8", "--temperature", "0", "--device", "cpu"});
  };
  const ProgramResult own = answer("own/checkpoint-1"), swift = answer("swift");
  ASSERT_EQ(swift.exit_code, 0) << swift.err;
  EXPECT_EQ(own.out, swift.out);

  EXPECT_THAT(run({"inspect", "swift"}).out, HasSubstr("visual.patch_embed.proj"));

  // The same weights are gone on from, and the tower is trained on.
  for (const char* from : {"own/checkpoint-1", "swift"}) {
    const ProgramResult result =
        train(std::string(from) + "-on", {"--adapters", from, "--merge_lora", "true"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_TRUE(differences("own/checkpoint-1-on-merged", "swift-on-merged").empty());
  EXPECT_FALSE(differences("merged", "swift-on-merged").empty());
}

TEST_F(TowerFile, OfAnotherModelIsRefused) {
  write("rows.jsonl",
        R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
        "\n");
  const ProgramResult tuned = train("own", {"--tuner", "lora_llm"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  split(*this / "own/checkpoint-1", "swift");
  write("swift/vit.safetensors",
        chosen_tensors(content_of(*this / "own/checkpoint-1/adapter_model.safetensors"),
                       [](const std::string& name) {
                         return name.ends_with("visual.merger.mlp.0.weight")
                                    ? "base_model.model.model.visual.other.weight"
                                    : "";
                       }));
  const ProgramResult merged =
      run({"merge", "--adapters", "swift", "--model", seeing_.model, "--output_dir", "merged"});
  EXPECT_NE(merged.exit_code, 0);
  EXPECT_THAT(merged.err, HasSubstr("vit.safetensors"));
}

}  // namespace
}  // namespace danlu::test
