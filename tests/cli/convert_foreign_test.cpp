// `danlu inspect` and `danlu convert` on Megatron checkpoints that something has happened to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cli/own_folder.h"
#include "cli/random_model_dir.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// The bytes of a tensor of a safetensors file.
std::string tensor_bytes(const fs::path& file, const std::string& name) {
  const std::string content = content_of(file);
  uint64_t header = 0;
  std::memcpy(&header, content.data(), 8);
  const size_t entry = content.find('"' + name + '"');
  size_t at = content.find("data_offsets", entry);
  at = content.find('[', at) + 1;
  const size_t begin = std::stoull(content.substr(at));
  const size_t end = std::stoull(content.substr(content.find(',', at) + 1));
  return content.substr(8 + header + begin, end - begin);
}

class ForeignConvert : public OwnFolder {
 protected:
  ForeignConvert() {
    write_random_model(folder_ / "hf", {});
    EXPECT_EQ(run({"convert", "hf", "core", "--to", "mcore", "--tp", "2"}).exit_code, 0);
  }
  fs::path rank_file(const char* rank) const {
    for (const auto& entry : fs::recursive_folder_iterator(folder_ / "core")) {
      if (entry.path().filename() == "model_optim_rng.pt" &&
          entry.path().parent_path().filename() == rank)
        return entry.path();
    }
    ADD_FAILURE() << "no " << rank;
    return {};
  }
};

TEST_F(ForeignConvert, InspectSaysWhetherRanksHoldTheSameCopies) {
  EXPECT_THAT(run({"inspect", "core"}).out, HasSubstr("  copies      all ranks agree\n"));
  // A bit of a norm flips on one rank, as a bad disk would do it.
  const std::string norm =
      tensor_bytes(folder_ / "hf/model.safetensors", "model.layers.1.input_layernorm.weight");
  std::string content = content_of(rank_file("mp_rank_01"));
  const size_t at = content.find(norm);
  ASSERT_NE(at, std::string::npos);
  content[at] ^= 1;
  write_content(rank_file("mp_rank_01"), content);
  const ProgramResult result = run({"inspect", "core"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ranks do not agree"));
  EXPECT_THAT(result.out, HasSubstr("mp_rank_01/model_optim_rng.pt: "
                                    "model.decoder.layers.1.input_layernorm.weight differs"));
  EXPECT_THAT(result.out, Not(HasSubstr("all ranks agree")));
  // The checksum is met first; a save that went wrong has right ones.
  expect_error(run({"convert", "core", "x", "--to", "hf", "--no-check"}), 4,
               {"input_layernorm.weight differs", "--load-checkpoint-loosely"});
  const ProgramResult loose =
      run({"convert", "core", "x", "--to", "hf", "--no-check", "--load-checkpoint-loosely"});
  EXPECT_EQ(loose.exit_code, 0);
  EXPECT_THAT(loose.err, HasSubstr("the first rank's copy is taken"));
}

TEST_F(ForeignConvert, AConfigThatArgsContradictIsRefusedAndDoubtsAreSaid) {
  replace_in_file(folder_ / "core/config.json", "1000000.0", "500000.0");
  expect_error(run({"convert", "core", "x", "--to", "hf"}), 4,
               {"args.rotary_base is 1000000, config.json's rope_theta makes it 500000"});
  replace_in_file(folder_ / "core/config.json", "500000.0", "1000000.0");
  replace_in_file(folder_ / "core/config.json", "\"vocab_size\": 300", "\"vocab_size\": 200");
  EXPECT_THAT(run({"convert", "core", "y", "--to", "hf"}).err,
              HasSubstr("the embedding has 300 rows, 100 more than padding"));
}

TEST_F(ForeignConvert, DistributedCheckpointsAreNamed) {
  fs::create_directories(folder_ / "dist/iter_0000001");
  write_content(folder_ / "dist/latest_checkpointed_iteration.txt", "1");
  write_content(folder_ / "dist/iter_0000001/metadata.json", "{}");
  expect_error(run({"convert", "dist", "x", "--to", "hf"}), 4,
               {"torch_dist", "--ckpt-format torch"});
}

TEST_F(ForeignConvert, AFolderWithANumberBeyondReasonIsNoInternalError) {
  fs::copy(rank_file("mp_rank_00").parent_path(),
           rank_file("mp_rank_00").parent_path().parent_path() / "mp_rank_99999999999999999999");
  const ProgramResult result = run({"convert", "core", "back", "--to", "hf"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(run({"diff", "hf", "back"}).exit_code, 0);
}

}  // namespace
}  // namespace danlu::test
