// Hostile and damaged torch files: each is an error that says why, and nothing in them runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/pickle_bytes.h"
#include "weights/torch/pickle_reader.h"
#include "weights/torch/torch_contents.h"
#include "weights/torch/zip_reader.h"

namespace danlu::weights::torch_file {
namespace {

using test::as_bytes;
using test::error_of;
using test::little_endian;
using ::testing::HasSubstr;

// --- building files by hand
// --------------------------------------------------------------------------

/// Fields of one zip entry; the defaults make a well-formed one.
struct Entry {
  std::string name, data;
  uint16_t flags = 0, method = 0;
  int64_t size_in_directory = -1;  ///< -1: the true one
  int64_t compressed_size = -1;
  int64_t header_offset = -1;
  bool wrong_crc = false;
};

std::string zip(const std::vector<Entry>& entries, int64_t num_entries = -1) {
  std::string file, directory;
  for (const Entry& entry : entries) {
    const uint64_t offset =
        entry.header_offset >= 0 ? static_cast<uint64_t>(entry.header_offset) : file.size();
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(entry.data.data()), entry.data.size()));
    const uint64_t size = entry.size_in_directory >= 0
                              ? static_cast<uint64_t>(entry.size_in_directory)
                              : entry.data.size();
    const uint64_t compressed =
        entry.compressed_size >= 0 ? static_cast<uint64_t>(entry.compressed_size) : size;
    file += "PK\x03\x04" + little_endian(0, 2) + little_endian(entry.flags, 2) +
            little_endian(entry.method, 2) + little_endian(0, 4) + little_endian(crc, 4) +
            little_endian(compressed, 4) + little_endian(size, 4) +
            little_endian(entry.name.size(), 2) + little_endian(0, 2) + entry.name + entry.data;
    directory += "PK\x01\x02" + little_endian(0, 4) + little_endian(entry.flags, 2) +
                 little_endian(entry.method, 2) + little_endian(0, 4) +
                 little_endian(crc + entry.wrong_crc, 4) + little_endian(compressed, 4) +
                 little_endian(size, 4) + little_endian(entry.name.size(), 2) +
                 little_endian(0, 2 + 2 + 2 + 2) + little_endian(0, 4) + little_endian(offset, 4) +
                 entry.name;
  }
  const uint64_t count = num_entries >= 0 ? static_cast<uint64_t>(num_entries) : entries.size();
  const uint64_t begin = file.size();
  return file + directory + "PK\x05\x06" + little_endian(0, 4) + little_endian(count, 2) +
         little_endian(count, 2) + little_endian(directory.size(), 4) + little_endian(begin, 4) +
         little_endian(0, 2);
}

std::string integer(uint64_t value) { return "\x8a\x08" + little_endian(value, 8); }
std::string tuple(const std::vector<uint64_t>& numbers) {
  std::string items;
  for (const uint64_t number : numbers) items += integer(number);
  return "(" + items + "t";
}
const std::string kOrderedDict = global("collections", "OrderedDict") + ")R";

struct TensorBytes {
  std::string storage_class = "FloatStorage", key = "0";
  uint64_t storage_size = 4, offset = 0;
  std::vector<uint64_t> shape{2, 2}, strides{2, 1};
};

std::string tensor(const TensorBytes& t = {}) {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") +
         global("torch", t.storage_class) + text(t.key) + text("cpu") + integer(t.storage_size) +
         "tQ" + integer(t.offset) + tuple(t.shape) + tuple(t.strides) + "\x89" + kOrderedDict +
         "tR";
}

const std::string kSixteenBytes(16, 'x');

std::vector<Entry> entries_with(const std::string& pickle) {
  return {{"a/data.pkl", pickle}, {"a/data/0", kSixteenBytes}};
}

auto contents(const std::string& file) { return read_torch_contents(as_bytes(file), "f"); }
std::string error_in(const std::string& file) {
  return error_of<ModelError>([&] { contents(file); });
}
std::string pickle_error(const std::string& body) {
  return error_in(zip(entries_with(program(body))));
}

// --- the hand-made file is right, so each deviation below is the reason for its error
// --------------------

TEST(TorchSecurity, TheHandMadeFileItselfIsRead) {
  const std::string file = zip(entries_with(program(dict("w", tensor()))));
  const auto tensors = contents(file);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].info.name, "w");
  EXPECT_EQ(tensors[0].info.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensors[0].storage.size(), 16u);
}

