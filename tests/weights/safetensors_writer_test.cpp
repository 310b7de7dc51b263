// Saving: what we write is what was given, another reader agrees, and a failed save loses nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/hf/safetensors_header.h"

namespace danlu::weights {
namespace {

using test::error_of;
using test::TemporaryDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Named {
  std::vector<TensorInfo> infos;
  std::vector<std::string> bytes;

  void add(std::string name, DType dtype, std::vector<int64_t> shape, std::mt19937_64& random) {
    infos.push_back({std::move(name), dtype, std::move(shape)});
    std::string content(infos.back().size_bytes(), 0);
    for (char& c : content) c = static_cast<char>(random());
    bytes.push_back(std::move(content));
  }
  void save(const std::filesystem::path& directory, const SaveOptions& options = {}) const {
    save_safetensors(directory, infos, [&](size_t i) { return test::as_bytes(bytes[i]); }, options);
  }
};

std::vector<std::string> file_names(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  char chunk[4096];
  for (size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;)
    text.append(chunk, got);
  return ::pclose(pipe) == 0 ? text : "failed";
}

/// Random names, types, shapes (with empty and scalar ones) and shard limits.
Named random_tensors(std::mt19937_64& random) {
  const DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                          DType::kU8,  DType::kI16, DType::kI32, DType::kI64,  DType::kBool,
                          DType::kU16, DType::kU32, DType::kU64};
  Named tensors;
  const size_t count = random() % 12;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int64_t> shape(random() % 4);
    for (int64_t& size : shape) size = static_cast<int64_t>(random() % 7);
    tensors.add(
        "t" + std::to_string(random() % 1000) + "." + std::to_string(i) + (i % 3 ? "" : "\"\\é权"),
        kTypes[random() % 13], shape, random);
  }
  return tensors;
}

TEST(SaveSafetensors, RoundTripsRandomTensorsAndShardSizes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const TemporaryDirectory directory;
    const Named tensors = random_tensors(random);
    tensors.save(directory.path(), {.max_shard_bytes = 1 + random() % 600});
    const auto source = open_weights(directory.path());
    ASSERT_EQ(source->tensors().size(), tensors.infos.size());
    for (size_t i = 0; i < tensors.infos.size(); ++i) {
      const TensorInfo* info = source->find(tensors.infos[i].name);
      ASSERT_NE(info, nullptr) << tensors.infos[i].name;
      EXPECT_EQ(info->dtype, tensors.infos[i].dtype);
      EXPECT_EQ(info->shape, tensors.infos[i].shape);
      EXPECT_EQ(test::read_tensor(*source, info->name), tensors.bytes[i]);
      if (info->num_elements() > 2) {
        const int64_t end = info->num_elements() - 1;
        const size_t width = dtype_size_bytes(info->dtype);
        EXPECT_EQ(test::read_tensor_range(*source, info->name, 1, end),
                  tensors.bytes[i].substr(width, static_cast<size_t>(end - 1) * width));
      }
    }
  }
}

