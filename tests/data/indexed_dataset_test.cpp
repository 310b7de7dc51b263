#include "data/megatron/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "data/indexed_test_support.h"
#include "data/megatron/describe.h"
#include "data/megatron/indexed_layout.h"
#include "support/file_size_limit.h"
#include "support/shared_data.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IndexedWriter, AFullDiskLeavesTheOldDataSetInPlace) {
  const ScratchFolder folder;
  write_documents(folder / "d", {{1, 2, 3}});
  const std::string bin = read_file(folder / "d.bin"), idx = read_file(folder / "d.idx");
  // The tokens fit (16 kB), their index (160 kB) does not.
  const int code = test::with_file_size_limit(100'000, [&] {
    try {
      write_documents(folder / "d", std::vector<std::vector<int32_t>>(8000, {7}), TokenType::kU16);
    } catch (const IoError&) {
      return 42;
    }
    return 0;
  });
  EXPECT_EQ(code, 42);
  EXPECT_TRUE(read_file(folder / "d.bin") == bin);
  ASSERT_TRUE(fs::exists(folder / "d.idx"));
  EXPECT_TRUE(read_file(folder / "d.idx") == idx);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2) << "nothing is left over";
}

TEST(IndexedDataset, WritesTheBytesTheFormatPrescribes) {
  const ScratchFolder folder;
  IndexedWriter writer(folder / "d", TokenType::kU16);
  writer.add_sequence(std::vector<int32_t>{1, 258});
  writer.add_sequence(std::vector<int32_t>{65535});
  writer.end_document();
  writer.end_document();  // an empty document
  writer.commit();
  EXPECT_EQ(read_file(folder / "d.bin"), std::string("\x01\x00\x02\x01\xff\xff", 6));
  std::string expected("MMIDIDX\0\0", 9);
  const auto put = [&](auto value) {
    expected.append(reinterpret_cast<char*>(&value), sizeof value);
  };
  put(uint64_t{1});
  put(uint8_t{8});
  put(uint64_t{2});  // sequences
  put(uint64_t{3});  // document bounds
  put(int32_t{2});
  put(int32_t{1});
  put(int64_t{0});
  put(int64_t{4});
  put(int64_t{0});
  put(int64_t{2});
  put(int64_t{2});
  EXPECT_EQ(read_file(folder / "d.idx"), expected);
}

TEST(IndexedDataset, ReadsBackEveryIntegerType) {
  const ScratchFolder folder;
  for (const TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32,
                               TokenType::kI64, TokenType::kU16}) {
    write_documents(folder / "d", {{1, 2, 3}, {}, {127}}, type);
    const IndexedDataset dataset(folder / "d");
    EXPECT_EQ(dataset.type(), type);
    EXPECT_EQ(dataset.num_sequences(), 3);
    EXPECT_EQ(dataset.num_documents(), 3);
    EXPECT_EQ(dataset.num_tokens(), 4);
    EXPECT_THAT(dataset.tokens(0), ElementsAre(1, 2, 3));
    EXPECT_THAT(dataset.tokens(1), ElementsAre());
    EXPECT_THAT(dataset.tokens(2), ElementsAre(127));
    int32_t middle[1];
    dataset.read(0, 1, 1, middle);
    EXPECT_EQ(middle[0], 2);
  }
}

TEST(IndexedDataset, ManyDocumentsAtOnceAreThoseAddedOneByOne) {
  const ScratchFolder folder;
  std::vector<std::vector<int32_t>> documents{{1, 2, 3}, {}, {127}};
  documents.emplace_back(400'000, 7);  // more than the writer keeps in memory
  documents.push_back({5});
  std::vector<int32_t> tokens, lengths;
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    lengths.push_back(static_cast<int32_t>(document.size()));
  }
  for (const TokenType type : {TokenType::kI32, TokenType::kU16}) {
    write_documents(folder / "one_by_one", documents, type);
    IndexedWriter writer(folder / "at_once", type);
    writer.add_documents(std::span(tokens).first(3), std::span(lengths).first(1));
    writer.add_documents(std::span(tokens).subspan(3), std::span(lengths).subspan(1));
    EXPECT_EQ(writer.num_documents(), 5);
    EXPECT_EQ(writer.num_tokens(), 400'005);
    writer.commit();
    for (const char* ending : {".bin", ".idx"}) {
      EXPECT_TRUE(read_file(folder / (std::string("one_by_one") + ending)) ==
                  read_file(folder / (std::string("at_once") + ending)))
          << ending;
    }
  }
}

TEST(IndexedDataset, RefusesATokenThatDoesNotFitAndNamesIt) {
  const ScratchFolder folder;
  IndexedWriter writer(folder / "d", TokenType::kU16);
  writer.add_document(std::vector<int32_t>{1});
  const std::string message =
      message_of<DataError>([&] { writer.add_sequence(std::vector<int32_t>{5, -100}); });
  EXPECT_THAT(message, HasSubstr("token 1 of sequence 1 is -100, uint16 holds 0..65535"));
}

TEST(IndexedDataset, LeavesNothingBehindWithoutCommitAndKeepsTheOldFiles) {
  const ScratchFolder folder;
  write_documents(folder / "d", {{1, 2}});
  {
    IndexedWriter writer(folder / "d", TokenType::kI32);
    writer.add_document(std::vector<int32_t>{9, 9, 9});
  }
  EXPECT_THAT(IndexedDataset(folder / "d").tokens(0), ElementsAre(1, 2));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2u);
}