TEST(TorchSecurity, IntegersOfEveryWidthKeepTheirSign) {
  // As keys of a dict they become names: 2-byte LONG1, BININT, BININT1, BININT2, 8-byte LONG1.
  for (const auto& [bytes, name] : std::initializer_list<std::pair<std::string, std::string>>{
           {"\x8a\x02\xd4\xfe", "-300"},
           {std::string("\x8a\x02\xd4\x00", 4), "212"},
           {"J\xff\xff\xff\xff", "-1"},
           {"K\xff", "255"},
           {"M\xff\xff", "65535"},
           {integer(~uint64_t{0}), "-1"}}) {
    const auto tensors = contents(zip(entries_with(program("}(" + bytes + tensor() + "u"))));
    ASSERT_EQ(tensors.size(), 1u);
    EXPECT_EQ(tensors[0].info.name, name);
  }
}

TEST(TorchSecurity, NamesThatRunProgramsAreRefusedEvenUnused) {
  for (const auto& [module, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"os", "system"},
                                                                  {"posix", "system"},
                                                                  {"nt", "system"},
                                                                  {"subprocess", "Popen"},
                                                                  {"builtins", "eval"},
                                                                  {"__builtin__", "exec"},
                                                                  {"builtins", "getattr"},
                                                                  {"sys", "modules"},
                                                                  {"runpy", "_run_code"},
                                                                  {"importlib", "import_module"},
                                                                  {"os.path", "join"},
                                                                  {"pickle", "loads"},
                                                                  {"ctypes", "CDLL"},
                                                                  {"socket", "socket"}}) {
    const std::string expected = std::string("refused: the file asks for ") + module + "." + name;
    EXPECT_THAT(pickle_error(dict("w", global(module, name))), HasSubstr(expected));
    // Not even below settings, nor when built by STACK_GLOBAL, nor when it would be thrown away.
    EXPECT_THAT(
        pickle_error(dict("args", global(module, name) + "(" + text("touch /tmp/x") + "tR")),
        HasSubstr(expected));
    EXPECT_THAT(pickle_error(text(module) + text(name) + "\x93" + "0}"), HasSubstr(expected));
  }
}

TEST(TorchSecurity, GetattrMayOnlyNameAMemberOfAClass) {
  const auto member = [](const std::string& of, const std::string& name) {
    return global("builtins", "getattr") + "q\x07" + of + text(name) + "\x86R";
  };
  const std::string good = member(global("my.code", "Kind"), "first");
  EXPECT_EQ(contents(zip(entries_with(program(dict("args", good))))).size(), 0u);
  EXPECT_THAT(pickle_error(dict("w", good)), HasSubstr("w: holds a Python object my.code.Kind"));
  const std::string refused = "refused: the file asks for builtins.getattr";
  EXPECT_THAT(pickle_error(dict("args", member(text("x"), "first"))), HasSubstr(refused));
  EXPECT_THAT(pickle_error(dict("args", member(good, "first"))), HasSubstr(refused));
  for (const char* name : {"__class__", "a.b", "", "1", "a b"}) {
    EXPECT_THAT(pickle_error(dict("args", member(global("my.code", "Kind"), name))),
                HasSubstr(refused))
        << name;
  }
  // A good use does not cover another one: alone, in a list, as a state, given to a subclass.
  EXPECT_THAT(pickle_error(dict("args", good + "0h\x07")), HasSubstr(refused));
  EXPECT_THAT(pickle_error(dict("args", good + "h\x07\x86")), HasSubstr(refused));
  EXPECT_THAT(pickle_error(dict("args", good + "h\x07" + "b")), HasSubstr(refused));
  EXPECT_THAT(pickle_error(dict("args", good + "h\x07" + "a")), HasSubstr(refused));
  // What it yields is a value, not something to call.
  EXPECT_THAT(pickle_error(dict("args", good + ")R")),
              HasSubstr("a call of something that is not"));
}

