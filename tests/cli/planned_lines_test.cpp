// `danlu plan COMMAND line` says the bytes that `danlu COMMAND line` plans for: the same lines
// typed both ways.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/random_model_dir.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

struct Line {
  std::string name;
  int64_t processes;
  Words words;  ///< the command first
};

void PrintTo(const Line& line, std::ostream* out) { *out << line.name; }

constexpr const char* kDeepSpeed = R"({"zero_optimization": {"stage": 2},
 "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "bf16": {"enabled": true}})";

std::vector<Line> lines() {
  return {
      {"lora", 1, {"sft", "--tuner", "lora"}},
      {"lora_targets", 1, {"sft", "--lora_target", "q_proj", "down_proj", "--lora_rank", "24"}},
      {"lora_saved", 2, {"sft", "--target_modules", "DEFAULT", "--modules_to_save", "lm_head"}},
      {"lora_dropout", 1, {"sft", "--lora_dropout_p", "0", "--dtype", "bf16"}},
      {"full", 1, {"sft", "--tuner", "full", "--dtype", "bf16", "--batch_size", "2"}},
      {"half", 1, {"sft", "--tuner", "full", "--fp16"}},
      {"unpacked", 4, {"sft", "--tuner", "full", "--no-packing", "--max_length", "96"}},
      {"packs", 2, {"sft", "--tuner", "full", "--pack_sequences", "--batch_size", "2"}},
      {"tp2", 2, {"sft", "--tp", "2", "--sequence_parallel", "--tuner", "full"}},
      {"pp2_uneven", 4, {"pt", "--pp", "2", "--num-layer-list", "5,3"}},
      {"vpp", 4, {"pretrain", "--pp", "2", "--vpp", "2", "--global_batch_size", "16"}},
      {"zero_bubble", 2, {"pt", "--pp", "2", "--pipeline_schedule", "zero-bubble"}},
      {"cp2", 4, {"pt", "--cp", "2", "--context-parallel-algo", "megatron_cp_algo"}},
      {"ulysses", 2, {"pt", "--cp", "2", "--dtype", "bf16"}},
      {"zero2", 4, {"sft", "--tuner", "full", "--shard", "zero2", "--accum", "3"}},
      {"deepspeed", 4, {"sft", "--tuner", "full", "--deepspeed", "ds.json"}},
      {"zero3", 4, {"sft", "--tuner", "full", "--deepspeed", "zero3_offload"}},
      {"fsdp", 8, {"sft", "--tuner", "full", "--fsdp", "full_shard auto_wrap", "--tp", "2"}},
      {"recompute", 1, {"pt", "--gradient_checkpointing", "true"}},
      {"recompute_block",
       2,
       {"pt", "--pp", "2", "--recompute-granularity", "full", "--recompute-method", "block",
        "--recompute-num-layers", "2", "--recompute_norm"}},
      {"selective", 1, {"pt", "--recompute", "selective"}},
      {"offloaded",
       2,
       {"pt", "--pp", "2", "--activation_offload", "file", "--offload_dir", ".",
        "--activation_offload_num_layers", "3"}},
      {"state_in_files", 2, {"pt", "--offload", "optimizer,params", "--offload_dir", "."}},
      {"host_memory", 1, {"pt", "--offload", "optimizer", "--swap_attention"}},
      {"frozen", 2, {"sft", "--tuner", "freeze", "--freeze", "embed", R"(layers\.[0-3]\.)"}},
      {"swift", 1, {"sft", "--sft_type", "lora", "--max_length", "96"}},
      {"mindspeed", 8, {"posttrain", "--stage",
                        "sft",       "--tensor-model-parallel-size",
                        "2",         "--pipeline-model-parallel-size",
                        "2",         "--micro-batch-size",
                        "2",         "--global-batch-size",
                        "16",        "--use-distributed-optimizer",
                        "--bf16",    "--seq-length",
                        "96",        "--recompute-method",
                        "uniform",   "--recompute-granularity",
                        "full",      "--lora-r",
                        "16",        "--lora-target-modules",
                        "linear_qkv"}},
      {"alpaca", 2, {"train", "--model_max_length", "512", "--bf16", "True"}},
  };
}

class PlannedLines : public Launch, public testing::WithParamInterface<Line> {
 protected:
  void SetUp() override {
    Launch::SetUp();
    write_random_model((*this) / "model", {.layers = 8, .hidden = 256, .ffn = 640, .heads = 4});
    for (const auto& file : fs::directory_iterator(good("tokenizer")))
      fs::copy(file, (*this) / "model", fs::copy_options::skip_existing);
    write("ds.json", kDeepSpeed);
    std::string long_text;
    for (int word = 0; word < 200; ++word) long_text += std::to_string(word * word % 97) + " ";
    std::string chats, texts;
    for (int row = 0; row < 24; ++row) {
      chats += Json{{"instruction", "fox?"}, {"output", long_text}}.dump() + "\n";
      texts += Json{{"text", long_text}}.dump() + "\n";
    }
    write("chats.jsonl", chats);
    write("texts.jsonl", texts);
  }

