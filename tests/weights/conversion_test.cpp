// A conversion is whole or not there, goes on where it was killed, and never touches its source.
#include "weights/convert/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/new_output.h"
#include "support/file_size_limit.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/hf/safetensors_target.h"
#include "weights/random_models.h"

namespace {
thread_local std::function<void()> before_flock;  // once
}  // namespace

/// The program's symbol outweighs libc's.
extern "C" int flock(int fd, int operation) {
  if (const auto act = std::exchange(before_flock, nullptr)) act();
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace danlu::weights {
namespace {

using test::MemorySource;
using testing::HasSubstr;

/// Passes reads on and calls `on_read` before each.
class Watched final : public TensorSource {
 public:
  Watched(std::shared_ptr<const TensorSource> inner,
          std::function<void(const std::string&)> on_read)
      : inner_(std::move(inner)), on_read_(std::move(on_read)) {}
  const std::vector<TensorInfo>& tensors() const override { return inner_->tensors(); }
  void read(const std::string& name, std::span<std::byte> out) const override {
    on_read_(name);
    inner_->read(name, out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    on_read_(name);
    inner_->read_range(name, begin, end, out);
  }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string& name) const override {
    return inner_->file_of(name);
  }
  const Json& metadata() const override { return inner_->metadata(); }

 private:
  std::shared_ptr<const TensorSource> inner_;
  std::function<void(const std::string&)> on_read_;
};

class ConversionTest : public testing::Test {
 protected:
  ConversionTest() {
    std::vector<TensorInfo> infos;
    for (int i = 0; i < 6; ++i) infos.push_back({"t" + std::to_string(i), DType::kF32, {32, 64}});
    source_ = random_.source(infos);
    std::filesystem::create_directory(directory_ / "source");
    write_file_atomic(directory_ / "source/model.bin", "stands for the weights");
  }

  /// Six files of one tensor each, written in order by one thread.
  Conversion conversion() {
    Conversion conversion;
    conversion.source = source_;
    conversion.target = plan_hf_directory(source_->tensors(), 8192);
    conversion.output = directory_ / "out";
    conversion.source_files = {directory_ / "source/model.bin"};
    conversion.reopen = [](const fs::path& path) { return open_weights(path); };
    conversion.num_threads = 1;
    return conversion;
  }
  void expect_whole(const fs::path& output) {
    const auto result = open_weights(output);
    ASSERT_EQ(result->tensors().size(), 6u);
    for (const TensorInfo& info : source_->tensors())
      EXPECT_EQ(test::read_tensor(*result, info.name), test::read_tensor(*source_, info.name));
    EXPECT_FALSE(fs::exists(staging_of(output)));
    EXPECT_FALSE(fs::exists(lock_file_of(output)));
  }

  test::RandomModels random_{7};
  test::TemporaryDirectory directory_;
  std::shared_ptr<const TensorSource> source_;
};

TEST_F(ConversionTest, WritesAndChecksEveryTensor) {
  const ConversionReport report = convert(conversion());
  EXPECT_EQ(report.digests.size(), 6u);
  EXPECT_EQ(report.reused_bytes, 0u);
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, KilledItLeavesNothingUnderTheNameAndGoesOnWhereItWas) {
  const pid_t child = ::fork();
  if (child == 0) {
    Conversion killed = conversion();
    killed.source = std::make_shared<Watched>(source_, [](const std::string& name) {
      if (name == "t3") ::kill(::getpid(), SIGKILL);
    });
    try {
      convert(killed);
    } catch (...) {
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(directory_ / "out"));

  std::vector<std::string> read;
  Conversion again = conversion();
  again.source =
      std::make_shared<Watched>(source_, [&](const std::string& name) { read.push_back(name); });
  again.reopen = {};
  const ConversionReport report = convert(again);
  EXPECT_GT(report.reused_bytes, 3u * 8192);
  EXPECT_THAT(read, testing::Not(testing::Contains("t2"))) << "finished files are not made again";
  EXPECT_THAT(read, testing::Contains("t3"));
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, FilesOfAnotherConversionAreNotTakenUp) {
  const fs::path staging = staging_of(directory_ / "out");
  fs::create_directories(staging);
  write_file_atomic(staging / "model-00001-of-00006.safetensors", "of something else");
  write_file_atomic(staging / kConversionFile, "{}");
  EXPECT_EQ(convert(conversion()).reused_bytes, 0u);
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, AChangedSourceStartsOver) {
  Conversion first = conversion();
  first.source = std::make_shared<Watched>(source_, [](const std::string& name) {
    if (name == "t3") throw_interrupted(SIGINT, "stopped");
  });
  EXPECT_THROW(convert(first), InterruptedError);
  EXPECT_TRUE(fs::exists(staging_of(directory_ / "out")));
  write_file_atomic(directory_ / "source/model.bin", "other weights");
  EXPECT_EQ(convert(conversion()).reused_bytes, 0u);
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, ASourceThatChangesMeanwhileIsNoticed) {
  Conversion changing = conversion();
  changing.source = std::make_shared<Watched>(source_, [&](const std::string& name) {
    if (name == "t5") write_file_atomic(directory_ / "source/model.bin", "rewritten");
  });
  EXPECT_THAT(test::error_of<IoError>([&] { convert(changing); }), HasSubstr("source changed"));
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  EXPECT_FALSE(fs::exists(staging_of(directory_ / "out")));
}

TEST_F(ConversionTest, AnExistingOutputIsReplacedOnlyWhenAskedFor) {
  fs::create_directory(directory_ / "out");
  write_file_atomic(directory_ / "out/mine.txt", "mine");
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(conversion()); }),
              HasSubstr("exists and is not empty"));
  EXPECT_EQ(read_file(directory_ / "out/mine.txt"), "mine");
  Conversion replacing = conversion();
  replacing.overwrite = true;
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(replacing); }),
              HasSubstr("mine.txt is no part of one"));
  EXPECT_EQ(read_file(directory_ / "out/mine.txt"), "mine");
  fs::remove(directory_ / "out/mine.txt");
  write_file_atomic(directory_ / "out/config.json", "{}");
  write_file_atomic(directory_ / "out/model-00009-of-00009.safetensors", "old");
  convert(replacing);
  expect_whole(directory_ / "out");
  EXPECT_FALSE(fs::exists(directory_ / "out/config.json"));
}

