#include "cli/guide_runs.h"

#include <cstdlib>

#include "base/free_port.h"
#include "base/json.h"
#include "cli/logged_steps.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

/// Without these flags and what follows each of them up to the next flag.
Words without(const Words& words, const std::set<std::string>& flags) {
  Words kept;
  bool dropped = false;
  for (const std::string& word : words) {
    if (word.starts_with("--")) dropped = flags.count(word.substr(0, word.find('='))) > 0;
    if (!dropped) kept.push_back(word);
  }
  return kept;
}

std::string value_in(const Words& words, const std::string& flag) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == flag) return words[i + 1];
    if (words[i].starts_with(flag + "=")) return words[i].substr(flag.size() + 1);
  }
  return "";
}

/// What divides a run, and nothing else.
const std::set<std::string> kDividing = {"--nproc_per_node",
                                         "--nnodes",
                                         "--node_rank",
                                         "--master_addr",
                                         "--master_port",
                                         "--tensor-model-parallel-size",
                                         "--pipeline-model-parallel-size",
                                         "--sequence-parallel",
                                         "--num-layer-list",
                                         "--num-layers-per-virtual-pipeline-stage",
                                         "--context-parallel-size",
                                         "--context-parallel-algo",
                                         "--use-cp-send-recv-overlap",
                                         "--use-distributed-optimizer",
                                         "--fsdp",
                                         "--fsdp_transformer_layer_cls_to_wrap"};

}  // namespace

Words with_values(Words words, const Values& values) {
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const auto found = values.find(words[i].substr(0, equals));
    if (found == values.end()) continue;
    if (equals != std::string::npos) {
      words[i] = found->first + "=" + found->second;
    } else if (i + 1 < words.size()) {
      words[++i] = found->second;
    }
  }
  return words;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void GuideRuns::SetUp() {
  DANLU_REQUIRES_SHARED();
  Launch::SetUp();
  write_model();
  write_data();
}

ProgramResult GuideRuns::ok(const Words& words, const Values& environment) const {
  ProgramResult result = run_words(words, environment);
  EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(words) << result.err;
  return result;
}

void GuideRuns::write_model() const {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "the quick brown fox " + std::to_string(i) + " jumps over the lazy dog\n";
    if (i % 6 == 0) {
      text +=
          "Below is an instruction that describes a task. Write a response that appropriately "
          "completes the request.\n\n### Instruction:\nfox?\n\n### Response:\n";
    }
  }
  write("text.txt", text);
  ok({"tokenizer", "train", "--input", "text.txt", "--vocab_size", "360", "--chat_template",
      "chatml", "--output", "tokenizer"});
  ModelShape shape = GetParam().shape;
  shape.vocab = 368;
  Json config = Json::parse(config_text(shape));
  if (shape.model_type == "llama") config.update({{"rope_theta", 10000.0}, {"rms_norm_eps", 1e-5}});
  if (shape.model_type == "baichuan") {
    for (const char* key : {"num_key_value_heads", "max_position_embeddings", "rope_theta"})
      config.erase(key);
    config["model_max_length"] = 4096;
  }
  write("config.json", config.dump());
  ok({"init", "--config", "config.json", "--tokenizer", "tokenizer", "--output", "model"});
}

