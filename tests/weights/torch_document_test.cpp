// Values of a .pt file as data: access to them, and hostile files.
#include "weights/torch/torch_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/pickle_bytes.h"
#include "weights/planned_bytes.h"
#include "weights/random_py_value.h"
#include "weights/torch/torch_contents.h"
#include "weights/torch/torch_writer.h"
#include "weights/torch/zip_layout.h"

namespace danlu::weights::torch_file {
namespace {

using test::as_bytes;
using test::error_of;
using test::little_endian;
using ::testing::HasSubstr;

// --- PyValue -------------------------------------------------------------------------------------

TEST(PyValue, GettersSayWhatTheyWantedAndGot) {
  const PyValue root = PyValue::dict({{PyValue::string("iteration"), PyValue::string("7")},
                                      {PyValue::string("lr"), PyValue::integer(1)}});
  const auto error = [&](const auto& call) { return error_of<ModelError>(call); };
  EXPECT_EQ(error([&] { root.get("iteration").as_int("a.pt: iteration"); }),
            "a.pt: iteration must be a whole number, got the string '7'");
  EXPECT_EQ(error([&] { root.get("step", "a.pt"); }), "a.pt has no \"step\"");
  EXPECT_EQ(error([&] { root.get("lr").get("x", "a.pt: lr"); }),
            "a.pt: lr must be a dict with \"x\", got an int 1");
  EXPECT_EQ(error([&] { PyValue().as_string("name"); }), "name must be a string, got None");
  EXPECT_EQ(error([&] { root.as_bool("flag"); }), "flag must be True or False, got a dict");
  EXPECT_EQ(error([&] { root.as_items("groups"); }), "groups must be a list, got a dict");
  EXPECT_EQ(error([&] { PyValue::tensor(0).as_dtype("d"); }),
            "d must be a torch dtype, got a tensor");
  EXPECT_EQ(root.get("lr").as_float("lr"), 1.0);
  EXPECT_EQ(root.find("nothing"), nullptr);
  EXPECT_EQ(PyValue::list().find("nothing"), nullptr);
  EXPECT_THROW(root.items(), InternalError);
}

TEST(PyValue, PutReplacesInPlaceAndAddsAtTheEnd) {
  PyValue dict = PyValue::dict();
  dict.put("a", PyValue::integer(1)).put("b", PyValue::integer(2)).put("a", PyValue::integer(3));
  dict.put(PyValue::integer(0), PyValue::none());
  EXPECT_EQ(dict, PyValue::dict({{PyValue::string("a"), PyValue::integer(3)},
                                 {PyValue::string("b"), PyValue::integer(2)},
                                 {PyValue::integer(0), PyValue::none()}}));
  EXPECT_TRUE(dict.find(PyValue::integer(0)));
  EXPECT_FALSE(dict.find("0"));
}

TEST(PyValue, IntegersTakeTheirSmallestForm) {
  EXPECT_EQ(PyValue::big_integer(""), PyValue::integer(0));
  EXPECT_EQ(PyValue::big_integer("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), PyValue::integer(-1));
  EXPECT_EQ(PyValue::big_integer("\x80"), PyValue::integer(-128));
  EXPECT_EQ(PyValue::big_integer(std::string("\x80\x00\x00", 3)), PyValue::integer(128));
  // 2^63 needs a ninth byte for its sign.
  const std::string two_to_63 = std::string(7, '\0') + std::string("\x80\x00", 2);
  EXPECT_TRUE(PyValue::big_integer(two_to_63).is(PyKind::kBigInt));
  EXPECT_EQ(PyValue::big_integer(two_to_63).repr(), "0x008000000000000000");
}

TEST(PyValue, ReprIsPythons) {
  // repr(…) of the same values.
  const PyValue value = PyValue::tuple(
      {PyValue::list({PyValue::none(), PyValue::boolean(true)}), PyValue::tuple({PyValue::real(3)}),
       PyValue::string("it's\n"), PyValue::dict({{PyValue::integer(-1), PyValue::real(1e-7)}}),
       PyValue::dtype(DType::kBF16), PyValue::size({2, 3})});
  EXPECT_EQ(value.repr(),
            "([None, True], (3.0,), 'it\\'s\\x0a', {-1: 1e-07}, torch.bfloat16, "
            "torch.Size([2, 3]))");
  EXPECT_LT(PyValue::string(std::string(1 << 20, 'x')).repr().size(), 2100u);
}

TEST(PyValue, JsonIsAlwaysValid) {
  const PyValue args = PyValue::name_space(
      {{PyValue::string("lr"), PyValue::real(std::numeric_limits<double>::infinity())},
       {PyValue::string("bad\xff"), PyValue::string("\xed\xa0\x80")},
       {PyValue::string("type"), PyValue::enum_member("m", "Kind", PyValue::integer(2))},
       {PyValue::string("list"), PyValue::tuple({PyValue::integer(1), PyValue::bytes("ab")})}});
  const Json json = to_json(args);
  EXPECT_EQ(json["lr"], "inf");
  EXPECT_EQ(json["type"], "m.Kind(2)");
  EXPECT_EQ(json["list"], Json({1, "<2 bytes>"}));
  EXPECT_NO_THROW(json.dump());
}

// --- files ---------------------------------------------------------------------------------------

std::string zip_with(const std::string& pickle) {
  ZipLayout zip;
  zip.add("a/data.pkl", pickle);
  zip.add("a/data/0", std::string(16, 'x'));
  return test::planned_bytes(std::move(zip).finish(), {});
}
TorchDocument document(const std::string& body) {
  return read_torch_document(as_bytes(zip_with(program(body))), "f");
}
std::string document_error(const std::string& body) {
  return error_of<ModelError>([&] { document(body); });
}

TEST(TorchDocument, ValuesThatContainThemselvesAreErrors) {
  EXPECT_THAT(document_error("]q\x01h\x01"
                             "a"),
              HasSubstr("f: 0: it contains itself"));
  EXPECT_THAT(document_error("}q\x01(" + text("k") + "h\x01u"),
              HasSubstr("f: k: it contains itself"));
  // An object under args whose state is itself, and one that is its own item.
  const std::string object = global("m", "C") + ")\x81q\x01";
  EXPECT_THAT(document_error(dict("args", object + "h\x01"
                                                   "b")),
              HasSubstr("args.state: it contains"));
  EXPECT_THAT(document_error(dict("args", object + "h\x01"
                                                   "a")),
              HasSubstr("args.0: it contains"));
  // open_torch_file does not look into objects, nor is it in danger.
  EXPECT_NO_THROW(read_torch_contents(as_bytes(zip_with("\x80\x02" +
                                                        dict("args", object + "h\x01"
                                                                              "b") +
                                                        ".")),
                                      "f"));
  // The same list twice is no cycle.
  EXPECT_EQ(document("]q\x01h\x01\x86").root, PyValue::tuple({PyValue::list(), PyValue::list()}));
}

TEST(TorchDocument, DepthAndRepetitionEnd) {
  EXPECT_THAT(document_error(std::string(100, ']') + std::string(99, 'a')),
              HasSubstr("nested deeper than 64 levels"));
  std::string doubling = "N";
  for (int i = 0; i < 40; ++i) doubling += "q\x01h\x01\x86";
  EXPECT_THAT(document_error(doubling), HasSubstr("the object graph is too large"));
  // One MiB of text, a thousand times.
  const std::string repeated = text(std::string(1 << 20, 's')) + "q\x01" + "](" + [] {
    std::string out;
    for (int i = 0; i < 1000; ++i) out += "h\x01";
    return out;
  }() + "e\x86";
  EXPECT_THAT(document_error(repeated), HasSubstr("the texts are too large"));
  EXPECT_THAT(document_error("X\xff\xff\xff\xff"), HasSubstr("a string of 4294967295 bytes"));
  EXPECT_THAT(document_error("\x8b\xff\xff\xff\x7f"), HasSubstr("an integer of 2147483647 bytes"));
}

TEST(TorchDocument, ClassesAreNamedUnlessTheyAreSettings) {
  const std::string object = global("my.code", "Thing") + ")\x81" + dict("x", "N") + "b";
  EXPECT_THAT(document_error(dict("w", object)),
              HasSubstr("f: w: holds a Python object my.code.Thing, which is not part"));
  // Not hidden in a set, in a key, or in the list of a harmless object either.
  const std::string set = global("__builtin__", "set") + "](" + object + "e\x85R";
  EXPECT_THAT(document_error(dict("w", set)), HasSubstr("my.code.Thing"));
  EXPECT_THAT(document_error("}(" + object + "Nu"),
              HasSubstr("key: holds a Python object my.code"));
  EXPECT_THAT(document_error(dict("w", global("__builtin__", "slice") + object + "NN\x87R")),
              HasSubstr("w.0: holds a Python object my.code.Thing"));
  EXPECT_THAT(document_error(dict("args", global("os", "system") + text("touch /tmp/x") + "\x85R")),
              HasSubstr("refused: the file asks for os.system"));
  const PyObject kept = document(dict("args", object)).root.get("args").object();
  EXPECT_EQ(kept.module, "my.code");
  EXPECT_EQ(kept.state, PyValue::dict({{PyValue::string("x"), {}}}));
}

TEST(TorchDocument, AKeyStandsOnce) {
  EXPECT_THAT(document_error("}(" + text("k") + "N" + text("k") + "Nu"),
              HasSubstr("f: k: this key stands twice"));
  EXPECT_EQ(document("}(K\x01N" + text("1") + "Nu").root.entries().size(), 2u);
}

TEST(TorchDocument, DamagedZipsAreErrors) {
  const std::string good = zip_with("\x80\x02}.");
  EXPECT_NO_THROW(read_torch_document(as_bytes(good), "f"));
  const auto changed = [&](size_t at, const std::string& bytes) {
    std::string bad = good;
    bad.replace(at, bytes.size(), bytes);
    return error_of<ModelError>([&] { read_torch_document(as_bytes(bad), "f"); });
  };
  EXPECT_THAT(changed(good.find("\x80\x02}.") + 2, "N"), HasSubstr("the checksum of entry a/data"));
  // The second record of the central directory: compressed size, size.
  const size_t entry = good.rfind("PK\x01\x02");
  EXPECT_THAT(changed(entry + 24, little_endian(5, 4)), HasSubstr("is compressed"));
  EXPECT_THAT(changed(entry + 20, little_endian(1 << 20, 4) + little_endian(1 << 20, 4)),
              HasSubstr("reaches into the central directory"));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(read_torch_document(as_bytes(good.substr(0, length)), "f"), ModelError) << length;
}

TEST(TorchDocument, Python2sOrderedDictOfPairsIsADict) {
  const std::string pairs = "](](" + text("b") + "Ne](" + text("a") +
                            "K\x05"
                            "ee";
  const TorchDocument read = document(global("collections", "OrderedDict") + pairs + "\x85R");
  EXPECT_EQ(read.root, PyValue::ordered_dict({{PyValue::string("b"), {}},
                                              {PyValue::string("a"), PyValue::integer(5)}}));
}

TEST(TorchDocument, TensorsAreNamedAsInOpenTorchFile) {
  for (uint32_t seed = 100; seed < 300; ++seed) {
    const test::RandomTree tree = test::random_tree(seed);
    const std::string file =
        test::planned_bytes(plan_torch_file(tree.root, tree.tensors, "t"), tree.bytes);
    const TorchDocument read = read_torch_document(as_bytes(file), "f");
    ASSERT_EQ(read.root, tree.root) << seed;
    const auto tensors = read_torch_contents(as_bytes(file), "f");
    ASSERT_EQ(tensors.size(), read.tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].info.name, read.tensors[i].name);
      EXPECT_EQ(tensors[i].info.shape, tree.tensors[i].shape);
      EXPECT_TRUE(tensors[i].is_contiguous());
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[i].storage.data()),
                            tree.bytes[i].size()),
                tree.bytes[i]);
    }
  }
}

}  // namespace
}  // namespace danlu::weights::torch_file