TEST(IndexedDataset, MergesByAppendingSequencesAndShiftingDocuments) {
  const ScratchFolder folder;
  {
    IndexedWriter writer(folder / "a", TokenType::kI32);
    writer.add_sequence(std::vector<int32_t>{1, 2});
    writer.add_sequence(std::vector<int32_t>{3});
    writer.end_document();
    writer.commit();
  }
  write_documents(folder / "b", {{4}, {5, 6}});
  merge_indexed_datasets({folder / "a", folder / "b"}, folder / "both");
  const IndexedDataset both(folder / "both");
  EXPECT_EQ(both.num_sequences(), 4);
  EXPECT_EQ(both.num_documents(), 3);
  EXPECT_THAT((std::vector<int64_t>{both.document_start(0), both.document_start(1),
                                    both.document_start(2), both.document_start(3)}),
              ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(both.tokens(3), ElementsAre(5, 6));
}

TEST(IndexedDataset, RefusesToMergeDifferentTypes) {
  const ScratchFolder folder;
  write_documents(folder / "a", {{1}}, TokenType::kU16);
  write_documents(folder / "b", {{1}}, TokenType::kI32);
  EXPECT_THAT(message_of<DataError>(
                  [&] { merge_indexed_datasets({folder / "a", folder / "b"}, folder / "both"); }),
              HasSubstr("holds int32, cannot be appended"));
  EXPECT_FALSE(fs::exists(folder / "both.idx"));
}

TEST(IndexedDataset, RefusesToMergeIntoAnInput) {
  const ScratchFolder folder;
  write_documents(folder / "a", {{1}});
  EXPECT_THAT(
      message_of<UsageError>([&] { merge_indexed_datasets({folder / "a"}, folder / "a.idx"); }),
      HasSubstr("both input and output"));
}

/// Overwrites bytes of d.idx (made from three documents of 3, 0 and 1 int32 tokens) and opens it.
std::string error_after(const std::function<void(std::string&)>& damage) {
  const ScratchFolder folder;
  write_documents(folder / "d", {{1, 2, 3}, {}, {7}});
  std::string index = read_file(folder / "d.idx");
  damage(index);
  write_file_atomic(folder / "d.idx", index);
  return message_of<DataError>([&] { IndexedDataset dataset(folder / "d"); });
}

template <typename T>
std::function<void(std::string&)> set_at(size_t at, T value) {
  return [=](std::string& index) { std::memcpy(index.data() + at, &value, sizeof value); };
}

TEST(IndexedDataset, NamesFileAndNumberOfEveryDamage) {
  constexpr size_t kLengths = 34, kOffsets = 34 + 12, kDocuments = 34 + 36;
  EXPECT_THAT(error_after([](auto& s) { s.clear(); }),
              HasSubstr("at least 34 bytes, this file has 0"));
  EXPECT_THAT(error_after(set_at<char>(0, 'X')), HasSubstr("magic MMIDIDX"));
  EXPECT_THAT(error_after(set_at<uint64_t>(9, 2)), HasSubstr("version must be 1, got 2"));
  EXPECT_THAT(error_after(set_at<uint8_t>(17, 9)), HasSubstr("code must be 1..8, got 9"));
  EXPECT_THAT(error_after(set_at<uint64_t>(18, ~0ull)),
              HasSubstr("18446744073709551615 sequences"));
  EXPECT_THAT(error_after(set_at<uint64_t>(26, ~0ull)), HasSubstr("document bounds do not fit"));
  EXPECT_THAT(error_after(set_at<uint64_t>(26, 0)), HasSubstr("0 document bounds"));
  EXPECT_THAT(error_after([](auto& s) { s.resize(s.size() - 1); }), HasSubstr("do not fit"));
  EXPECT_THAT(error_after([](auto& s) { s += "12"; }),
              HasSubstr("2 bytes follow the document bounds"));
  EXPECT_THAT(error_after(set_at<int32_t>(kLengths, -3)), HasSubstr("sequence 0 has length -3"));
  EXPECT_THAT(error_after(set_at<int32_t>(kLengths + 8, 2)),
              HasSubstr("sequence 2 lies at bytes [12, 12+8)"));
  EXPECT_THAT(error_after(set_at<int64_t>(kOffsets, -4)),
              HasSubstr("sequence 0 lies at bytes [-4"));
  EXPECT_THAT(error_after(set_at<int64_t>(kOffsets, INT64_MAX)), HasSubstr("sequence 0 lies at"));
  EXPECT_THAT(error_after(set_at<int64_t>(kDocuments, 1)),
              HasSubstr("document 0 must start at sequence 0, got 1"));
  EXPECT_THAT(error_after(set_at<int64_t>(kDocuments + 8, 3)),
              HasSubstr("document 2 starts at sequence 2, before"));
  EXPECT_THAT(error_after(set_at<int64_t>(kDocuments + 24, 9)),
              HasSubstr("ends at sequence 9, there are 3"));
}

TEST(IndexedDataset, ReadsModeBytesOfMultimodalData) {
  const ScratchFolder folder;
  write_documents(folder / "d", {{1}, {2}});
  write_file_atomic(folder / "d.idx", read_file(folder / "d.idx") + std::string("\x00\x01", 2));
  const IndexedDataset dataset(folder / "d");
  ASSERT_TRUE(dataset.has_modes());
  EXPECT_EQ(dataset.mode(0), 0);
  EXPECT_EQ(dataset.mode(1), 1);
}

TEST(IndexedDataset, MissingFilesAreNamed) {
  const ScratchFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { IndexedDataset dataset(folder / "none"); }),
              HasSubstr("none.idx"));
  write_documents(folder / "d", {{1}});
  fs::remove(folder / "d.bin");
  EXPECT_THAT(message_of<IoError>([&] { IndexedDataset dataset(folder / "d"); }),
              HasSubstr("d.bin"));
  EXPECT_EQ(IndexedDataset(folder / "d", IndexedDataset::Open::kIndexOnly).num_tokens(), 1);
}