TEST_F(ConversionTest, OverwritingNeverTakesOtherIterationsOrTrainingStatesAlong) {
  for (const char* other : {"iter_0000050", "checkpoint-6", "optim", "logging.jsonl"}) {
    fs::create_directories(directory_ / "out" / other);
    Conversion replacing = conversion();
    replacing.overwrite = true;
    EXPECT_THAT(test::error_of<UsageError>([&] { convert(replacing); }), HasSubstr(other));
    fs::remove_all(directory_ / "out");
  }
}

TEST_F(ConversionTest, ALinkToAnotherDiskStaysALink) {
  fs::create_directory(directory_ / "far");
  fs::create_directory_symlink(directory_ / "far", directory_ / "out");
  convert(conversion());
  EXPECT_TRUE(fs::is_symlink(directory_ / "out"));
  EXPECT_TRUE(fs::exists(directory_ / "far/model.safetensors.index.json"));
}

TEST_F(ConversionTest, AnOutputThatAppearsMeanwhileIsKept) {
  Conversion late = conversion();
  late.source = std::make_shared<Watched>(source_, [&](const std::string& name) {
    if (name != "t5" || fs::exists(directory_ / "out")) return;
    fs::create_directory(directory_ / "out");
    write_file_atomic(directory_ / "out/mine.txt", "mine");
  });
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(late); }), HasSubstr("exists"));
  EXPECT_EQ(read_file(directory_ / "out/mine.txt"), "mine");
  fs::remove_all(directory_ / "out");
  EXPECT_GT(convert(conversion()).reused_bytes, 6u * 8192) << "what was finished is not lost";
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, AFolderOfTheUsersIsNotTakenForAnUnfinishedConversion) {
  const fs::path mine = staging_of(directory_ / "out");
  fs::create_directory(mine);
  write_file_atomic(mine / "thesis.txt", "years of work");
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(conversion()); }),
              HasSubstr("is in the way"));
  EXPECT_EQ(read_file(mine / "thesis.txt"), "years of work");
}

// Killed behind the renaming: the record, the mark, or what was replaced may be left.
TEST_F(ConversionTest, KilledBehindTheLastRenameItIsDoneNotInTheWay) {
  const fs::path output = directory_ / "out", mark = staging_of(output).string() + ".done";
  std::string identity;
  Conversion first = conversion();
  first.write_companions = [&](const fs::path& staging) {
    identity = read_file(staging / kConversionFile);
  };
  convert(first);
  EXPECT_FALSE(fs::exists(mark));
  write_file_atomic(mark, identity);
  write_file_atomic(output / kConversionFile, identity);
  const ConversionReport report = convert(first);
  EXPECT_TRUE(report.was_complete);
  expect_whole(output);
  EXPECT_FALSE(fs::exists(mark));
  write_file_atomic(mark, identity + "of another conversion");
  fs::remove(output / kConversionFile);
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(first); }), HasSubstr("exists"));
}

