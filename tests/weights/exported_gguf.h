// tests/weights/exported_gguf.h: a random model and the GGUF file that is made of it.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "support/tiny_model.h"
#include "weights/convert/layout_writer.h"
#include "weights/gguf/gguf_model.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/gguf/offset_norms.h"
#include "weights/hf/stored_form.h"

namespace danlu::weights::gguf {

/// A directory with a random model and the GGUF file made of it.
struct Exported {
  test::TemporaryDirectory directory;
  arch::ModelConfig config;
  std::shared_ptr<const TensorSource> source, gguf;
  ModelPlan plan;

  explicit Exported(const Json& json, TensorType type = TensorType::kF32) {
    config = test::write_tiny_model(directory / "hf", json);
    source = as_parameters(open_weights(directory / "hf"), config);
    write(type);
  }
  Exported(const std::filesystem::path& model, TensorType type) {
    config = arch::load_model_config(model);
    source = as_parameters(open_weights(model), config);
    write(type);
  }
  std::filesystem::path file() const { return directory / "model.gguf"; }
  std::vector<float> numbers_of(const std::string& name) const { return read(*gguf, name); }
  static std::vector<float> read(const TensorSource& from, const std::string& name) {
    std::vector<float> numbers(static_cast<size_t>(from.find(name)->num_elements()));
    from.read(name, std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }
  /// Row `row` of a matrix of the model.
  std::vector<float> row(const std::string& name, int64_t row) const {
    const int64_t cols = matrix_of(source->find(name)->shape).cols;
    std::vector<float> numbers(static_cast<size_t>(cols));
    source->read_range(name, row * cols, (row + 1) * cols,
                       std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }
  std::vector<float> gguf_row(const std::string& name, int64_t row) const {
    const int64_t cols = gguf->find(name)->shape.back();
    std::vector<float> numbers(static_cast<size_t>(cols));
    gguf->read_range(name, row * cols, (row + 1) * cols,
                     std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }

  /// The same file, but for the value of one key.
  std::filesystem::path file_with(const std::string& key, const Value& value) const {
    return changed(key, &value);
  }
  std::filesystem::path file_without(const std::string& key) const { return changed(key, nullptr); }

 private:
  std::filesystem::path changed(const std::string& key, const Value* value) const {
    Metadata metadata = plan.metadata;
    std::erase_if(metadata, [&](const auto& pair) { return pair.first == key; });
    if (value) metadata.emplace_back(key, *value);
    const std::filesystem::path beside = directory / "changed";
    std::filesystem::remove_all(beside);
    std::filesystem::create_directory(beside);
    const auto stored = with_one_added(source, config, metadata);
    write_layout(*stored, plan.layout, {plan_file(metadata, plan.tensors, plan.constants)}, beside);
    return beside / "model.gguf";
  }
  void write(TensorType type) {
    plan = plan_model(config, source->tensors(), {.type = type, .model_name = "tiny"});
    const auto stored = with_one_added(source, config, plan.metadata);
    check_layout(plan.layout);
    write_layout(*stored, plan.layout, {plan_file(plan.metadata, plan.tensors, plan.constants)},
                 directory.path());
    gguf = gguf::open(file());
  }
};

template <typename T>
T key(const ModelPlan& plan, const std::string& name) {
  const Value* value = find(plan.metadata, name);
  if (!value) throw std::runtime_error("no key " + name);
  return std::get<T>(*value);
}

}  // namespace danlu::weights::gguf
