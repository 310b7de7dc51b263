// The bytes that `danlu plan` says a step sends, against what the kernel counts: ranks in a network
// of their own, whose loopback carries nothing but their exchanges.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "base/json.h"
#include "cli/bad_input.h"
#include "cli/run_program.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using Words = std::vector<std::string>;

/// Runs the line of each file in turn and prints the bytes that came by the loopback meanwhile.
constexpr const char* kCount = R"sh(
export PATH=$PATH:/usr/sbin:/sbin
ip link set lo up || exit 99
received() { sed -n 's/^ *lo: *//p' /proc/net/dev | cut -d ' ' -f 1; }
for line in "$@"; do
  rm -rf run-*
  before=$(received)
  bash $line.sh > $line.out 2> $line.err || exit 1
  echo $(($(received) - before))
done
)sh";

/// 3.3 million parameters in f32, of which one table of embedding and head has a sixth.
constexpr const char* kWideModel = R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
 "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
 "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
 "hidden_act": "silu", "torch_dtype": "float32"})";
constexpr int64_t kRowTokens = 256;

struct WireLine {
  const char* name;
  int64_t processes;
  Words words;
  int64_t machines = 1;  ///< their ranks are told so, and all are here
};
void PrintTo(const WireLine& line, std::ostream* out) { *out << line.name; }

class WireBytes : public BadInput, public testing::WithParamInterface<WireLine> {
 protected:
  void SetUp() override {
    DANLU_SLOW_BUT_FOR("zero3", "tp2_sp", "pp2_tied");
    BadInput::SetUp();
    write("count.sh", kCount);
    for (const Words& how : std::vector<Words>{{"-r", "-n"}, {"-n"}}) {
      unshare_ = how;
      const ProgramResult probe = counted({});
      if (probe.exit_code == 0) return;
      why_ += probe.err;
    }
    GTEST_SKIP() << "this system lets nobody make network namespaces here: " << why_;
  }

  ProgramResult counted(const Words& lines) const {
    ProgramSettings settings;
    settings.program = "/usr/bin/unshare";
    settings.directory = (*this) / "";
    settings.environment = {{"OMP_NUM_THREADS", "1"}, {"XDG_CACHE_HOME", (*this) / "cache"}};
    Words words = unshare_;
    words.insert(words.end(), {"bash", "count.sh"});
    words.insert(words.end(), lines.begin(), lines.end());
    return run_danlu(words, settings);
  }

  /// Every row is as long as a row may be: that is what a plan takes.
  void write_inputs() const {
    write("wide.json", kWideModel);
    const ProgramResult made = run(
        {"init", "--config", "wide.json", "--tokenizer", good("tokenizer"), "--output", "wide"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    std::string rows;
    for (int64_t row = 0; row < 16; ++row) {
      std::vector<int64_t> ids;
      for (int64_t t = 0; t < kRowTokens; ++t) ids.push_back((row * 7 + t * 13 + t * t) % 250 + 3);
      rows += Json{{"input_ids", ids}, {"labels", ids}}.dump() + "\n";
    }
    write("rows.jsonl", rows);
  }

  Words line(const WireLine& of, int64_t steps) const {
    Words words = {"sft",
                   "--model",
                   "wide",
                   "--dataset",
                   "rows.jsonl",
                   "--output_dir",
                   fmt::format("run-{}", steps),
                   "--no-version-dir",
                   "--tuner",
                   "full",
                   "--dtype",
                   "fp32",
                   "--no-packing",
                   "--max_length",
                   std::to_string(kRowTokens),
                   "--batch_size",
                   "1",
                   "--accum",
                   "2",
                   "--val_ratio",
                   "0",
                   "--save_strategy",
                   "no",
                   "--max_steps",
                   std::to_string(steps)};
    if (of.machines == 1) words.insert(words.end(), {"--nproc", std::to_string(of.processes)});
    words.insert(words.end(), of.words.begin(), of.words.end());
    return words;
  }

  double planned(const WireLine& of) const {
    Words words = {"plan", "--machine", "a100-80g", "--json"};
    if (of.machines > 1)
      words.insert(words.end(), {"--nnodes", std::to_string(of.machines), "--nproc",
                                 std::to_string(of.processes / of.machines)});
    const Words rest = line(of, 1);
    words.insert(words.end(), rest.begin(), rest.end());
    const ProgramResult plan = run(words);
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    if (plan.exit_code != 0) return 0;
    const Json stages = Json::parse(plan.out)["stages"];
    double bytes = 0;
    for (const Json& stage : stages) {
      for (const char* axis : {"sent_data", "sent_tensor", "sent_context", "sent_pipeline"}) {
        for (const auto& [way, sent] : stage[axis].items()) bytes += sent.get<double>();
      }
    }
    return bytes * static_cast<double>(of.processes) / static_cast<double>(stages.size());
  }

  /// The line once for each rank, as a launcher of several machines starts it.
  static std::string of_each_rank(const WireLine& of, const std::string& text) {
    std::string lines = fmt::format(
        "export WORLD_SIZE={} LOCAL_WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT=29611\n",
        of.processes, of.processes / of.machines);
    for (int64_t rank = 0; rank < of.processes; ++rank)
      lines += fmt::format("RANK={} {} &\nranks[{}]=$!\n", rank, text, rank);
    return lines + "for rank in ${ranks[@]}; do wait $rank || exit 1; done\n";
  }

 private:
  Words unshare_;
  std::string why_;
};

// What meeting and saving send is in both runs. The rest beside the payload is headers of TCP and
// of messages, and numbers that all ranks agree on: below 1 % where a message has 64 kB.
TEST_P(WireBytes, OfAStepAreWhatThePlanSays) {
  const WireLine& of = GetParam();
  write_inputs();
  for (const int64_t steps : {1, 3}) {
    std::string text = "'" + danlu_path() + "'";
    for (const std::string& word : line(of, steps)) text += " '" + word + "'";
    write(fmt::format("steps-{}.sh", steps),
          of.machines == 1 ? text + "\n" : of_each_rank(of, text));
  }
  // Twice: who waits long for the others to come asks for them again and again.
  const ProgramResult result = counted({"steps-1", "steps-3", "steps-1", "steps-3"});
  ASSERT_EQ(result.exit_code, 0) << content_of((*this) / "steps-1.err")
                                 << content_of((*this) / "steps-3.err");
  std::istringstream numbers(result.out);
  std::array<double, 4> bytes{};
  for (double& count : bytes) numbers >> count;
  const double one = std::min(bytes[0], bytes[2]), three = std::min(bytes[1], bytes[3]);
  const double step = (three - one) / 2, expected = planned(of);
  EXPECT_GT(step, 4e6) << "too little to prove anything";
  EXPECT_GT(step / expected, 1.0);
  EXPECT_LT(step / expected, 1.02);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, WireBytes,
    testing::Values(WireLine{"dp2", 2, {}}, WireLine{"zero3", 2, {"--shard", "zero3"}},
                    WireLine{"tp2", 2, {"--tp", "2"}},
                    WireLine{"tp2_sp", 2, {"--tp", "2", "--sequence_parallel"}},
                    WireLine{"pp2_tied", 2, {"--pp", "2"}}, WireLine{"cp2", 2, {"--cp", "2"}},
                    WireLine{"pp2_zero3", 4, {"--pp", "2", "--shard", "zero3"}},
                    WireLine{"hybrid3", 4, {"--fsdp", "hybrid_shard"}, 2},
                    WireLine{"hybrid2", 4, {"--fsdp", "hybrid_shard_zero2"}, 2}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace danlu::test