TEST_F(ConversionTest, GivenTwiceItIsUpToDateWhereAllIsAsItWasAndElseAnError) {
  Conversion twice = conversion();
  twice.target.texts.emplace_back("latest_checkpointed_iteration.txt", "1");
  twice.write_companions = [](const fs::path& at) { write_file_atomic(at / "config.json", "{}"); };
  const auto is_refused = [&] {
    EXPECT_FALSE(is_up_to_date(twice));
    return test::error_of<UsageError>([&] { convert(twice); }).find("exists") != std::string::npos;
  };
  EXPECT_FALSE(is_up_to_date(twice));
  EXPECT_FALSE(convert(twice).was_up_to_date);
  EXPECT_TRUE(convert(twice).was_up_to_date);
  expect_whole(twice.output);
  twice.settings = "other";
  EXPECT_TRUE(is_refused());
  twice.settings.clear();
  // Elsewhere it is the same result: what was asked for lies there.
  fs::rename(twice.output, directory_ / "moved");
  twice.output = directory_ / "moved";
  EXPECT_TRUE(convert(twice).was_up_to_date);
  // A training has written there since; a file was lost; another one was cut.
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>{"latest_checkpointed_iteration.txt", "2"},
        {"config.json", ""},
        {"model-00002-of-00006.safetensors", "cut"}}) {
    const std::string whole = read_file(twice.output / name);
    fs::remove(twice.output / name);
    EXPECT_TRUE(is_refused()) << name;
    write_file_atomic(twice.output / name, text);
    EXPECT_TRUE(is_refused()) << name;
    write_file_atomic(twice.output / name, whole);
    EXPECT_TRUE(is_up_to_date(twice)) << name;
  }
  twice.overwrite = true;
  EXPECT_FALSE(convert(twice).was_up_to_date) << "asked for again";
  twice.overwrite = false;
  write_file_atomic(directory_ / "source/model.bin", "stands for other weights");
  EXPECT_TRUE(is_refused());
}

TEST_F(ConversionTest, WhereTheCallerDecidesASignalEndsNothing) {
  watch_interrupts();
  Conversion beside = conversion();
  beside.ends_on_signal = false;
  beside.source = std::make_shared<Watched>(source_, [](const std::string& name) {
    if (name == "t2" && pending_interrupt() == 0) ::raise(SIGTERM);
  });
  convert(beside);
  clear_interrupt();
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, KilledWhileTheOldOutputIsRemovedItIsDoneAgain) {
  const fs::path output = directory_ / "out", staging = staging_of(output);
  std::string identity;
  Conversion replacing = conversion();
  replacing.overwrite = true;
  replacing.write_companions = [&](const fs::path& at) {
    identity = read_file(at / kConversionFile);
  };
  convert(replacing);
  write_file_atomic(staging.string() + ".done", identity + "replaces\n");
  fs::create_directory(staging);
  write_file_atomic(staging / "model.safetensors", "of the old one");
  EXPECT_FALSE(convert(replacing).was_complete) << "what is there may be the old one";
  expect_whole(output);
  EXPECT_FALSE(fs::exists(staging.string() + ".done"));

  // Given without --overwrite: a result that is whole is done, and nothing is left beside it.
  write_file_atomic(staging.string() + ".done", identity + "replaces\n");
  fs::create_directory(staging);
  write_file_atomic(staging / "model.safetensors", "of the old one");
  replacing.overwrite = false;
  EXPECT_TRUE(convert(replacing).was_complete);
  expect_whole(output);
  EXPECT_FALSE(fs::exists(staging));
  EXPECT_FALSE(fs::exists(staging.string() + ".done"));
}

// The old file has the new one's name and may have its size: killed before the exchange or behind
// it, with --overwrite or, its output removed, without.
TEST_F(ConversionTest, AReplacedFileIsNeverTakenForAFinishedOne) {
  const fs::path output = directory_ / "out.safetensors", staging = staging_of(output);
  std::string identity;
  Conversion replacing = conversion();
  replacing.target = plan_hf_directory(source_->tensors(), 1 << 20);
  ASSERT_EQ(replacing.target.layout.files.size(), 1u);
  const std::string name = replacing.target.layout.files[0];
  replacing.target.texts.clear();
  replacing.output = output;
  replacing.output_is_file = true;
  replacing.reopen = {};
  replacing.overwrite = true;
  replacing.write_companions = [&](const fs::path& at) {
    identity = read_file(at / kConversionFile);
  };
  convert(replacing);
  const std::string whole = read_file(output);
  for (const bool overwrite : {true, false}) {
    write_file_atomic(staging.string() + ".done", identity + "replaces\n");
    fs::create_directory(staging);
    write_file_atomic(staging / kConversionFile, identity);
    write_file_atomic(staging / name, std::string(whole.size(), 'o'));
    if (!overwrite) fs::remove(output);
    replacing.overwrite = overwrite;
    EXPECT_EQ(convert(replacing).reused_bytes, 0u);
    EXPECT_TRUE(read_file(output) == whole) << overwrite;
    EXPECT_FALSE(fs::exists(staging));
    EXPECT_FALSE(fs::exists(staging.string() + ".done"));
  }
}