  /// No sample is shorter than --max_length, which is what a plan takes.
  Words line_of(const Words& words) const {
    const bool is_plain = words[0] == "pt" || words[0] == "pretrain";
    Words line = words;
    const auto given = [&](const Words& names) {
      return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return std::count(words.begin(), words.end(), name) > 0;
      });
    };
    const Words common = {
        "--model",      "model", "--dataset",    is_plain ? "texts.jsonl" : "chats.jsonl",
        "--output_dir", "run",   "--max_steps",  "1",
        "--val_ratio",  "0",     "--truncation", "right"};
    line.insert(line.end(), common.begin(), common.end());
    if (!given({"--max_length", "--cutoff_len", "--seq-length", "--model_max_length"}))
      line.insert(line.end(), {"--max_length", "160"});
    if (!given({"--dtype", "--bf16", "--fp16", "--deepspeed"}))
      line.insert(line.end(), {"--dtype", "fp32"});
    return line;
  }

  /// This machine as a file: its processors, of which it says how they multiply 16 bits.
  std::string machine_of(const std::string& said) const {
    std::string text = R"(devices_per_node: 8
is_host: true
memory_gb: 256
host_memory_gb: 512
f32_tflops: 2
f16_tflops: 2
reachable_share: 0.7
attention_share: 0.4
matrix_units: 32
tile_rows: 32
tile_columns: 32
kernel_us: 5
allocator_share: 0.01
memory_gb_per_s: 200
reachable_memory_share: 0.8
node_link_gb_per_s: 10
node_link_latency_us: 50
node_links: 1
network_gb_per_s: 1.25
network_latency_us: 100
reachable_link_share: 0.9
host_link_gb_per_s: 200
host_memory_gb_per_s: 400
disk_gb_per_s: 0.5
)";
    const bool is_native = said.find("bf16 products native") != said.npos;
    write("machine.yaml", text + "bf16_tflops: " + (is_native ? "4" : "2") + "\n");
    return (*this) / "machine.yaml";
  }

  Json planned(const Line& line, const std::string& machine) const {
    Words words = {"plan",  "--machine", machine, "--nproc", std::to_string(line.processes),
                   "--json"};
    const Words rest = line_of(line.words);
    words.insert(words.end(), rest.begin(), rest.end());
    const ProgramResult plan = run_words(words);
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    return plan.exit_code == 0 ? Json::parse(plan.out) : Json();
  }
};

/// As base/progress.h's format_bytes.
std::string in_words(double bytes) {
  if (bytes < 1000) return fmt::format("{:.0f} B", bytes);
  return bytes < 999950 ? fmt::format("{:.1f} kB", bytes / 1e3)
                        : fmt::format("{:.1f} MB", bytes / 1e6);
}

int64_t sum_of(const Json& stage, const Words& keys) {
  int64_t sum = 0;
  for (const std::string& key : keys) sum += stage[key].get<int64_t>();
  return sum;
}

/// A stage's line of the table that a dry run shows, behind its layers.
std::string shown(const Json& stage) {
  const int64_t kept = sum_of(stage, {"weights", "gradients", "masters", "moments"}),
                pass = sum_of(stage, {"activations", "working", "communication"}),
                to_come = stage["gradients_to_come"].get<int64_t>();
  std::string text;
  for (const int64_t bytes :
       {sum_of(stage, {"weights"}), sum_of(stage, {"gradients"}) - to_come,
        sum_of(stage, {"masters", "moments"}), sum_of(stage, {"activations"}),
        sum_of(stage, {"working"}), sum_of(stage, {"communication"}), kept + pass - to_come})
    text += fmt::format("{:>12}", in_words(static_cast<double>(bytes)));
  return text;
}

TEST_P(PlannedLines, ArePlannedAsTheyAreTrained) {
  const Line& line = GetParam();
  Words words = line_of(line.words);
  words.emplace_back("--dry_run");
  const std::string processes = std::to_string(line.processes);
  std::map<std::string, std::string> place;
  if (line.processes > 1) {
    place = {{"RANK", "0"},        {"WORLD_SIZE", processes},       {"LOCAL_RANK", "0"},
             {"MASTER_PORT", "1"}, {"LOCAL_WORLD_SIZE", processes}, {"MASTER_ADDR", "127.0.0.1"}};
  }
  const ProgramResult dry = run_words(words, place);
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  const Json plan = planned(line, machine_of(dry.err));
  ASSERT_TRUE(plan.contains("stages"));
  const size_t table = dry.err.find("planned for a rank of each stage:");
  ASSERT_NE(table, std::string::npos) << dry.err;
  const std::string said = dry.err.substr(table);
  for (const Json& stage : plan["stages"]) EXPECT_THAT(said, HasSubstr(shown(stage))) << stage;
  EXPECT_EQ(plan["devices"], line.processes);
}

INSTANTIATE_TEST_SUITE_P(Lines, PlannedLines, testing::ValuesIn(lines()),
                         [](const auto& info) { return info.param.name; });