TEST(TorchSecurity, UnknownObjectsAreNamedUnlessTheyAreSettings) {
  const std::string object = global("my.code", "Thing") + ")\x81" + dict("x", "N") + "b";
  EXPECT_THAT(
      pickle_error(dict("w", object)),
      HasSubstr("w: holds a Python object my.code.Thing, which is not part of a weight file"));
  EXPECT_THAT(pickle_error(object), HasSubstr("top level: holds a Python object my.code.Thing"));
  EXPECT_THAT(pickle_error(dict("w", global("my.code", "Thing"))), HasSubstr("my.code.Thing"));
  EXPECT_EQ(contents(zip(entries_with(program(dict("args", object))))).size(), 0u);
  EXPECT_EQ(contents(zip(entries_with(program(dict("args", dict("deep", object)))))).size(), 0u);
  EXPECT_THAT(pickle_error(dict("w", global("torch._utils", "_rebuild_qtensor") + ")R")),
              HasSubstr("torch._utils._rebuild_qtensor"));
}

TEST(TorchSecurity, OpcodesOutsideTheSetAreErrors) {
  for (const char opcode : {'i', 'o', 'I', 'L', 'S', 'V', 'F', 'P', 'd', 'p', 'g', '2', '\x82',
                            '\x83', '\x84', '\x92', '\x97', '\xff'}) {
    EXPECT_THAT(pickle_error(std::string(1, opcode) + "x\ny\n"),
                HasSubstr("is not one that torch.save writes"))
        << opcode;
  }
  EXPECT_THAT(error_in(zip(entries_with("\x80\x09}."))),
              HasSubstr("pickle protocol 9 is not one of 2 to 5"));
}

TEST(TorchSecurity, MalformedProgramsAreErrors) {
  EXPECT_THAT(pickle_error(""), HasSubstr("finds too little on the stack"));
  EXPECT_THAT(pickle_error("}}"), HasSubstr("values are left over"));
  EXPECT_THAT(pickle_error("(}"), HasSubstr("values are left over"));
  EXPECT_THAT(pickle_error("t"), HasSubstr("finds no mark"));
  EXPECT_THAT(pickle_error("}h\x05"), HasSubstr("memo entry 5 was never stored"));
  EXPECT_THAT(pickle_error("}(Nu"), HasSubstr("a key that has no value"));
  EXPECT_THAT(pickle_error("N(NNu"), HasSubstr("SETITEMS on something that is not a dict"));
  EXPECT_THAT(pickle_error("}Na"), HasSubstr("APPEND on something that is not a list"));
  EXPECT_THAT(pickle_error("N)R"), HasSubstr("a call of something that is not a name"));
  EXPECT_THAT(pickle_error(global("torch", "Size") + "NR"), HasSubstr("arguments are not a tuple"));
  EXPECT_THAT(pickle_error("N}b"), HasSubstr("BUILD on something that is not an object"));
  EXPECT_THAT(pickle_error("NQ"), HasSubstr("a storage reference must be a tuple"));
  EXPECT_THAT(pickle_error("NN\x93"), HasSubstr("STACK_GLOBAL needs two strings"));
  // A mark protects what stands below it.
  EXPECT_THAT(pickle_error("}N(s"), HasSubstr("finds too little on the stack"));
  EXPECT_THAT(error_in(zip(entries_with("\x80\x02}"))), HasSubstr("ends in the middle"));
  EXPECT_THAT(error_in(zip(entries_with("\x80\x02X\xff\xff\xff\x03"))),
              HasSubstr("ends in the middle"));
}

TEST(TorchSecurity, LimitsOfThePickle) {
  const auto limited = [](const std::string& body, PickleLimits limits) {
    return error_of<ModelError>([&] { read_pickle(as_bytes(body), "f", limits); });
  };
  EXPECT_THAT(limited(std::string(1000, '}'), {.max_values = 100}),
              HasSubstr("more than 100 objects"));
  EXPECT_THAT(limited("N" +
                          [] {
                            std::string s;
                            for (int i = 0; i < 9; ++i) s += "q\x01h\x01";
                            return s;
                          }(),
                      {.max_stack = 5}),
              HasSubstr("the stack is deeper than 5"));
  EXPECT_THAT(limited(std::string(100, '('), {.max_stack = 50}), HasSubstr("too many marks"));
  EXPECT_THAT(limited(text(std::string(100, 's')), {.max_string_bytes = 50}),
              HasSubstr("a string of 100 bytes"));
  EXPECT_THAT(limited("X\xff\xff\xff\xff", {}),
              HasSubstr("a string of 4294967295 bytes is beyond the limit"));
  EXPECT_THAT(limited("\x8b" + little_endian(5000, 4) + std::string(5000, '1'), {}),
              HasSubstr("an integer of 5000 bytes"));
  EXPECT_THAT(limited(std::string(100, '}'), {.max_bytes = 50}),
              HasSubstr("the pickle is larger than 50 bytes"));
  EXPECT_THAT(limited("c" + std::string(5000, 'm'), {}), HasSubstr("a name is longer than 4096"));
}

