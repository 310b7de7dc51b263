#include "checkpoint/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include "checkpoint/saver.h"
#include "parallel/comm/local.h"
#include "support/stored_parameters.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "support/watched_ranks.h"

namespace danlu::checkpoint {
namespace checkpoint_test {

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    optimizer_ = std::make_unique<optim::AdamW>(stored_.store, optim::AdamWConfig{});
  }

  fs::path save_step(int64_t step, bool with_optimizer = true) {
    SaveRequest request;
    request.run_dir = run_dir_;
    request.step = step;
    request.write_model = [](const fs::path& directory) {
      std::ofstream(directory / "model.txt") << "weights";
    };
    request.with_state = with_optimizer;
    request.args = {{"lr", 0.1}};
    request.trainer_state = {{"global_step", step}, {"optimizer_updates", step}};
    request.data_state = {{"consumed_samples", 16 * step}};
    return save(std::move(request), *optimizer_);
  }
  static fs::path save(SaveRequest request, optim::AdamW& optimizer) {
    Saver saver(parallel::Mesh::single(), optimizer);
    saver.begin(std::move(request));
    return saver.finish().value();
  }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const Found& checkpoint : list(run_dir_)) found.push_back(checkpoint.step);
    return found;
  }

  const test::TemporaryDirectory run_dir_;
  test::StoredParameters stored_{{parallel::whole_parameter("w", at::ones({3, 5})),
                                  parallel::whole_parameter("b", at::ones({7}, at::kBFloat16))}};
  std::unique_ptr<optim::AdamW> optimizer_;
};

TEST_F(Checkpoints, OptimizerStateComesBackBitForBit) {
  optim::GradBuffer gradients(stored_.store);
  for (size_t unit = 0; unit < stored_.store.units().size(); ++unit)
    at::Tensor(gradients.share(unit)).fill_(0.3);
  optimizer_->step(gradients, 0.01, 1.0);
  const Loaded loaded = open(save_step(1));
  // f32 weights live in the model files
  test::StoredParameters fresh(
      {parallel::whole_parameter("w", stored_.parameters[0].tensor.detach().clone()),
       parallel::whole_parameter("b", at::zeros({7}, at::kBFloat16))});
  optim::AdamW restored(fresh.store, optim::AdamWConfig{});
  load_optimizer(loaded, restored);
  EXPECT_EQ(restored.updates(), 1);
  const auto want = optimizer_->state(true), got = restored.state(true);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(at::equal(want[i].values.f32(), got[i].values.f32())) << want[i].name;
  EXPECT_TRUE(
      at::equal(fresh.parameters[1].tensor.detach(), stored_.parameters[1].tensor.detach()));
  EXPECT_EQ(loaded.data_state.at("consumed_samples"), 16);
}