class PlannedRun : public PlannedLines {
 protected:
  /// Arithmetic with any bits is slow.
  void SetUp() override {
    PlannedLines::SetUp();
    const ProgramResult made = run_words(
        {"init", "--config", "model", "--tokenizer", good("tokenizer"), "--output", "made"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    fs::rename((*this) / "made/model.safetensors", (*this) / "model/model.safetensors");
  }
};

// To the byte, as RUN/memory.json has it.
TEST_F(PlannedRun, IsPlannedToTheByte) {
  for (const Words& words : std::vector<Words>{
           {"sft", "--lora_target", "v_proj", "--lora_rank", "5", "--accum", "1"},
           {"pt", "--batch_size", "2", "--accum", "2", "--recompute", "selective"}}) {
    const Line line = {"", 1, words};
    Words training = line_of(words);
    training.insert(training.end(), {"--save_strategy", "no", "--overwrite_output_dir"});
    const ProgramResult run = run_words(training);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json told =
        Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"][0]["planned"];
    const Json stage = planned(line, machine_of(run.err))["stages"][0];
    for (const char* key :
         {"weights", "gradients", "activations", "working", "gradients_to_come", "communication"})
      EXPECT_EQ(stage[key], told[key]) << key;
    EXPECT_EQ(sum_of(stage, {"masters", "moments"}), told["optimizer"]);
  }
}

class PlanOfALine : public PlannedLines {};

TEST_F(PlanOfALine, StandsAnywhereAndOpensNoData) {
  const auto plan = [&](const Words& words) {
    const ProgramResult result = run_words(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const Words flags = {"--model",         "model",         "--dataset",
                       "not/there.jsonl", "--offload_dir", "nor/this"};
  const auto with = [&](Words words, const Words& more) {
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), more.begin(), more.end());
    return plan(words);
  };
  const std::string first = with({"plan", "--devices", "4", "--json", "sft"}, {});
  EXPECT_EQ(Json::parse(first)["lora_rank"], 8);
  EXPECT_EQ(with({"plan", "sft", "--json"}, {"--devices", "4"}), first);
  EXPECT_EQ(with({"plan"}, {"--json", "sft", "--devices", "4"}), first);
  EXPECT_EQ(with({"plan", "launch", "--nproc", "4", "sft", "--json"}, {}), first);
  write("run.yaml", "model: model\ndataset: [not/there.jsonl]\noffload_dir: nor/this\n");
  EXPECT_EQ(plan({"plan", "--devices=4", "--json", "sft", "run.yaml"}), first);
  // Weights need not be there, nor what a job saves to.
  fs::remove((*this) / "model/model.safetensors");
  EXPECT_EQ(with({"plan", "sft", "--json"}, {"--devices", "4"}), first);
  EXPECT_EQ(with({"plan", "sft", "--json", "--load", "saved/later"}, {"--devices", "4"}), first);
}

TEST_F(PlanOfALine, ErrorsAreThoseOfTheTraining) {
  struct Case {
    int code;
    Words words, said;
  };
  for (const Case& bad : std::vector<Case>{
           {2, {"sft", "--modle", "x"}, {"[plan sft] unknown flag --modle", "--model"}},
           {2, {"sft", "--model", "model", "--max_length", "9999"}, {"4096 positions"}},
           {2, {"sft", "--model", "model", "--lora_target", "no_proj"}, {"no_proj"}},
           {2, {"sft", "word", "--model", "model"}, {"unexpected word 'word'"}},
           {2,
            {"pt", "--model", "model", "--global_batch_size", "12", "--devices", "8"},
            {"--global_batch_size 12: must be a multiple of"}},
           {2, {"chat", "--model", "model"}, {"[plan] chat trains nothing here", "danlu plan sft"}},
           {2, {"dpo", "--model", "model"}, {"danlu has no command 'dpo'"}},
           {2, {"pt"}, {"--model: no model was named"}},
           {4, {"pt", "--model", "nowhere"}, {"nowhere: no such file"}}}) {
    Words words = {"plan"};
    words.insert(words.end(), bad.words.begin(), bad.words.end());
    const ProgramResult result = run_words(words);
    EXPECT_EQ(result.exit_code, bad.code) << result.err;
    for (const std::string& said : bad.said) EXPECT_THAT(result.err, HasSubstr(said));
  }
}

TEST_F(PlanOfALine, ItsSplitIsLookedFor) {
  const ProgramResult found = run_words({"plan", "--machine", "a100-80g", "--auto", "pt", "--model",
                                         "model", "--global_batch_size", "32", "--json"});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const Json plans = Json::parse(found.out);
  ASSERT_FALSE(plans.empty());
  for (const Json& plan : plans) {
    EXPECT_EQ(plan["devices"], 8);
    EXPECT_EQ(plan["dp"].get<int64_t>() * plan["num_micro_batches"].get<int64_t>() *
                  plan["micro_batch_size"].get<int64_t>(),
              32);
  }
}

}  // namespace
}  // namespace danlu::test
