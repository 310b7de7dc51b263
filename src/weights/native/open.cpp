// Reading the index: what it says is checked before anything is read by it.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "weights/layout_source.h"
#include "weights/megatron/group_check.h"
#include "weights/native/native.h"

namespace danlu::weights::native {
namespace {

[[noreturn]] void broken(const std::filesystem::path& file, const std::string& what) {
  throw ModelError(tr("{}: {}", file.string(), what),
                   tr("the index is damaged: copy the checkpoint again"));
}

bool is_state(const std::string& name) {
  return std::any_of(kStatePrefixes.begin(), kStatePrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

class IndexReader {
 public:
  explicit IndexReader(const std::filesystem::path& file) : file_(file) {
    try {
      json_ = read_json_file(file);
    } catch (const DataError& e) {
      throw ModelError(e.what());
    }
    if (!json_.is_object() || json_.value("format", Json()) != "danlu-native")
      broken(file, "\"format\" is not \"danlu-native\"");
    const Json version = json_.value("version", Json());
    if (version != kVersion) {
      throw ModelError(tr("{}: version {} of the format is not read by this program, only {}",
                          file.string(), version.dump(), kVersion));
    }
    for (const char* key : {"files", "tensors"}) {
      if (!json_.contains(key)) broken(file, tr("\"{}\" is missing", key));
    }
    read_files();
  }

  /// The layout of the model's tensors, or of the optimizer's.
  Layout layout(bool of_states) const {
    Layout layout;
    layout.files = files_;
    const Json& tensors = json_["tensors"];
    if (!tensors.is_object()) broken(file_, "\"tensors\" must be an object");
    for (const auto& [name, entry] : tensors.items()) {
      if (is_state(name) == of_states) add(name, entry, layout);
    }
    try {
      check_layout(layout);
    } catch (const InternalError& e) {
      broken(file_, e.what());
    }
    return layout;
  }

  const std::vector<std::string>& files() const { return files_; }
  const Json& json() const { return json_; }

 private:
  void read_files() {
    if (!json_["files"].is_array()) broken(file_, "\"files\" must be a list");
    for (const Json& entry : json_["files"]) {
      const std::string name = entry.is_string() ? entry.get<std::string>() : "";
      const std::filesystem::path path(name);
      bool climbs = name.empty() || path.is_absolute();
      for (const auto& part : path) climbs |= part == "..";
      if (climbs || name.find('\0') != std::string::npos)
        broken(file_, tr("\"files\" holds {}, which is no path inside the checkpoint",
                         entry.dump(-1, ' ', false, Json::error_handler_t::replace)));
      files_.push_back(name);
    }
  }

  int64_t number(const Json& value, const std::string& name) const {
    constexpr int64_t kMost = int64_t{1} << 40;
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kMost)
      broken(file_, tr("{}: sizes and positions must be whole numbers ≥ 0", name));
    return value.get<int64_t>();
  }

  void add(const std::string& name, const Json& entry, Layout& layout) const {
    if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array() ||
        !entry.contains("pieces") || !entry["pieces"].is_array() || entry["shape"].size() > 8)
      broken(file_, fmt::format("{} needs \"shape\" and \"pieces\"", name));
    TensorInfo info{name, DType::kF32, {}};
    int64_t elements = 1;
    for (const Json& size : entry["shape"]) {
      info.shape.push_back(number(size, name));
      constexpr int64_t kMostElements = int64_t{1} << 50;
      // A size of 0 must not excuse the others: rows and columns are multiplied apart.
      const int64_t factor = std::max<int64_t>(1, info.shape.back());
      if (__builtin_mul_overflow(elements, factor, &elements) || elements > kMostElements)
        broken(file_, tr("{}: its shape is impossible", name));
    }
    // A tensor of nothing is in a file too: readers ask which.
    if (entry["pieces"].empty()) broken(file_, tr("{} has no pieces", name));
    const size_t global = layout.globals.size();
    layout.globals.push_back(info);
    // Parts in one file are one stored tensor.
    std::vector<std::pair<size_t, StoredTensor>> parts;
    for (const Json& piece : entry["pieces"]) {
      if (!piece.is_array() || piece.size() != 6)
        broken(file_, tr("{}: a piece must be 6 numbers", name));
      int64_t at[6];
      for (size_t i = 0; i < 6; ++i) at[i] = number(piece[i], name);
      if (static_cast<size_t>(at[0]) >= files_.size())
        broken(file_, tr("{}: there is no file {}", name, at[0]));
      const Rect matrix = matrix_of(info.shape);
      if (at[1] + at[2] > matrix.rows || at[3] + at[4] > matrix.cols || at[5] > matrix.rows)
        broken(file_, tr("{}: a piece reaches outside the tensor", name));
      const auto file = static_cast<size_t>(at[0]);
      auto part =
          std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == file; });
      if (part == parts.end()) {
        StoredTensor stored;
        stored.file = file;
        stored.info = info;
        stored.sections.push_back({.cols = at[4]});
        part = parts.insert(parts.end(), {file, std::move(stored)});
      }
      Section& section = part->second.sections.front();
      section.rows = std::max(section.rows, at[5] + at[2]);
      section.pieces.push_back(
          {.global = global, .of = {at[1], at[2], at[3], at[4]}, .row = at[5]});
    }
    for (auto& [file, stored] : parts) {
      const Section& section = stored.sections.front();
      if (!stored.info.shape.empty()) stored.info.shape.front() = section.rows;
      if (stored.info.shape.size() == 2) stored.info.shape.back() = section.cols;
      layout.tensors.push_back(std::move(stored));
    }
  }