// What an f32 parameter of the same start becomes by the same gradients is the bf16 one's master.
TEST_F(Checkpoints, HoldMastersOfWeightsOf16BitsAsF32) {
  const at::Tensor start = at::arange(1'100'000).mul(0.37).sin().to(at::kBFloat16).view({1100, -1});
  struct Trained {
    explicit Trained(const at::Tensor& weight)
        : stored({parallel::whole_parameter("w", weight.clone())}) {}
    void step(int64_t number) {
      const at::Tensor& grad = gradients.share(0);
      grad.copy_(at::arange(grad.numel()).mul(0.11).add(number).cos());
      optimizer.step(gradients, 1e-4, 1.0);
    }
    at::Tensor weight() const { return stored.parameters[0].tensor.detach(); }
    test::StoredParameters stored;
    optim::GradBuffer gradients{stored.store};
    optim::AdamW optimizer{stored.store, optim::AdamWConfig{}};
  };
  Trained narrow(start), wide(start.to(at::kFloat));
  for (const int64_t step : {1, 2}) {
    narrow.step(step);
    wide.step(step);
  }
  SaveRequest request;
  request.run_dir = run_dir_;
  request.step = 2;
  request.write_model = [](const fs::path&) {};
  request.trainer_state = {{"global_step", 2}, {"optimizer_updates", 2}};
  const fs::path saved = save(std::move(request), narrow.optimizer);
  const at::Tensor master = at::empty({1100, 1000});
  ASSERT_TRUE(read_rect(*weights::open_safetensors(saved / "optim" / "rank-0.safetensors"),
                        "master.w", {1100, 1000}, {0, 1100, 0, 1000}, master));
  EXPECT_TRUE(at::equal(master, wide.weight()));

  Trained resumed(at::zeros_like(start));
  load_optimizer(open(saved), resumed.optimizer);
  EXPECT_TRUE(at::equal(resumed.weight(), narrow.weight()));
  for (Trained* one : {&narrow, &wide, &resumed}) one->step(3);
  EXPECT_TRUE(at::equal(resumed.weight(), narrow.weight()));
  EXPECT_TRUE(at::equal(resumed.optimizer.state(false)[2].values.f32(), wide.weight().flatten()));
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
  fs::resize_file(directory / "optim" / "rank-0.safetensors", 100);
  EXPECT_TRUE(list(run_dir_).empty());
  try {
    open(directory);
    FAIL() << "must throw";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("file optim/rank-0.safetensors has 100 bytes"),
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
  EXPECT_EQ(names.size(), 6u);
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
  request.run_dir = run_dir_;
  request.step = 1;
  request.write_model = [](const fs::path&) { throw IoError("no space left"); };
  EXPECT_THROW(save(request, *optimizer_), IoError);
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  EXPECT_EQ(std::distance(fs::directory_iterator(run_dir_), fs::directory_iterator()), 1);
}

/// One unit that takes longer to write than the next update takes to begin.
struct Large {
  test::StoredParameters stored{{parallel::whole_parameter("w", at::ones({int64_t{8} << 20}))}};
  optim::AdamW optimizer{stored.store, optim::AdamWConfig{}};
  optim::GradBuffer gradients{stored.store};

  void step() {
    at::Tensor(gradients.share(0)).fill_(0.3);
    optimizer.step(gradients, 0.01, 1.0);
  }
  at::Tensor moments() const { return optimizer.state(false).front().values.f32().clone(); }
};

SaveRequest request_in(const fs::path& run_dir, int64_t step) {
  SaveRequest request;
  request.run_dir = run_dir;
  request.step = step;
  request.write_model = [](const fs::path&) {};
  request.trainer_state = {{"global_step", step}, {"optimizer_updates", step}};
  return request;
}

TEST_F(Checkpoints, HoldWhatTheStateWasWhenTheyWereBegun) {
  Large large;
  Saver saver(parallel::Mesh::single(), large.optimizer);
  large.step();
  const at::Tensor then = large.moments();
  saver.begin(request_in(run_dir_, 1));
  EXPECT_TRUE(list(run_dir_).empty()) << "it is not whole yet";
  large.step();
  EXPECT_FALSE(at::equal(large.moments(), then));
  const fs::path saved = saver.finish().value();
  EXPECT_FALSE(saver.is_busy());
  load_optimizer(open(saved), large.optimizer);
  EXPECT_TRUE(at::equal(large.moments(), then));
}

TEST_F(Checkpoints, HoldWhatTheModelWasWhenTheyWereBegun) {
  Large large;
  Saver saver(parallel::Mesh::single(), large.optimizer);
  SaveRequest request = request_in(run_dir_, 1);
  const at::Tensor weights = large.stored.parameters[0].tensor.detach(), then = weights.clone();
  at::Tensor written;
  std::thread::id writer;
  request.write_model = [&](const fs::path&) {
    writer = std::this_thread::get_id();
    // Time for an update that does not wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    written = weights.clone();
  };
  saver.begin(std::move(request));
  large.step();
  EXPECT_FALSE(at::equal(weights, then));
  EXPECT_TRUE(saver.finish());
  EXPECT_NE(writer, std::this_thread::get_id()) << "the training stood still meanwhile";
  EXPECT_TRUE(at::equal(written, then)) << "the update did not wait";
}

TEST_F(Checkpoints, WhatIsWrongWithTheModelComesOutWhereverItIsWritten) {
  save_step(1);
  SaveRequest request = request_in(run_dir_, 2);
  request.write_model = [](const fs::path& directory) {
    std::ofstream(directory / "model.txt") << "half of the";
    throw ModelError("[weights] w holds nan at element 7 and is not saved");
  };
  EXPECT_THROW(save(request, *optimizer_), ModelError);
  request.write_model = [](const fs::path&) { throw IoError("no space left"); };
  const std::string error = test::error_of<IoError>([&] { save(request, *optimizer_); });
  EXPECT_NE(error.find("checkpoint-2: cannot be saved: no space left"), error.npos) << error;
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  EXPECT_EQ(std::distance(fs::directory_iterator(run_dir_), fs::directory_iterator()), 1);
}

TEST_F(Checkpoints, OneThatFailedIsNotGoneOnWith) {
  Saver saver(parallel::Mesh::single(), *optimizer_);
  SaveRequest request = request_in(run_dir_, 1);
  // What it points to cannot be looked at: no IoError of ours.
  request.write_model = [](const fs::path& directory) {
    fs::create_symlink("itself", directory / "itself");
  };
  saver.begin(std::move(request));
  EXPECT_ANY_THROW(saver.finish());
  EXPECT_FALSE(saver.is_busy());
  EXPECT_FALSE(saver.finish());
  EXPECT_TRUE(fs::is_empty(run_dir_.path()));
}

TEST_F(Checkpoints, OneThatIsAbandonedLeavesNothing) {
  Large large;
  {
    Saver saver(parallel::Mesh::single(), large.optimizer);
    saver.begin(request_in(run_dir_, 1));
  }
  EXPECT_TRUE(fs::is_empty(run_dir_.path()));
  large.step();  // nobody is waited for any more
}

TEST_F(Checkpoints, TheFailureOfOneRankIsEverybodys) {
  parallel::run_local_ranks(3, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.data = 3});
    parallel::Parameter parameter = parallel::whole_parameter("w", at::ones({600}));
    parallel::ParameterStore store(mesh, {.sharding = parallel::Sharding::kState}, {{{0, 1}}, 1});
    store.lay_out({&parameter}, /*keeps_values=*/true);
    optim::AdamW optimizer(store, optim::AdamWConfig{});
    Saver saver(mesh, optimizer);
    for (const bool fails : {true, false}) {
      SaveRequest request = request_in(run_dir_, 1);
      request.write_model = [&](const fs::path& directory) {
        // In the way of what rank 1 is going to write.
        if (fails && mesh.rank() == 1)
          fs::create_directories(directory / "optim" / "rank-1.safetensors" / "x");
      };
      saver.begin(std::move(request));
      if (fails) {
        EXPECT_THROW(saver.finish(), IoError) << mesh.rank();
        EXPECT_FALSE(saver.is_busy());
      } else {
        EXPECT_EQ(saver.finish().value(), run_dir_ / "checkpoint-1");
      }
      mesh.all().barrier();
      EXPECT_EQ(list(run_dir_).size(), fails ? 0u : 1u);
      mesh.all().barrier();
    }
  });
}

