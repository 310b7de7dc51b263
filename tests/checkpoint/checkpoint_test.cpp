#include "checkpoint/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include "support/temporary_directory.h"

namespace danlu::checkpoint {
namespace checkpoint_test {

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    parameters_ = {
        parallel::whole_parameter("w", at::ones({3, 5}).requires_grad_(true)),
        parallel::whole_parameter("b", at::ones({7}, at::kBFloat16).requires_grad_(true))};
    optimizer_ = std::make_unique<optim::AdamW>(parameters_, optim::AdamWConfig{});
  }

  fs::path save_step(int64_t step, bool with_optimizer = true) {
    SaveRequest request;
    request.run_dir = run_dir_;
    request.step = step;
    request.write_model = [](const fs::path& directory) {
      std::ofstream(directory / "model.txt") << "weights";
    };
    request.mesh = &parallel::Mesh::single();
    request.optimizer = with_optimizer ? optimizer_.get() : nullptr;
    request.args = {{"lr", 0.1}};
    request.trainer_state = {{"global_step", step}, {"optimizer_updates", step}};
    request.data_state = {{"consumed_samples", 16 * step}};
    return save(request);
  }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const Found& checkpoint : list(run_dir_)) found.push_back(checkpoint.step);
    return found;
  }

  const test::TemporaryDirectory run_dir_;
  std::vector<parallel::Parameter> parameters_;
  std::unique_ptr<optim::AdamW> optimizer_;
};

TEST_F(Checkpoints, OptimizerStateComesBackBitForBit) {
  optim::GradBuffer gradients(parameters_, parallel::Mesh::single());
  at::Tensor(gradients.flat()).fill_(0.3);
  optimizer_->step(gradients, 0.01, 1.0);
  const Loaded loaded = open(save_step(1));
  std::vector<parallel::Parameter> fresh = {
      parallel::whole_parameter("w", at::zeros({3, 5}).requires_grad_(true)),
      parallel::whole_parameter("b", at::zeros({7}, at::kBFloat16).requires_grad_(true))};
  fresh[0].tensor.detach().copy_(
      parameters_[0].tensor.detach());  // f32 weights live in the model files
  optim::AdamW restored(fresh, optim::AdamWConfig{});
  load_optimizer(loaded, restored);
  EXPECT_EQ(restored.updates(), 1);
  const auto want = optimizer_->state(true), got = restored.state(true);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(at::equal(want[i].tensor, got[i].tensor)) << want[i].name();
  EXPECT_TRUE(at::equal(fresh[1].tensor.detach(), parameters_[1].tensor.detach()));
  EXPECT_EQ(loaded.data_state.at("consumed_samples"), 16);
}

TEST_F(Checkpoints, AreListedByStepNotByName) {
  for (const int64_t step : {100, 20, 3}) save_step(step);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 20, 100}));
}

TEST_F(Checkpoints, WithoutMarkerIsNotListedAndNotOpened) {
  const fs::path directory = save_step(4);
  fs::remove(directory / "DONE");
  EXPECT_TRUE(list(run_dir_).empty());
  EXPECT_THROW(open(directory), IoError);
}

TEST_F(Checkpoints, ATruncatedFileIsNamed) {
  const fs::path directory = save_step(4);
  fs::resize_file(directory / "optim" / "state.safetensors", 100);
  EXPECT_TRUE(list(run_dir_).empty());
  try {
    open(directory);
    FAIL() << "must throw";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("file optim/state.safetensors has 100 bytes"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Checkpoints, OneChangedByteInAnyFileIsNamed) {
  const fs::path directory = save_step(4);
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = fs::relative(entry.path(), directory).string();
    if (entry.is_regular_file() && name != "DONE") names.push_back(name);
  }
  EXPECT_EQ(names.size(), 5u);
  for (const std::string& name : names) {
    const std::string whole = read_file(directory / name);
    for (const size_t at : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
      std::string changed = whole;
      changed[at] ^= 1;
      std::ofstream(directory / name, std::ios::binary) << changed;
      try {
        open(directory);
        ADD_FAILURE() << name << " byte " << at << " must be noticed";
      } catch (const IoError& error) {
        EXPECT_NE(std::string(error.what())
                      .find("checkpoint-4: a damaged checkpoint: file " + name + " was changed"),
                  std::string::npos)
            << error.what();
      }
    }
    std::ofstream(directory / name, std::ios::binary) << whole;
  }
  EXPECT_EQ(open(directory).trainer_state.at("global_step"), 4);
}

TEST_F(Checkpoints, OnesWithoutChecksumsAreReadAndSaidToBe) {
  const fs::path directory = save_step(4);
  Json done = read_json_file(directory / "DONE");
  // As xxhsum -H3 prints it, so that anybody can check.
  EXPECT_EQ(done.at("xxh3").at("model.txt"), "06cc94573ff53c71");
  done.erase("xxh3");
  write_json_file(directory / "DONE", done);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(open(directory));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("only sizes were compared"),
            std::string::npos);
}

TEST_F(Checkpoints, AChecksumOfPiecesSeesEveryByteOfALargeFile) {
  const fs::path file = run_dir_ / "large";
  constexpr int64_t kMiB = 1 << 20;
  std::ofstream(file) << "begin";
  fs::resize_file(file, 130 * kMiB);  // three pieces, the last one short; holes cost no disk
  const std::string whole = checksum_of(file);
  EXPECT_EQ(checksum_of(file), whole);
  for (const int64_t at : {int64_t{0}, 64 * kMiB - 1, 64 * kMiB, 130 * kMiB - 1}) {
    std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(at);
    change.put('x').flush();
    const std::string changed = checksum_of(file);
    EXPECT_NE(changed, whole) << at;
    change.seekp(at);
    change.put(at == 0 ? 'b' : '\0').flush();
    EXPECT_EQ(checksum_of(file), whole) << at;
  }
}

TEST_F(Checkpoints, RotationKeepsTheNewestAndTheBest) {
  for (const int64_t step : {1, 2, 3, 4, 5}) save_step(step);
  rotate(run_dir_, 2, {run_dir_ / "checkpoint-5", run_dir_ / "checkpoint-2"});
  EXPECT_EQ(steps(), (std::vector<int64_t>{2, 5}));
  rotate(run_dir_, 0, {});
  EXPECT_EQ(steps().size(), 2u);
}

TEST_F(Checkpoints, AFailedWriterLeavesTheOldOneAndNoDebris) {
  save_step(1);
  SaveRequest request;
  request.mesh = &parallel::Mesh::single();
  request.run_dir = run_dir_;
  request.step = 1;
  request.write_model = [](const fs::path&) { throw IoError("no space left"); };
  EXPECT_THROW(save(request), IoError);
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  EXPECT_EQ(std::distance(fs::directory_iterator(run_dir_), fs::directory_iterator()), 1);
}

TEST_F(Checkpoints, ModelOnlyOnesCannotBeResumed) {
  const Loaded loaded = open(save_step(2, false));
  EXPECT_FALSE(list(run_dir_).back().resumable);
  EXPECT_THROW(load_optimizer(loaded, *optimizer_), IoError);
}

TEST_F(Checkpoints, LinksPointInsideTheRunDirectory) {
  point_link(run_dir_, "last", save_step(2));
  point_link(run_dir_, "last", save_step(3));
  EXPECT_EQ(fs::read_symlink(run_dir_ / "last"), "checkpoint-3");
  EXPECT_TRUE(fs::exists(run_dir_ / "last" / "DONE"));
}

}  // namespace checkpoint_test
}  // namespace danlu::checkpoint