  std::filesystem::path file_;
  Json json_;
  std::vector<std::string> files_;
};

OptimizerSettings read_settings(const Json& json, const std::filesystem::path& file) {
  if (!json.is_object()) broken(file, "\"optimizer\" must be an object");
  OptimizerSettings settings;
  settings.groups = json.value("groups", Json::array());
  settings.scheduler = json.value("scheduler", Json::object());
  settings.grad_scaler = json.value("grad_scaler", Json());
  settings.iteration = json.value("iteration", int64_t{0});
  settings.consumed_train_samples = json.value("consumed_train_samples", int64_t{0});
  megatron::check_settings(settings, file.string() + ": optimizer");
  return settings;
}

std::shared_ptr<const TensorSource> open_all(const std::filesystem::path& directory,
                                             const Layout& layout) {
  std::vector<std::shared_ptr<const TensorSource>> files;
  std::vector<bool> used(layout.files.size());
  for (const StoredTensor& stored : layout.tensors) used[stored.file] = true;
  for (size_t i = 0; i < layout.files.size(); ++i) {
    const std::filesystem::path file = directory / layout.files[i];
    if (used[i] && !std::filesystem::exists(file)) {
      throw ModelError(tr("{}: {} is missing", directory.string(), layout.files[i]),
                       tr("copy the checkpoint again"));
    }
    files.push_back(used[i] ? open_safetensors(file) : nullptr);
  }
  return open_layout(layout, std::move(files));
}

}  // namespace

bool is_native_directory(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path / kIndexFile, error);
}

Checkpoint open_checkpoint(const std::filesystem::path& directory) {
  const IndexReader index(directory / kIndexFile);
  Checkpoint checkpoint;
  try {
    checkpoint.split = index.json().value("split", std::string());
    checkpoint.iteration = index.json().value("iteration", int64_t{0});
    if (index.json().contains("optimizer"))
      checkpoint.optimizer.settings =
          read_settings(index.json()["optimizer"], directory / kIndexFile);
  } catch (const Json::exception& e) {
    broken(directory / kIndexFile, e.what());
  }
  checkpoint.model = open_all(directory, index.layout(false));
  const Layout states = index.layout(true);
  if (!states.globals.empty()) {
    checkpoint.optimizer.tensors = open_all(directory, states);
    checkpoint.optimizer.has_master =
        std::any_of(states.globals.begin(), states.globals.end(),
                    [](const TensorInfo& info) { return info.name.starts_with("master."); });
  }
  return checkpoint;
}

}  // namespace danlu::weights::native