TEST(IndexedDataset, ContentHashSeesTokensAndIndex) {
  const ScratchFolder folder;
  write_documents(folder / "a", {{1, 2}, {3}});
  write_documents(folder / "b", {{1, 2}, {4}});
  write_documents(folder / "c", {{1}, {2, 3}});
  const uint64_t hash = IndexedDataset(folder / "a").content_hash();
  EXPECT_NE(hash, IndexedDataset(folder / "b").content_hash());
  EXPECT_NE(hash, IndexedDataset(folder / "c").content_hash());
}

TEST(IndexedDataset, DescribesItselfAndASequence) {
  const ScratchFolder folder;
  write_documents(folder / "d", {{1, 2, 3}, {}, {7}});
  const std::string text = describe_dataset((folder / "d.idx").string(), 0);
  EXPECT_THAT(text, HasSubstr("sequences: 3, documents: 3, tokens: 4"));
  EXPECT_THAT(text, HasSubstr("mean 1.3, std 1.2, min 0, max 3"));
  EXPECT_THAT(text, HasSubstr("ids: 1 2 3\n"));
  EXPECT_THAT(message_of<UsageError>([&] { describe_dataset((folder / "d").string(), 3); }),
              HasSubstr("sample 3 asked for, there are 3"));
}

struct RealFile {
  const char* path;
  TokenType type;
  int64_t sequences, documents, tokens;
};

// Counts read with numpy.frombuffer at the offsets of the format.
constexpr RealFile kRealFiles[] = {
    {"bigscience/tests/data/gpt2/ag_news_prompt_inputs_document", TokenType::kI32, 100, 100, 5945},
    {"bigscience/tests/data/gpt2/ag_news_prompt_targets_document", TokenType::kI32, 100, 100, 244},
    {"bigscience/tests/data/gpt2/meg-gpt2-openwebtext_text_document", TokenType::kU16, 1000, 1000,
     1361845},
    {"bigscience/tests/data/gpt2_uint16_version/ag_news_prompt_inputs_document", TokenType::kU16,
     100, 100, 6019},
    {"bigscience/tests/data/t0/ag_news_prompt_text_document", TokenType::kU16, 100, 100, 9247},
    {"dailiuyao/my-bert_text_sentence", TokenType::kU16, 7860, 35, 234432},
    {"dailiuyao/my-gpt2_text_document", TokenType::kU16, 35, 35, 215743},
};

TEST(IndexedDataset, ReadsFilesThatMegatronWroteAndWritesThemBackByteForByte) {
  DANLU_REQUIRES_SHARED();
  for (const RealFile& real : kRealFiles) {
    SCOPED_TRACE(real.path);
    const fs::path prefix = test::shared_dir() / "data" / "megatron_indexed" / real.path;
    const IndexedDataset dataset(prefix);
    EXPECT_EQ(dataset.type(), real.type);
    EXPECT_EQ(dataset.num_sequences(), real.sequences);
    EXPECT_EQ(dataset.num_documents(), real.documents);
    EXPECT_EQ(dataset.num_tokens(), real.tokens);
    const ScratchFolder folder;
    IndexedWriter writer(folder / "copy", dataset.type());
    for (int64_t d = 0; d < dataset.num_documents(); ++d) {
      for (int64_t s = dataset.document_start(d); s < dataset.document_start(d + 1); ++s) {
        writer.add_sequence(dataset.tokens(s));
      }
      writer.end_document();
    }
    writer.commit();
    EXPECT_TRUE(read_file(folder / "copy.idx") == read_file(prefix.string() + ".idx"));
    EXPECT_TRUE(read_file(folder / "copy.bin") == read_file(prefix.string() + ".bin"));
  }
}

}  // namespace
}  // namespace danlu::data