TEST(SaveSafetensors, AnotherReaderFindsTheSameTensors) {
  if (std::system("python3 -c 'pass' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to check with";
  std::mt19937_64 random(3);
  const TemporaryDirectory directory;
  Named tensors = random_tensors(random);
  while (tensors.infos.size() < 5) tensors = random_tensors(random);
  tensors.save(directory.path(), {.max_shard_bytes = 300});
  const std::string script = std::string(DANLU_SOURCE_DIR) + "/tests/weights/check_safetensors.py";
  const std::string text =
      output_of("python3 '" + script + "' " + directory.path().string() + "/*.safetensors");
  ASSERT_NE(text, "failed");
  const Json found = Json::parse(text);
  ASSERT_EQ(found.size(), tensors.infos.size());
  for (size_t i = 0; i < tensors.infos.size(); ++i) {
    const Json& entry = found.at(tensors.infos[i].name);
    EXPECT_EQ(entry[0], dtype_name(tensors.infos[i].dtype));
    EXPECT_EQ(entry[1].get<std::vector<int64_t>>(), tensors.infos[i].shape);
    write_file_atomic(directory / "raw", tensors.bytes[i]);
    EXPECT_EQ(entry[2].get<std::string>(),
              output_of("sha256sum < " + (directory / "raw").string()).substr(0, 64));
  }
}

TEST(SaveSafetensors, FileOrderIsTheReferenceWriters) {
  // Wide types first, then names: U64 > I64 > F64 > F32 > BF16 > F16 > U8 > BOOL.
  const std::vector<TensorInfo> tensors = {{"a", DType::kBool, {}}, {"b", DType::kBF16, {}},
                                           {"z", DType::kF32, {}},  {"c", DType::kF32, {}},
                                           {"d", DType::kU64, {}},  {"e", DType::kF16, {}}};
  EXPECT_THAT(safetensors_file_order(tensors), ElementsAre(4, 3, 2, 1, 5, 0));
}

TEST(SaveSafetensors, ShardsAreNamedCutAndIndexedAsHuggingFaceDoes) {
  std::mt19937_64 random(1);
  const TemporaryDirectory directory;
  Named tensors;
  tensors.add("w.a", DType::kU8, {6}, random);
  tensors.add("w.c", DType::kU8, {4}, random);
  tensors.add("w.b", DType::kU8, {20}, random);  // larger than a shard: alone
  tensors.add("w.d", DType::kU8, {1}, random);
  tensors.save(directory.path(), {.max_shard_bytes = 10});
  EXPECT_THAT(file_names(directory.path()),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(read_file(directory / "model.safetensors.index.json"), R"({
  "metadata": {
    "total_parameters": 31,
    "total_size": 31
  },
  "weight_map": {
    "w.a": "model-00001-of-00003.safetensors",
    "w.b": "model-00002-of-00003.safetensors",
    "w.c": "model-00001-of-00003.safetensors",
    "w.d": "model-00003-of-00003.safetensors"
  }
}
)");
}

TEST(SaveSafetensors, ASecondSaveLeavesNothingOfTheFirst) {
  std::mt19937_64 random(1);
  const TemporaryDirectory directory;
  Named tensors;
  for (const char* name : {"a", "b", "c"}) tensors.add(name, DType::kU8, {10}, random);
  write_file_atomic(directory / "model-notes.safetensors.txt", "keep");
  tensors.save(directory.path());
  tensors.save(directory.path(), {.max_shard_bytes = 10});
  EXPECT_FALSE(std::filesystem::exists(directory / "model.safetensors"));
  tensors.save(directory.path(), {.max_shard_bytes = 20});
  EXPECT_EQ(open_weights(directory.path())->tensors().size(), 3u);
  tensors.save(directory.path());
  EXPECT_THAT(file_names(directory.path()),
              ElementsAre("model-notes.safetensors.txt", "model.safetensors"));
}

TEST(SaveSafetensors, AnInterruptedSaveLeavesTheOldWeightsAlone) {
  std::mt19937_64 random(1);
  const TemporaryDirectory directory;
  Named old_tensors, new_tensors;
  old_tensors.add("a", DType::kU8, {10}, random);
  for (const char* name : {"a", "b"}) new_tensors.add(name, DType::kU8, {10}, random);
  old_tensors.save(directory.path());
  const std::string before = read_file(directory / "model.safetensors");
  EXPECT_THROW(save_safetensors(directory.path(), new_tensors.infos,
                                [&](size_t i) -> std::span<const std::byte> {
                                  if (i == 1) throw NumericError("broken off");
                                  return test::as_bytes(new_tensors.bytes[i]);
                                },
                                {.max_shard_bytes = 10}),
               NumericError);
  EXPECT_THAT(file_names(directory.path()), ElementsAre("model.safetensors"));
  EXPECT_EQ(read_file(directory / "model.safetensors"), before);
}

TEST(SaveSafetensors, AFullDiskIsAnErrorAndLeavesTheOldWeightsAlone) {
  std::mt19937_64 random(1);
  const TemporaryDirectory directory;
  Named old_tensors, big;
  old_tensors.add("a", DType::kU8, {10}, random);
  big.add("a", DType::kU8, {1 << 22}, random);
  old_tensors.save(directory.path());
  const std::string before = read_file(directory / "model.safetensors");
  // A limit on the file size makes write() fail half way, as a full disk does.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1 << 20, limit.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string error;
  try {
    big.save(directory.path());
  } catch (const IoError& e) {
    error = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(error, HasSubstr("cannot write"));
  EXPECT_THAT(file_names(directory.path()), ElementsAre("model.safetensors"));
  EXPECT_EQ(read_file(directory / "model.safetensors"), before);
}

TEST(SaveSafetensors, TooLittleFreeSpaceIsFoundBeforeWriting) {
  const TemporaryDirectory directory;
  const std::vector<TensorInfo> huge = {{"a", DType::kU8, {int64_t{1} << 60}}};
  bool asked = false;
  EXPECT_THAT(error_of<IoError>([&] {
                save_safetensors(directory.path(), huge, [&](size_t) -> std::span<const std::byte> {
                  asked = true;
                  return {};
                });
              }),
              HasSubstr("saving the weights needs"));
  EXPECT_FALSE(asked);
}

TEST(SaveSafetensors, ATensorInPartsIsTheSameFile) {
  const TemporaryDirectory whole, parts;
  const std::string text = "twelve bytes", nothing;
  const std::vector<TensorInfo> infos = {{"a", DType::kU8, {12}}, {"none", DType::kU8, {0}}};
  save_safetensors(whole.path(), infos,
                   [&](size_t i) { return test::as_bytes(i == 0 ? text : nothing); });
  save_safetensors(parts.path(), infos, [&](size_t i, const BytesSink& sink) {
    for (size_t at = 0; i == 0 && at < text.size(); at += 5) {
      const std::string part = text.substr(at, 5);
      sink(test::as_bytes(part));
    }
  });
  EXPECT_EQ(read_file(parts / "model.safetensors"), read_file(whole / "model.safetensors"));
}

TEST(SaveSafetensors, CallersMistakesAreInternalErrors) {
  const TemporaryDirectory directory;
  const std::string four = "1234";
  const auto give = [&](size_t) { return test::as_bytes(four); };
  EXPECT_THAT(error_of<InternalError>(
                  [&] { save_safetensors(directory.path(), {{"a", DType::kU8, {5}}}, give); }),
              HasSubstr("a takes 5 bytes, 4 were given"));
  const TensorInfo twice{"a", DType::kU8, {4}};
  EXPECT_THAT(
      error_of<InternalError>([&] { save_safetensors(directory.path(), {twice, twice}, give); }),
      HasSubstr("given twice"));
  EXPECT_THAT(error_of<IoError>([&] { save_safetensors(directory / "none", {twice}, give); }),
              HasSubstr("no such directory"));
}

}  // namespace
}  // namespace danlu::weights