TEST_F(ConversionTest, OtherSettingsStartOver) {
  Conversion first = conversion();
  first.settings = "alpha 8";
  first.source = std::make_shared<Watched>(source_, [](const std::string& name) {
    if (name == "t3") throw_interrupted(SIGINT, "stopped");
  });
  EXPECT_THROW(convert(first), InterruptedError);
  Conversion second = conversion();
  second.settings = "alpha 64";
  EXPECT_EQ(convert(second).reused_bytes, 0u);
}

TEST_F(ConversionTest, LeftoversOfAKilledAttemptAreNotPublished) {
  Conversion first = conversion();
  first.source = std::make_shared<Watched>(source_, [](const std::string& name) {
    if (name == "t3") throw_interrupted(SIGINT, "stopped");
  });
  EXPECT_THROW(convert(first), InterruptedError);
  const fs::path staging = staging_of(directory_ / "out");
  write_file_atomic(staging / "tokenizer.json", "of the attempt before");
  write_file_atomic(staging / "model-00001-of-00006.safetensors", "cut off");
  EXPECT_LT(convert(conversion()).reused_bytes, 3u * 8192);
  expect_whole(directory_ / "out");
  EXPECT_FALSE(fs::exists(directory_ / "out/tokenizer.json"));
}

TEST_F(ConversionTest, TheSourceIsNeverTheOutput) {
  for (const char* output : {"source", "source/", "source/../source", "."}) {
    Conversion onto = conversion();
    onto.output = directory_ / output;
    onto.overwrite = true;
    EXPECT_THAT(test::error_of<UsageError>([&] { convert(onto); }), HasSubstr("holds the source"))
        << output;
  }
  EXPECT_EQ(read_file(directory_ / "source/model.bin"), "stands for the weights");
}

TEST_F(ConversionTest, ACopyThatReadsBackDifferentlyIsRefusedAndRemoved) {
  Conversion wrong = conversion();
  wrong.reopen = [&](const fs::path&) { return random_.source(source_->tensors()); };
  EXPECT_THAT(test::error_of<IoError>([&] { convert(wrong); }),
              testing::AllOf(HasSubstr("not what was converted"), HasSubstr("t0")));
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  EXPECT_FALSE(fs::exists(staging_of(directory_ / "out")));
}

TEST_F(ConversionTest, AFullDiskIsAnErrorThatKeepsFinishedFiles) {
  const int code = test::with_file_size_limit(4096, [&] {
    try {
      convert(conversion());
    } catch (const IoError&) {
      return 8;
    }
    return 0;
  });
  EXPECT_EQ(code, 8);
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  convert(conversion());
  expect_whole(directory_ / "out");
}

TEST_F(ConversionTest, AWeightThatHalfPrecisionCannotHoldIsAnErrorNotInfinity) {
  Conversion narrow = conversion();
  std::vector<float> numbers(32 * 64, 1.0f);
  numbers[70] = 1e6f;
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  narrow.source =
      std::make_shared<MemorySource>(std::vector<std::pair<TensorInfo, std::vector<std::byte>>>{
          {{"t0", DType::kF32, {32, 64}}, bytes}});
  narrow.target = plan_hf_directory({{"t0", DType::kF16, {32, 64}}}, 1 << 20);
  EXPECT_THAT(test::error_of<ModelError>([&] { convert(narrow); }),
              testing::AllOf(HasSubstr("t0 holds 1e+06"), HasSubstr("65504")));
  EXPECT_FALSE(fs::exists(directory_ / "out"));
}

TEST_F(ConversionTest, TwoAtOnceAreRefused) {
  const FileLock lock = lock_output(directory_ / "out");  // as init and merge take it
  EXPECT_THAT(test::error_of<IoError>([&] { convert(conversion()); }), HasSubstr("is making it"));
}

TEST_F(ConversionTest, WhoHadTheLockBeforeDecidesWhetherTheOutputExists) {
  before_flock = [&] {
    fs::create_directory(directory_ / "out");
    write_file_atomic(directory_ / "out/config.json", "of the other");
  };
  bool was_read = false;
  Conversion second = conversion();
  second.source = std::make_shared<Watched>(source_, [&](const std::string&) { was_read = true; });
  EXPECT_THAT(test::error_of<UsageError>([&] { convert(second); }), HasSubstr("exists"));
  EXPECT_FALSE(was_read);
  EXPECT_FALSE(fs::exists(staging_of(directory_ / "out")));
  EXPECT_FALSE(fs::exists(staging_of(directory_ / "out").string() + ".done"));
}

}  // namespace
}  // namespace danlu::weights