void GuideRuns::write_data() const {
  std::string rows, text;
  for (int i = 0; i < 64; ++i) {
    const std::string number = std::to_string(i);
    // The columns of Alpaca's rows, and of those that ms-swift's name stands for.
    rows +=
        GetParam().guide == kSwiftGuide
            ? R"({"input": "fox )" + number + R"(?", "output": "dog", "answer": ")" + number
            : R"({"instruction": "fox )" + number + R"(?", "input": "", "output": "dog )" + number;
    rows += "\"}\n";
    text += R"({"text": "the quick brown fox )" + number + " jumps over the lazy dog\"}\n";
  }
  write("rows.jsonl", rows);
  write("text.jsonl", text);
  // The guide's lines name these files.
  for (const char* stage : {"2", "3"}) {
    write(std::string("ds_config_zero") + stage + ".json",
          std::string(R"({"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
              "initial_scale_power": 32, "hysteresis": 2, "min_loss_scale": 1},
              "train_batch_size": "auto",
              "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
              "zero_optimization": {"stage": )") +
              stage + R"(, "offload_optimizer": {"device": "cpu"}}})");
  }
  const Words both = {"--tokenizer-name-or-path", "model",     "--tokenizer-type",
                      "PretrainedFromHF",         "--workers", "4"};
  if (GetParam().data == Data::kText) {
    ok(joined({"preprocess", "--input", "text.jsonl", "--handler-name", "GeneralPretrainHandler",
               "--output-prefix", "fox", "--json-keys", "text", "--n-subs", "16"},
              both));
  } else if (GetParam().data == Data::kSamples) {
    ok(joined({"preprocess", "--input", "rows.jsonl", "--handler-name",
               "AlpacaStyleInstructionHandler", "--output-prefix", "alpaca", "--prompt-type",
               GetParam().shape.model_type == "llama" ? "llama2" : "qwen"},
              both));
  }
  // Where names of models and data sets are looked for.
  if (GetParam().guide != kSwiftGuide) return;
  const fs::path hub = (*this) / "hub";
  fs::create_directories(hub / "models--Qwen--Qwen1.5-7B-Chat" / "snapshots");
  fs::copy((*this) / "model", hub / "models--Qwen--Qwen1.5-7B-Chat" / "snapshots" / "1",
           fs::copy_options::recursive);
  const fs::path set = hub / "datasets--Azure99--blossom-math-v2" / "snapshots" / "1";
  fs::create_directories(set);
  fs::copy((*this) / "rows.jsonl", set / "rows.jsonl");
}

void GuideRuns::convert() const {
  if (GetParam().is_printed()) {
    ok({"convert", "model", "converted", "--to", "mcore", "--tp", "2", "--pp", "2"});
    return;
  }
  const auto lines = commands_of(GetParam().guide, "python convert_ckpt.py");
  ASSERT_GT(lines.size(), GetParam().which);
  Words words = words_of(lines[GetParam().which]);
  words.erase(words.begin());
  words.front() = "convert";
  words = with_values(words, {{"--load-dir", "model"}, {"--save-dir", "converted"}});
  for (std::string& word : words) {
    if (word.ends_with("/tokenizer.json") || word.ends_with("/tokenizer.model"))
      word = "model/" + fs::path(word).filename().string();
  }
  const std::string stages = "--num-layers-per-virtual-pipeline-stage",
                    layers = value_in(words_of(GetParam().command), stages);
  if (!layers.empty()) words = joined(without(words, {"--num-layer-list"}), {stages, layers});
  ok(words);
}

GuideRuns::Run GuideRuns::script_line(Source source, const std::string& run,
                                      const std::string& port) const {
  const std::string model = source == Source::kConverted ? "converted" : "model";
  const ModelShape& shape = GetParam().shape;
  Words words = words_of(GetParam().command);
  words.erase(words.begin());
  words = with_values(
      words, {{"--hidden-size", std::to_string(shape.hidden)},
              {"--ffn-hidden-size", std::to_string(shape.ffn)},
              {"--padded-vocab-size", "368"},
              {"--vocab-size", "368"},
              {"--seq-length", "64"},
              {"--max-position-embeddings", "64"},
              {"--train-iters", "2"},
              {"--master_port", port},
              {"--load", model},
              {"--save", run},
              {"--tokenizer-name-or-path", "model"},
              {"--tokenizer-model", "model/tokenizer.model"},
              {"--data-path", GetParam().data == Data::kText ? "fox_text_document" : "alpaca"}});
  return {words, {}};
}

