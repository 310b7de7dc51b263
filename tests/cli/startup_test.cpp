// Commands without tensors, and lines that are refused, must not pay for libtorch (a third of a
// second, 288 libraries), and the others no more than they must: not timed, counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cli/run_program.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

/// The names of the libraries that were opened in a run with LD_DEBUG=files.
std::set<std::string> libraries_of(const ProgramResult& result) {
  std::set<std::string> names;
  for (const std::filesystem::path path : opened_libraries(result)) names.insert(path.filename());
  return names;
}

std::set<std::string> libraries_of(const std::vector<std::string>& arguments) {
  return libraries_of(run_danlu(arguments, {.environment = {{"LD_DEBUG", "files"}}}));
}

const auto kHeavy = testing::AnyOf(testing::HasSubstr("torch"), testing::HasSubstr("libc10"),
                                   testing::HasSubstr("libdanlu_engine"),
                                   testing::HasSubstr("duckdb"), testing::HasSubstr("openblas"));

TEST(Startup, HelpLoadsNoHeavyLibrary) {
  for (const std::string& command : listed_commands()) {
    const std::set<std::string> libraries = libraries_of({command, "--help"});
    EXPECT_THAT(libraries, testing::Contains("libdanlu_core.so")) << "the probe sees nothing";
    EXPECT_THAT(libraries, testing::Not(testing::Contains(kHeavy))) << command;
    EXPECT_LT(libraries.size(), 30u) << command;
  }
}

TEST(Startup, FlagErrorsLoadNoHeavyLibrary) {
  EXPECT_THAT(libraries_of({"chat", "--modle", "x"}), testing::Not(testing::Contains(kHeavy)));
}

TEST(Startup, RefusedTrainingLinesLoadNoHeavyLibrary) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96,
             "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128})";
  // A header without tensors: none is read.
  std::ofstream(directory / "model.safetensors") << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  std::ofstream(directory / "data.json") << "[]";
  const struct {
    std::vector<std::string> flags;
    std::string says;
  } lines[] = {
      {{"--tp", "3", "--nproc", "2"},
       "for 2 processes --tp may be 1, 2; --tp 3 needs a multiple of 3"},
      {{"--tp", "2"}, "add --nproc_per_node 2"},
      {{"--tp", "3", "--nproc", "3"}, "3 tensor-parallel ranks cannot divide 4 attention heads"},
      {{"--dp", "3", "--nproc", "2"}, "--dp 3: 2 processes"},
      {{"--cp", "2"}, "--cp 2: for 2 processes, and one runs"},
      {{"--cp", "3", "--nproc", "3"}, "cannot be shared by 3"},
      {{"--ep", "2", "--nproc", "2"}, "--ep 2: llama has no experts to divide"},
      {{"--deepspeed", "default-zero2", "--shard", "zero3"}, "--shard zero3 means ZeRO-3"},
      {{"--fsdp", "full_shard", "--deepspeed", "zero2"}, "two ways to divide"},
      {{"--fsdp", "full_shrad"}, "did you mean full_shard?"},
      {{"--batch_size", "4", "--global_batch_size", "6"}, "--global_batch_size 6: must be a mult"},
      {{"--nproc", "2", "--global_batch_size", "3"}, "2 processes = 2"},
      {{"--nproc", "2", "--global_batch_size", "3"}, "the nearest that fit are 2 and 4"},
      {{"--batch_size", "4", "--global_batch_size", "3"}, "the nearest that fits is 4"},
      {{"--batch_size", "2", "--deepspeed", R"({"train_batch_size": 3})"}, "train_batch_size 3"},
      {{"--lora_target", "q_porj"}, "did you mean q_proj?"},
      {{"--tuner", "full", "--freeze", "nothing"}, "'nothing' matches no parameter"},
      {{"--max_length", "4096"}, "exceeds the model's 128 positions"},
      {{"--lr", "1e-5", "--min_lr", "1e-4"}, "min_lr must be at most learning_rate"},
      {{"--bf16", "--fp16"}, "--bf16 and --fp16 are both on"},
      {{"--from_scratch"}, "random weights need --tuner full"},
      {{"--offload_dir", "nowhere"}, "--offload_dir nowhere: no such directory"},
  };
  for (const auto& line : lines) {
    std::vector<std::string> words = {"sft", "--model", directory.path(), "--dataset",
                                      directory / "data.json"};
    words.insert(words.end(), line.flags.begin(), line.flags.end());
    const ProgramResult result = run_danlu(words, {.environment = {{"LD_DEBUG", "files"}}});
    SCOPED_TRACE(line.says);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, testing::HasSubstr(line.says));
    EXPECT_THAT(libraries_of(result), testing::Not(testing::Contains(kHeavy)));
  }
}

// What libtorch needs is opened before it, each among its own, and is not put away in the end: that
// takes a third off the time of a command that does nothing else.
TEST(Startup, LibtorchIsOpenedByItselfAndLeftOpen) {
  const ProgramResult result = run_danlu({"infer", "--model", "/nowhere", "--prompt", "x"},
                                         {.environment = {{"LD_DEBUG", "files"}}});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.err.find("calling init: "), result.err.npos);
  const size_t line = result.err.find("file=libtorch_cpu");
  ASSERT_NE(line, result.err.npos);
  EXPECT_THAT(result.err.substr(line, result.err.find('\n', line) - line),
              testing::HasSubstr("dynamically loaded by danlu "));
  EXPECT_EQ(result.err.find("calling fini: "), result.err.npos);
}

}  // namespace
}  // namespace danlu::test
