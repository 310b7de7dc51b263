// tests/weights/random_py_value.h: random trees of Python values, of what torch.save writes.
#pragma once
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "weights/tensor_source.h"
#include "weights/torch/py_value.h"

namespace danlu::test {

struct RandomTree {
  weights::torch_file::PyValue root;
  std::vector<weights::TensorInfo> tensors;  ///< in the order in which a walk meets them
  std::vector<std::string> bytes;
};

/// Grows one tree. Classes are those that check_torch_written.py defines.
class TreeGrower {
 public:
  using PyValue = weights::torch_file::PyValue;
  explicit TreeGrower(uint32_t seed) : random_(seed) {}

  RandomTree grow() {
    tree_.root = PyValue::dict();
    fill(tree_.root, 5);
    PyValue& args = tree_.root.add(PyValue::string("args"), PyValue::name_space());
    for (int i = below(6); i > 0; --i) {
      args.add(PyValue::string("a" + std::to_string(i)), below(2) ? opaque() : value(2));
    }
    return std::move(tree_);
  }

 private:
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  uint64_t bits() { return random_(); }

  std::string text() {
    static const std::vector<std::string> kPieces = {"a", "layer", ".",  "权", "é", "\xed\xb2\x80",
                                                     "0", " ",     "\n", "😀"};
    std::string out;
    for (int i = below(5); i > 0; --i) out += kPieces[static_cast<size_t>(below(10))];
    return out;
  }
  PyValue integer() {
    const int64_t number = static_cast<int64_t>(bits()) >> below(64);
    return PyValue::integer(number);
  }
  double real() {
    constexpr double kSpecial[] = {0.0, -0.0, 1e-320, std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
    return below(3) ? std::ldexp(static_cast<double>(bits()), below(200) - 100)
                    : kSpecial[below(5)];
  }
  weights::torch_file::PyValue dtype() { return PyValue::dtype(tensor_dtype()); }
  DType tensor_dtype() {
    constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                              DType::kU8,  DType::kI16, DType::kI32, DType::kI64,  DType::kBool};
    return kAll[below(10)];
  }
  PyValue tensor() {
    weights::TensorInfo info{"", tensor_dtype(), {}};
    for (int d = below(4); d > 0; --d) info.shape.push_back(below(4));
    std::string content(info.size_bytes(), '\0');
    for (char& byte : content)
      byte = static_cast<char>(info.dtype == DType::kBool ? below(2) : below(256));
    tree_.tensors.push_back(std::move(info));
    tree_.bytes.push_back(std::move(content));
    return PyValue::tensor(tree_.tensors.size() - 1);
  }
  /// Keys of one dict differ in Python too: only strings, ints and tuples.
  PyValue key() {
    switch (below(8)) {
      case 0:
        return integer();
      case 1:
        return PyValue::tuple({dtype(), dtype()});
      default:
        return PyValue::string(text() + std::to_string(++num_keys_));
    }
  }
  void fill(PyValue& dict, int depth) {
    std::set<std::string> seen;
    for (int i = below(7); i > 0; --i) {
      PyValue k = key();
      // Dotted names of tensors must differ, and so "." in keys is made unique by num_keys_.
      if (!seen.insert(k.key_text()).second) continue;
      dict.add(std::move(k), value(depth - 1));
    }
  }
  PyValue opaque() {
    using weights::torch_file::PyObject;
    const auto call = [](const char* module, const char* name, PyValue::Items arguments) {
      return PyValue::object(PyObject{module, name, std::move(arguments)});
    };
    switch (below(8)) {
      case 0:
        return PyValue::enum_member("megatron.core.enums", "ModelType",
                                    PyValue::integer(1 + below(2)));
      case 1:
        return call("torch", "device", {PyValue::string("cpu")});
      case 2:
        return call("__builtin__", "slice",
                    {PyValue::integer(below(9)), PyValue::none(), integer()});
      case 3:
        return call("__builtin__", "complex", {PyValue::real(1.5), PyValue::real(-2)});
      case 4:
        return PyValue::global("custom", "Thing");
      case 5: {
        PyObject thing{"custom", "Thing"};
        thing.by_new = thing.has_state = true;
        thing.state =
            PyValue::dict({{PyValue::string("x"), scalar()}, {PyValue::string("y"), opaque()}});
        return PyValue::object(std::move(thing));
      }
      case 6: {
        PyObject list{"custom", "ListOf"};
        list.by_new = true;
        for (int i = below(4); i > 0; --i) list.appended.push_back(scalar());
        return PyValue::object(std::move(list));
      }
      default: {
        PyObject dict{"custom", "DictOf"};
        dict.by_new = true;
        for (int i = below(4); i > 0; --i)
          dict.set_entries.push_back({PyValue::string("k" + std::to_string(i)), scalar()});
        return PyValue::object(std::move(dict));
      }
    }
  }
  PyValue scalar() {
    switch (below(9)) {
      case 0:
        return PyValue::none();
      case 1:
        return PyValue::boolean(below(2) == 0);
      case 2:
      case 3:
        return integer();
      case 4:
        return PyValue::real(real());
      case 5: {
        std::string digits;
        for (int i = below(300); i > 0; --i) digits += static_cast<char>(below(256));
        return PyValue::big_integer(digits);
      }
      case 6: {
        std::string content;
        for (int i = below(5); i > 0; --i) content += static_cast<char>(below(256));
        return PyValue::bytes(content);
      }
      case 7:
        return dtype();
      default:
        return PyValue::string(text());
    }
  }
  PyValue sequence(PyValue items, int depth) {
    for (int i = below(6); i > 0; --i) items.append(value(depth - 1));
    return items;
  }
  PyValue value(int depth) {
    const int kind = below(depth > 0 ? 14 : 6);
    if (kind < 4) return scalar();
    if (kind < 6) return tensor();
    switch (kind) {
      case 6:
        return sequence(PyValue::list(), depth);
      case 7:
        return sequence(PyValue::tuple(), depth);
      case 8:
        return PyValue::set({PyValue::string("s"), PyValue::integer(below(1000))});
      case 9:
        return PyValue::frozen_set({PyValue::string("s")});
      case 10:
        return PyValue::size({below(10), below(10)});
      case 11: {
        PyValue dict = PyValue::name_space();
        for (int i = below(4); i > 0; --i)
          dict.add(PyValue::string("n" + std::to_string(i)), value(depth - 1));
        return dict;
      }
      default: {
        PyValue dict = kind == 12 ? PyValue::dict() : PyValue::ordered_dict();
        fill(dict, depth);
        return dict;
      }
    }
  }

  std::mt19937_64 random_;
  RandomTree tree_;
  int num_keys_ = 0;
};

inline RandomTree random_tree(uint32_t seed) { return TreeGrower(seed).grow(); }

}  // namespace danlu::test