TEST(TorchSecurity, NestingCyclesAndRepetitionEnd) {
  std::string deep = "N";
  for (int i = 0; i < 1000; ++i) deep = "]" + std::string() + deep + "a";
  EXPECT_THAT(pickle_error(deep), HasSubstr("nested deeper than 64 levels"));
  // A list that holds itself.
  EXPECT_THAT(pickle_error("]q\x01h\x01"
                           "a"),
              HasSubstr("0: it contains itself"));
  // Each level holds the one below twice: 2^40 leaves from 400 bytes.
  std::string doubling = "N";
  for (int i = 0; i < 40; ++i) doubling += "q\x01h\x01\x86";
  EXPECT_THAT(pickle_error(doubling), HasSubstr("the object graph is too large"));
}

TEST(TorchSecurity, TensorsMustLieInsideTheirStorage) {
  const auto with = [](const TensorBytes& t) { return pickle_error(dict("w", tensor(t))); };
  EXPECT_THAT(
      with({.shape = {2, 3}, .strides = {3, 1}}),
      HasSubstr("w: shape [2, 3], strides [3, 1], offset 0 reach element 5 of a storage of 4"));
  EXPECT_THAT(with({.offset = 1}), HasSubstr("offset 1 reach element 4"));
  EXPECT_THAT(with({.strides = {3, 1}}), HasSubstr("reach element 4"));
  EXPECT_THAT(with({.shape = {2}, .strides = {~uint64_t{0}}}),
              HasSubstr("its stride is not a whole number"));
  EXPECT_THAT(with({.shape = {~uint64_t{0}}, .strides = {1}}),
              HasSubstr("its size is not a whole number"));
  EXPECT_THAT(with({.offset = ~uint64_t{0}}), HasSubstr("its offset is not a whole number"));
  EXPECT_THAT(with({.shape = {1ull << 40, 1ull << 40}, .strides = {0, 0}}),
              HasSubstr("impossible shape"));
  EXPECT_THAT(with({.shape = {2, 2}, .strides = {1ull << 62, 1ull << 62}}),
              HasSubstr("impossible shape"));
  EXPECT_THAT(with({.shape = {1ull << 40}, .strides = {0}}),
              HasSubstr("repeats a storage of 4 elements beyond reason"));
  EXPECT_THAT(with({.shape = {2}, .strides = {1, 1}}), HasSubstr("1 sizes but 2 strides"));
  EXPECT_THAT(with({.storage_size = 5}), HasSubstr("storage 0 has 16 bytes, its tensors need 20"));
  EXPECT_THAT(with({.storage_size = 1ull << 62}), HasSubstr("storage 0 has an impossible size"));
  EXPECT_THAT(with({.key = "1"}), HasSubstr("storage a/data/1 is missing"));
  EXPECT_THAT(with({.key = "../data.pkl"}), HasSubstr("is missing"));
  EXPECT_THAT(with({.storage_class = "ComplexFloatStorage"}),
              HasSubstr("storage class torch.ComplexFloatStorage is not one"));
  EXPECT_THAT(pickle_error(dict("w", global("torch._utils", "_rebuild_tensor_v2") + ")R")),
              HasSubstr("w: _rebuild_tensor_v2 has wrong arguments"));
  EXPECT_THAT(pickle_error("}(" + text("a.b") + tensor() + text("a") + dict("b", tensor()) + "u"),
              HasSubstr("a.b: two tensors have this name"));
}