GuideRuns::Run GuideRuns::printed_line(Source source, const std::string& run,
                                       const std::string& port) const {
  const std::string model = source == Source::kConverted ? "converted" : "model";
  Words words = words_of(commands_of(GetParam().guide, GetParam().command)[GetParam().which]);
  const Values environment = environment_of(words);
  words.erase(words.begin());  // torchrun, swift
  if (GetParam().guide == kAlpacaGuide) {
    std::erase(words, "train.py");
    words.insert(words.begin(), "train");
  }
  words = with_values(words, {{"--model_name_or_path", model},
                              {"--data_path", "rows.jsonl"},
                              {"--output_dir", run},
                              {"--master_port", port},
                              {"--gradient_accumulation_steps", "2"}});
  words = joined(with_values(words, GetParam().changes), {"--max_steps", "2"});
  if (GetParam().guide == kSwiftGuide) words = joined(words, {"--logging_steps", "1"});
  if (GetParam().guide == kSwiftGuide && source == Source::kConverted)
    words = joined(words, {"--model_id_or_path", model});
  return {words, environment};
}

GuideRuns::Run GuideRuns::line(Source source, const std::string& run) const {
  const std::string port = std::to_string(free_port().value());
  return GetParam().is_printed() ? printed_line(source, run, port) : script_line(source, run, port);
}

GuideRuns::Run GuideRuns::alone(Run run) {
  run.words = without(run.words, kDividing);
  run.words = with_values(run.words, {{"--gradient_accumulation_steps", "16"}});
  run.environment.erase("NPROC_PER_NODE");
  return run;
}

GuideRuns::Run GuideRuns::in_f32(Run run) {
  std::erase(run.words, "--bf16");
  run.words = joined(without(run.words, {"--fp16"}), {"--dtype", "fp32"});
  return run;
}

std::string GuideRuns::train(Run run) const {
  if (GetParam().guide == kSwiftGuide) run.environment["HF_HUB_CACHE"] = at("hub");
  last_ = ok(run.words, run.environment);
  const std::string mark = "last_model_checkpoint: ";
  const size_t begin = last_.err.find(mark);
  if (begin == std::string::npos) return "";
  return last_.err.substr(begin + mark.size(), last_.err.find('\n', begin) - begin - mark.size());
}

void GuideRuns::expect_steps_of(const std::string& one, const std::string& checkpoint,
                                const Tolerance& tolerance) const {
  const auto expected = steps_of(((*this) / one).parent_path());
  const auto got = steps_of(((*this) / checkpoint).parent_path());
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(got.size(), 2u);
  for (size_t i = 0; i < got.size(); ++i) {
    for (const auto& [key, part] :
         {std::pair("loss", tolerance.loss), std::pair("grad_norm", tolerance.norm)}) {
      const double want = expected[i].at(key);
      EXPECT_GT(want, 0.01);
      EXPECT_NEAR(got[i].at(key).get<double>(), want, part * want) << key << " " << i;
    }
  }
}

GuideRuns::Run GuideRuns::question(const std::string& checkpoint, Source source) const {
  Words words;
  const std::string run = fs::path(checkpoint).parent_path();
  const std::string model = source == Source::kConverted ? "converted" : "model";
  Values environment;
  if (GetParam().guide == kAlpacaGuide) {
    words = {"infer", "--model", run, "--prompt", "fox?", "--template", "stanford_alpaca"};
  } else if (GetParam().guide == kSwiftGuide) {
    words = words_of(commands_of(kSwiftGuide, "--load_dataset_config")[0]);
    environment = environment_of(words);
    words.erase(words.begin());
    words = joined(with_values(words, {{"--ckpt_dir", checkpoint}}), {"--do_sample", "false"});
    environment["HF_HUB_CACHE"] = at("hub");
  } else {
    words = without(words_of(GetParam().command), kDividing);
    const bool lora = value_in(words, "--lora-r") != "";
    words = {"infer",
             "--use-mcore-models",
             "--task",
             "greedy",
             "--exit-on-missing-checkpoint",
             "--tokenizer-type",
             "PretrainedFromHF",
             "--tokenizer-name-or-path",
             "model",
             "--prompt",
             "fox?",
             "--load",
             lora ? model : run};
    if (lora) words = joined(words, {"--lora-load", run, "--lora-fusion"});
  }
  return {joined(words, {"--max_new_tokens", "4"}), environment};
}

std::string GuideRuns::answer(const Run& question) const {
  return ok(question.words, question.environment).out;
}

}  // namespace danlu::test
