// What the .pt writer makes, PyTorch reads; what PyTorch writes, read_torch_document gives back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/file.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/planned_bytes.h"
#include "weights/python_torch.h"
#include "weights/random_py_value.h"
#include "weights/torch/torch_document.h"
#include "weights/torch/torch_writer.h"

namespace danlu::weights::torch_file {
namespace {

PyValue str(const std::string& text) { return PyValue::string(text); }

/// A tree with its tensors and their bytes.
struct Content {
  PyValue root = PyValue::dict();
  std::vector<TensorInfo> tensors;
  std::vector<std::string> bytes;

  PyValue tensor(DType dtype, const std::vector<int64_t>& shape, const std::string& content) {
    tensors.push_back({"", dtype, shape});
    EXPECT_EQ(content.size(), tensors.back().size_bytes());
    bytes.push_back(content);
    return PyValue::tensor(tensors.size() - 1);
  }
  std::string file(const std::string& top) const {
    return test::planned_bytes(plan_torch_file(root, tensors, top), bytes);
  }
};

/// The checkpoint that check_torch_written.py expects, value for value.
Content checkpoint() {
  Content content;
  PyValue& root = content.root;
  PyValue model = PyValue::ordered_dict();
  model.put("w", content.tensor(DType::kBF16, {2, 3},
                                test::little_endian(0x3f80, 2) + test::little_endian(0x4000, 2) +
                                    test::little_endian(0xc040, 2) + std::string(6, '\0')));
  model.put("w._extra_state", {});
  model.put("scalar", content.tensor(DType::kF64, {}, test::little_endian(0x4004ull << 48, 8)));
  model.put("empty", content.tensor(DType::kF32, {0, 7}, ""));
  model.put("empty_middle", content.tensor(DType::kF16, {3, 0, 2}, ""));
  for (const auto& [name, dtype] :
       std::initializer_list<std::pair<const char*, DType>>{{"I8", DType::kI8},
                                                            {"U8", DType::kU8},
                                                            {"I16", DType::kI16},
                                                            {"I32", DType::kI32},
                                                            {"I64", DType::kI64}}) {
    const int width = static_cast<int>(dtype_size_bytes(dtype));
    model.put(name, content.tensor(dtype, {1, 2},
                                   test::little_endian(1, width) + test::little_endian(2, width)));
  }
  model.put("BOOL", content.tensor(DType::kBool, {2}, std::string("\x01\x00", 2)));
  model.put("F16", content.tensor(DType::kF16, {1}, test::little_endian(0x3e00, 2)));
  root.put("model", model).put("iteration", PyValue::integer(int64_t{1} << 40));
  root.put("checkpoint_version", PyValue::real(3.0));
  PyValue args = PyValue::name_space();
  args.put("num_layers", PyValue::integer(24)).put("lr", PyValue::real(1.25e-6));
  args.put("params_dtype", PyValue::dtype(DType::kBF16)).put("swiglu", PyValue::boolean(true));
  args.put("bias", PyValue::boolean(false)).put("data_path", PyValue::list({str("权é")}));
  args.put("model_type",
           PyValue::enum_member("megatron.core.enums", "ModelType", PyValue::integer(1)));
  args.put(
      "attention",
      PyValue::object({"__builtin__",
                       "getattr",
                       {PyValue::global("megatron.core.enums", "AttnBackend"), str("flash")}}));
  args.put("noop", PyValue::set({PyValue::integer(3)})).put("empty_set", PyValue::set());
  args.put("frozen", PyValue::frozen_set({str("x")})).put("none", {});
  root.put("args", args);
  root.put("tuples", PyValue::tuple({PyValue::tuple(), PyValue::tuple({{}}),
                                     PyValue::tuple({PyValue::integer(1), PyValue::integer(2)}),
                                     PyValue::tuple({{}, {}, {}})}));
  root.put("ints", PyValue::list({PyValue::integer(-1), PyValue::integer(65536),
                                  PyValue::integer(INT64_MIN), PyValue::integer(INT64_MAX),
                                  PyValue::big_integer(std::string(8, '\0') + "\x40"),
                                  PyValue::big_integer(std::string(300, '\0') + "\x01")}));
  root.put("floats", PyValue::list({PyValue::real(1.5e-300), PyValue::real(-0.0)}));
  root.put("bytes", PyValue::bytes(std::string("\x00\x7f\x80\xff", 4)));
  root.put("no_bytes", PyValue::bytes("")).put("size", PyValue::size({1, 2}));
  root.put("surrogate", str("\xed\xa0\x80"));
  root.put(
      PyValue::integer(0),
      PyValue::dict({{PyValue::tuple({PyValue::dtype(DType::kBF16), PyValue::dtype(DType::kF32)}),
                      PyValue::dict({{str("param"),
                                      content.tensor(DType::kF32, {1}, std::string(4, '\0'))}})}}));
  PyValue many = PyValue::dict();
  for (int i = 0; i < 3000; ++i) many.add(str("k" + std::to_string(i)), PyValue::integer(i));
  root.put("many", many);
  return content;
}

TEST(TorchPython, PyTorchReadsWhatWeWrite) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  const Content content = checkpoint();
  write_file_atomic(directory / "model_optim_rng.pt", content.file("model_optim_rng"));
  EXPECT_EQ(test::run_python(python, "check_torch_written.py",
                             "checkpoint " + (directory / "model_optim_rng.pt").string()),
            0);
  if (std::system("unzip -v >/dev/null 2>&1") == 0) {
    const std::string test = "unzip -tq " + (directory / "model_optim_rng.pt").string();
    EXPECT_EQ(std::system((test + " >/dev/null").c_str()), 0);
  }
}

TEST(TorchPython, AStateDictPassesPyTorchsRestrictedLoader) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  Content content;
  PyValue model = PyValue::ordered_dict();
  model.put("weight", content.tensor(DType::kBF16, {2}, test::little_endian(0x40003f80, 4)));
  model.put("bias", content.tensor(DType::kF32, {}, test::little_endian(0x3f800000, 4)));
  content.root.put("model", model).put("iteration", PyValue::integer(int64_t{1} << 33));
  content.root.put("big", PyValue::big_integer(std::string(8, '\0') + "\x40"));
  content.root.put("list", PyValue::list({PyValue::integer(5), {}, PyValue::boolean(true)}));
  content.root.put("size", PyValue::size({3}));
  write_file_atomic(directory / "state.pt", content.file("state"));
  EXPECT_EQ(test::run_python(python, "check_torch_written.py",
                             "restricted " + (directory / "state.pt").string()),
            0);
}