TEST(TorchSecurity, ZipEntries) {
  const std::string good = program(dict("w", tensor()));
  const auto with = [&](const Entry& extra) {
    auto entries = entries_with(good);
    entries.push_back(extra);
    return error_in(zip(entries));
  };
  EXPECT_THAT(with({.name = "a/z", .data = "x", .method = 8}),
              HasSubstr("entry a/z is compressed"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .compressed_size = 7}),
              HasSubstr("entry a/z is compressed"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .flags = 1}), HasSubstr("entry a/z is encrypted"));
  EXPECT_THAT(with({.name = "a/data/0", .data = "x"}), HasSubstr("entry a/data/0 stands twice"));
  for (const char* name : {"a/../z", "..", "/a/z", "a\\z", "C:z", ""}) {
    EXPECT_THAT(with({.name = name, .data = "x"}), HasSubstr("is not a plain relative path"))
        << name;
  }
  EXPECT_THAT(with({.name = std::string("a/\0z", 4), .data = "x"}),
              HasSubstr("is not a plain relative path"));
  EXPECT_THAT(with({.name = "b/z", .data = "x"}),
              HasSubstr("entry b/z lies outside the folder a/"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .size_in_directory = 1 << 20}),
              HasSubstr("reaches into the central directory"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .header_offset = 1 << 20}),
              HasSubstr("reaches beyond the end"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .header_offset = 3}),
              HasSubstr("has no local header"));
  EXPECT_THAT(with({.name = "a/z", .data = "x", .header_offset = 0}),
              HasSubstr("overlaps the one after it"));
  EXPECT_THAT(with({.name = "a/constants.pkl", .data = "x"}), HasSubstr("a TorchScript program"));
  EXPECT_THAT(with({.name = "a/code/x.py", .data = "x"}), HasSubstr("a TorchScript program"));
  EXPECT_THAT(with({.name = "a/byteorder", .data = "big"}), HasSubstr("big-endian"));
  EXPECT_THAT(error_in(zip({{.name = "a/data.pkl", .data = good, .wrong_crc = true},
                            {"a/data/0", kSixteenBytes}})),
              HasSubstr("the checksum of entry a/data.pkl"));
  EXPECT_THAT(error_in(zip({{"a/version", "3"}})), HasSubstr("there is no a/data.pkl"));
  EXPECT_THAT(error_in(zip({{"data.pkl", good}})), HasSubstr("lies in no folder"));
  EXPECT_THAT(error_in(zip(entries_with(good), 60000)), HasSubstr("60000 entries do not fit"));
}

TEST(TorchSecurity, ZipStructure) {
  const std::string good = zip(entries_with(program("}")));
  EXPECT_THAT(error_in(good.substr(0, good.size() - 1)), HasSubstr("its end record is missing"));
  EXPECT_THAT(error_in("PK\x03\x04"), HasSubstr("it is too short"));
  EXPECT_THAT(error_in(""), HasSubstr("it is empty"));
  EXPECT_THAT(error_in("hello"), HasSubstr("neither a zip nor a pickle"));
}

TEST(TorchSecurity, LegacyFiles) {
  const std::string magic = program("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");
  const std::string protocol = program("M\xe9\x03");
  const std::string little = program("}(" + text("little_endian") + "\x88u");
  const std::string object = program(dict("w", tensor()));
  const std::string keys = program("](" + text("0") + "e");
  const std::string storage = little_endian(4, 8) + kSixteenBytes;
  ASSERT_EQ(contents(magic + protocol + little + object + keys + storage).size(), 1u);
  EXPECT_THAT(error_in(object), HasSubstr("a Python pickle that torch.save did not write"));
  EXPECT_THAT(error_in(magic + program("M\xea\x03") + little + object + keys + storage),
              HasSubstr("protocol is not 1001"));
  EXPECT_THAT(error_in(magic + protocol + program("}(" + text("little_endian") + "\x89u") + object +
                       keys + storage),
              HasSubstr("big-endian"));
  EXPECT_THAT(
      error_in(magic + protocol + little + object + program("](" + text("9") + "e") + storage),
      HasSubstr("storage \"9\" belongs to no tensor"));
  EXPECT_THAT(
      error_in(magic + protocol + little + object + keys + little_endian(5, 8) + kSixteenBytes),
      HasSubstr("storage 0 of 5 elements reaches beyond"));
  EXPECT_THAT(error_in(magic + protocol + little + object + keys + little_endian(1ull << 62, 8) +
                       kSixteenBytes),
              HasSubstr("reaches beyond"));
  EXPECT_THAT(error_in(magic + protocol + little + object + keys),
              HasSubstr("it ends before storage 0"));
  EXPECT_THAT(error_in(magic + protocol + little + object + program("]")),
              HasSubstr("storage 0 is missing"));
  EXPECT_THAT(error_in(magic + protocol + little + object + program("N")),
              HasSubstr("is not a list"));
}

}  // namespace
}  // namespace danlu::weights::torch_file