// As on a slow disk: an exchange of this job may take six seconds, its files take eight.
TEST_F(Checkpoints, MayTakeLongerThanAnExchange) {
  test::WatchedRanks ranks;
  ranks.run(2, 60, 6, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.data = 2});
    parallel::Parameter parameter = parallel::whole_parameter("w", at::ones({600}));
    parallel::ParameterStore store(mesh, {}, {{{0, 1}}, 1});
    store.lay_out({&parameter}, /*keeps_values=*/true);
    optim::AdamW optimizer(store, optim::AdamWConfig{});
    const optim::GradBuffer gradients(store);
    Saver saver(mesh, optimizer);
    for (const bool updates : {false, true}) {
      SaveRequest request = request_in(run_dir_, updates ? 2 : 1);
      request.write_model = [&](const fs::path&) {
        if (mesh.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
      };
      saver.begin(std::move(request));
      if (updates) {
        optimizer.step(gradients, 0.01, 1.0);
        mesh.all().barrier();  // of the next step
      }
      EXPECT_TRUE(saver.finish());
    }
  });
  EXPECT_TRUE(ranks.verdicts.empty()) << ranks.verdicts.begin()->second.what;
}

TEST_F(Checkpoints, AFileThatIsNotAsItsRankHasLeftItIsNamed) {
  for (const bool is_short : {true, false}) {
    Large large;
    Saver saver(parallel::Mesh::single(), large.optimizer);
    saver.begin(request_in(run_dir_, 1));
    large.step();  // waits until the rank's file is written
    fs::path file;
    for (const auto& entry : fs::recursive_directory_iterator(run_dir_.path())) {
      if (entry.path().filename() == "rank-0.safetensors") file = entry.path();
    }
    if (is_short) {
      fs::resize_file(file, 100);
      const std::string error = test::error_of<IoError>([&] { saver.finish(); });
      EXPECT_NE(error.find("optim/rank-0.safetensors: its rank has written "), error.npos) << error;
    } else {
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('x');
      const fs::path saved = saver.finish().value();
      const std::string error = test::error_of<IoError>([&] { open(saved); });
      EXPECT_NE(error.find("file optim/rank-0.safetensors was changed"), error.npos) << error;
    }
  }
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