TEST(TorchPython, ADistributedOptimizersTensorsHaveNames) {
  const Content content = checkpoint();
  const TorchDocument document = read_torch_document(test::as_bytes(content.file("a")), "f");
  EXPECT_EQ(document.root, content.root);
  std::vector<std::string> names;
  for (const TensorInfo& info : document.tensors) names.push_back(info.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"model.w", "model.scalar", "0.(torch.bfloat16, torch.float32).param"}));
}

/// Sets have no order that would survive Python.
PyValue with_sorted_sets(const PyValue& value) {
  if (value.has_entries()) {
    PyValue sorted = value.is(PyKind::kDict)          ? PyValue::dict()
                     : value.is(PyKind::kOrderedDict) ? PyValue::ordered_dict()
                                                      : PyValue::name_space();
    for (const PyItem& entry : value.entries())
      sorted.add(with_sorted_sets(entry.key), with_sorted_sets(entry.value));
    return sorted;
  }
  if (!value.has_items()) return value;
  PyValue::Items items;
  for (const PyValue& item : value.items()) items.push_back(with_sorted_sets(item));
  switch (value.kind()) {
    case PyKind::kTuple:
      return PyValue::tuple(items);
    case PyKind::kList:
      return PyValue::list(items);
    case PyKind::kSet:
    case PyKind::kFrozenSet:
      std::sort(items.begin(), items.end(),
                [](const PyValue& a, const PyValue& b) { return a.repr() < b.repr(); });
      return value.is(PyKind::kSet) ? PyValue::set(items) : PyValue::frozen_set(items);
    default:
      return value;
  }
}

TEST(TorchPython, RandomTreesSurviveOurWriterAndPyTorchs) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  constexpr int kTrees = 60;
  std::vector<test::RandomTree> trees;
  for (int i = 0; i < kTrees; ++i) {
    trees.push_back(test::random_tree(static_cast<uint32_t>(i)));
    const auto& tree = trees.back();
    const std::string file =
        test::planned_bytes(plan_torch_file(tree.root, tree.tensors, "tree"), tree.bytes);
    EXPECT_EQ(read_torch_document(test::as_bytes(file), "ours").root, tree.root);
    write_file_atomic(directory / (std::to_string(i) + ".pt"), file);
  }
  ASSERT_EQ(test::run_python(python, "check_torch_written.py",
                             "again " + directory.path().string() + " " + std::to_string(kTrees)),
            0);
  size_t num_tensors = 0;
  for (int i = 0; i < kTrees; ++i) {
    for (const char* container : {"zip", "legacy"}) {
      const auto path = directory / (std::to_string(i) + "." + container + ".pt");
      SCOPED_TRACE(path);
      const TorchDocument again = read_torch_document(path);
      EXPECT_EQ(with_sorted_sets(again.root), with_sorted_sets(trees[i].root));
      ASSERT_EQ(again.tensors.size(), trees[i].tensors.size());
      const auto source = open_torch_file(path);
      ASSERT_EQ(source->tensors().size(), again.tensors.size());
      for (size_t k = 0; k < again.tensors.size(); ++k, ++num_tensors) {
        EXPECT_EQ(again.tensors[k].dtype, trees[i].tensors[k].dtype);
        EXPECT_EQ(again.tensors[k].shape, trees[i].tensors[k].shape);
        EXPECT_EQ(test::read_tensor(*source, again.tensors[k].name), trees[i].bytes[k]);
      }
    }
  }
  EXPECT_GT(num_tensors, 100u);
}

