#include "options/example_lines.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/tiny_model.h"

namespace danlu::test {
namespace {

class Examples {
 public:
  Examples() {
    write_rows();
    Json config = tiny_config("qwen2");
    config.update({{"vocab_size", 300}, {"max_position_embeddings", 512}});
    write_json_file(at("config.json"), config);
    must_run("tokenizer", {"train", "--input", at("text.txt"), "--vocab_size", "270",
                           "--chat_template", "chatml", "--output", at("tokenizer")});
    must_run("init", {"--config", at("config.json"), "--tokenizer", at("tokenizer"), "--output",
                      at("model")});
    must_run("sft", training("rows.jsonl") + Words{"--output_dir", at("run"), "--max_steps", "1"});
    for (const char* name : {"a", "b"}) must_run("eval", examination() + Words{"-o", at(name)});
  }
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  std::string fresh() { return at("out" + std::to_string(++count_)); }
  Words model() const { return {"--model", at("model")}; }
  Words training(const std::string& rows) const {
    return model() +
           Words{"--dataset", at(rows), "--cache_dir", at("cache"), "--device_tflops", "1"};
  }
  Words examination() const {
    return model() + Words{"--tasks", "boolq", "--data_dir", at("boolq")};
  }

 private:
  void write_rows() const {
    std::ofstream text(at("text.txt")), rows(at("rows.jsonl")), plain(at("plain.jsonl"));
    for (int i = 0; i < 8; ++i) {
      const std::string words = "the quick fox " + std::to_string(i) + " jumps";
      text << words << "\n" << words << "\n";
      rows << Json{{"instruction", words}, {"output", "fox"}, {"label", i % 2}} << "\n";
      plain << Json{{"text", words}} << "\n";
    }
    const Json message = {{"from", "human"}, {"value", "fox"}};
    const Json llava = {{"conversations", Json::array({message})}};
    write_json_file(at("llava.json"), Json::array({llava}));
    write_json_file(at("talk.json"), Json::array({{{"role", "user"}, {"content", "fox"}}}));
    std::filesystem::create_directories(at("boolq"));
    const Json question = {
        {"passage", "Foxes jump."}, {"question", "do foxes jump"}, {"answer", true}};
    for (const char* name : {"boolq/dev.jsonl", "boolq/train.jsonl"})
      std::ofstream(at(name)) << question << "\n";
  }

  const TemporaryDirectory directory_;
  int count_ = 0;
};

/// Verbs whose lines are taken without more, or are not done here.
ExampleLine other_line(const std::string& verb, Examples& made) {
  if (verb == "compare") return {{made.at("a"), made.at("b")}, Reach::kEnd};
  if (verb == "inspect") return {{made.at("model")}, Reach::kEnd};
  if (verb == "convert") return {{made.at("model"), made.fresh(), "--to", "mcore"}, Reach::kEnd};
  if (verb == "diff") return {{made.at("model"), made.at("model")}, Reach::kEnd};
  if (verb == "init")
    return {{"--config", made.at("config.json"), "--output", made.fresh()}, Reach::kEnd};
  if (verb == "convert-rows")
    return {{"llava", "--input", made.at("llava.json"), "--output", made.fresh()}, Reach::kEnd};
  if (verb == "merge")
    return {made.model() + Words{"--adapters", made.at("run/last"), "--output", made.fresh()},
            Reach::kEnd};
  if (verb == "rollout") {
    return {made.model() + Words{"--dataset", made.at("rows.jsonl"), "--reward_funcs", "format",
                                 "--output", made.fresh()}};
  }
  if (verb == "sample") {
    return {made.model() + Words{"--dataset", made.at("rows.jsonl"), "--reward_funcs", "format",
                                 "--output_dir", made.fresh()}};
  }
  if (verb == "quantize")
    return {made.model() + Words{"--samples", made.fresh(), "--output", made.fresh()}};
  if (verb == "verify") return {made.model() + Words{"--golden", "x"}};
  return {};
}

}  // namespace

ExampleLine example_line(const std::string& verb) {
  static Examples made;
  const Words run = {"--output_dir", made.fresh(), "--dry_run"};
  if (verb == "tokenize") return {made.model() + Words{"fox"}, Reach::kEnd};
  if (verb == "detokenize") return {made.model() + Words{"5"}, Reach::kEnd};
  if (verb == "tokenizer")
    return {
        {"train", "--input", made.at("text.txt"), "--vocab_size", "270", "--output", made.fresh()},
        Reach::kEnd};
  if (verb == "render") return {made.model() + Words{"--input", made.at("talk.json")}, Reach::kEnd};
  if (verb == "preprocess")
    return {made.model() + Words{"--input", made.at("rows.jsonl"), "--output_prefix", made.fresh()},
            Reach::kEnd};
  if (verb == "sft") return {made.training("rows.jsonl") + run, Reach::kEnd};
  if (verb == "train" || verb == "posttrain" || verb == "rlhf")
    return {made.training("rows.jsonl") + run, Reach::kSettings};
  if (verb == "pretrain") return {made.training("plain.jsonl") + run, Reach::kSettings};
  if (verb == "plan") return {made.model() + Words{"--max_length", "64"}, Reach::kEnd};
  if (verb == "infer")
    return {made.model() + Words{"--prompt", "fox", "--max_new_tokens", "2"}, Reach::kEnd};
  if (verb == "chat") return {made.model(), Reach::kEnd};
  if (verb == "eval")
    return {made.examination() + Words{"--output_path", made.fresh()}, Reach::kEnd};
  return other_line(verb, made);
}

Words companions_of(const std::string& choice) {
  // A model of its own teaches as well as another one.
  if (choice == "rlhf_type=gkd") return {"--teacher_model", example_line("rlhf").words.at(1)};
  static const std::map<std::string, Words> beside = {
      {"tuner=freeze", {"--freeze", "embed"}},
      {"from_scratch=true", {"--tuner", "full"}},
      {"rlhf_type=grpo", {"--reward_funcs", "accuracy"}},
      {"rlhf_type=ppo", {"--reward_funcs", "accuracy"}},
      {"save_format=mcore", {"--tuner", "full"}},
      {"recompute_method=uniform", {"--recompute", "full"}},
      {"recompute_method=block", {"--recompute", "full", "--recompute_num_layers", "1"}},
      {"activation_offload=file", {"--offload_dir", "."}},
      {"task_type=seq_cls", {"--num_labels", "2"}},
      {"task_type=generative_reranker",
       {"--reranker_positive_token", "a", "--reranker_negative_token", "b"}},
      {"pack=true", {"--seq_length", "64"}},
      {"neat_pack=true", {"--seq_length", "64"}},
      {"fewshot_as_multiturn=true", {"--apply_chat_template"}},
  };
  const auto at = beside.find(choice);
  return at == beside.end() ? Words{} : at->second;
}

}  // namespace danlu::test