TEST(TorchPython, WhatPyTorchWritesIsGivenBackAsData) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  ASSERT_EQ(
      test::run_python(python, "check_torch_written.py", "write " + directory.path().string()), 0);
  for (const char* name : {"zip.pt", "legacy.pt", "protocol4.pt"}) {
    SCOPED_TRACE(name);
    const TorchDocument document = read_torch_document(directory / name);
    const PyValue& root = document.root;
    EXPECT_EQ(root.get("iteration").as_int("iteration"), 7);
    EXPECT_EQ(root.get("checkpoint_version").as_float("version"), 3.0);
    const PyValue& args = root.get("args");
    ASSERT_TRUE(args.is(PyKind::kNamespace));
    EXPECT_EQ(args.get("params_dtype").as_dtype("params_dtype"), DType::kBF16);
    EXPECT_EQ(args.get("model_type"),
              PyValue::enum_member("megatron.core.enums", "ModelType", PyValue::integer(1)));
    EXPECT_EQ(args.get("betas"), PyValue::list({PyValue::real(0.9), PyValue::real(0.95)}));
    EXPECT_EQ(args.get("files"), PyValue::set({str("a")}));
    const PyObject& thing = args.get("thing").object();
    EXPECT_EQ(thing.module + "." + thing.name, "custom.Thing");
    EXPECT_TRUE(thing.by_new);
    EXPECT_EQ(thing.state,
              PyValue::dict({{str("x"), PyValue::integer(1)},
                             {str("w"), PyValue::omitted("a tensor inside an object")}}));
    EXPECT_EQ(root.get("scheduler").get("max_lr").as_float("max_lr"), 1e-4);
    const PyValue& group = root.get("optimizer").get("param_groups").as_items("groups")[0];
    EXPECT_EQ(group.get("params"), PyValue::list({PyValue::integer(0)}));
    EXPECT_EQ(group.get("betas"), PyValue::tuple({PyValue::real(0.9), PyValue::real(0.999)}));
    const PyValue& model = root.get("model");
    EXPECT_TRUE(model.is(PyKind::kOrderedDict));
    const size_t weight = model.get("weight").as_tensor("weight");
    EXPECT_EQ(document.tensors[weight].name, "model.weight");
    EXPECT_EQ(document.tensors[weight].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_TRUE(model.get("a._extra_state").is_none());
    EXPECT_TRUE(model.get("b._extra_state").is(PyKind::kTensor));
    EXPECT_EQ(model.get("c._extra_state").object().name, "BytesIO");
    const PyValue& rng = root.get("rng_state").as_items("rng")[0];
    EXPECT_EQ(rng.get("random_rng_state").items()[1].items().size(), 625u);
    EXPECT_EQ(rng.get("np_rng_state").items()[0], str("MT19937"));
    EXPECT_EQ(document.tensors[rng.get("torch_rng_state").as_tensor("t")].size_bytes(), 5056u);
    const Json shown = to_json(args);
    EXPECT_EQ(shown["params_dtype"], "torch.bfloat16");
    EXPECT_EQ(shown["model_type"], "megatron.core.enums.ModelType(1)");
    const std::string flash = "megatron.core.enums.AttnBackend.flash";
    EXPECT_EQ(shown["attention"], Json({flash, flash}));
    EXPECT_EQ(shown["betas"], Json({0.9, 0.95}));
    EXPECT_EQ(shown["big"], "0x40000000000000000000");
    EXPECT_EQ(shown["nothing"], nullptr);
    EXPECT_EQ(shown["not_a_number"], "nan");
    EXPECT_EQ(root.get("default"), PyValue::dict({{str("k"), PyValue::list()}}));
    EXPECT_EQ(root.get("slice").object().arguments[1], PyValue::integer(2));
  }
}

}  // namespace
}  // namespace danlu::weights::torch_file
