// Reading the index: what it says is checked before anything is read by it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "weights/convert/optimizer_state.h"
#include "weights/layout_source.h"
#include "weights/megatron/group_check.h"
#include "weights/native/native.h"
#include "weights/source_base.h"

namespace danlu::weights::native {
namespace {

[[noreturn]] void broken(const std::filesystem::path& file, const std::string& what) {
  throw ModelError(tr("{}: {}", file.string(), what),
                   tr("the index is damaged: copy the checkpoint again"));
}

std::string name_of_part(const std::string& name, int64_t part) {
  return part == 0 ? name : fmt::format("{}#{}", name, part);
}

/// The shape in which a part of a tensor is stored. A part of less than whole rows of a tensor of
/// more than two dimensions is stored as a matrix.
std::vector<int64_t> stored_shape(std::vector<int64_t> whole, int64_t rows, int64_t cols) {
  if (whole.size() > 2 && cols != matrix_of(whole).cols) return {rows, cols};
  if (!whole.empty()) whole.front() = rows;
  if (whole.size() == 2) whole.back() = cols;
  return whole;
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
    if (version != kVersion && version != kVersionOfParts) {
      throw ModelError(
          tr("{}: version {} of the format is not read by this program, only {} and {}",
             file.string(), version.dump(), kVersion, kVersionOfParts));
    }
    has_parts_ = version == kVersionOfParts;
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
    // Pieces in one file with one part number are one stored tensor.
    const size_t numbers = has_parts_ ? 7 : 6;
    std::map<std::pair<size_t, int64_t>, StoredTensor> parts;
    for (const Json& piece : entry["pieces"]) {
      if (!piece.is_array() || piece.size() != numbers)
        broken(file_, tr("{}: a piece must be {} numbers", name, numbers));
      int64_t at[7] = {};
      for (size_t i = 0; i < numbers; ++i) at[i] = number(piece[i], name);
      if (static_cast<size_t>(at[0]) >= files_.size())
        broken(file_, tr("{}: there is no file {}", name, at[0]));
      const Rect matrix = matrix_of(info.shape);
      if (at[1] + at[2] > matrix.rows || at[3] + at[4] > matrix.cols || at[5] > matrix.rows)
        broken(file_, tr("{}: a piece reaches outside the tensor", name));
      const auto file = static_cast<size_t>(at[0]);
      const auto [part, is_new] = parts.try_emplace({file, at[6]});
      StoredTensor& stored = part->second;
      if (is_new) {
        stored.file = file;
        stored.info = info;
        stored.info.name = name_of_part(name, at[6]);
        stored.sections.push_back({.cols = at[4]});
      }
      Section& section = stored.sections.front();
      section.rows = std::max(section.rows, at[5] + at[2]);
      section.pieces.push_back(
          {.global = global, .of = {at[1], at[2], at[3], at[4]}, .row = at[5]});
    }
    for (auto& [place, stored] : parts) {
      const Section& section = stored.sections.front();
      stored.info.shape = stored_shape(stored.info.shape, section.rows, section.cols);
      layout.tensors.push_back(std::move(stored));
    }
  }

  std::filesystem::path file_;
  Json json_;
  bool has_parts_ = false;
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

/// A file that another machine keeps: an error where it is read.
class AbsentFile final : public SourceBase<int> {
 public:
  AbsentFile(std::filesystem::path file, const Layout& layout, size_t number)
      : file_(std::move(file)) {
    std::vector<std::pair<TensorInfo, int>> stored;
    for (const StoredTensor& tensor : layout.tensors) {
      if (tensor.file == number) stored.emplace_back(tensor.info, 0);
    }
    set_tensors(std::move(stored));
  }
  void read(const std::string&, std::span<std::byte>) const override { refuse(); }
  void read_range(const std::string&, int64_t, int64_t, std::span<std::byte>) const override {
    refuse();
  }
  void read_rect(const std::string&, const Rect&, std::byte*, int64_t) const override { refuse(); }
  std::span<const std::byte> mapped(const std::string&) const override { return {}; }
  std::filesystem::path file_of(const std::string&) const override { return file_; }
  std::vector<std::filesystem::path> files() const override { return {}; }

 private:
  [[noreturn]] void refuse() const {
    throw ModelError(
        tr("{}: {} is missing", file_.parent_path().string(), file_.filename().string()),
        tr("copy the checkpoint again"));
  }
  std::filesystem::path file_;
};

std::shared_ptr<const TensorSource> open_all(const std::filesystem::path& directory,
                                             const Layout& layout, bool some_elsewhere = false) {
  std::vector<std::shared_ptr<const TensorSource>> files;
  std::vector<bool> used(layout.files.size());
  for (const StoredTensor& stored : layout.tensors) used[stored.file] = true;
  for (size_t i = 0; i < layout.files.size(); ++i) {
    const std::filesystem::path file = directory / layout.files[i];
    if (used[i] && some_elsewhere && !std::filesystem::exists(file)) {
      files.push_back(std::make_shared<AbsentFile>(file, layout, i));
      continue;
    }
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

std::vector<TensorInfo> stored_as(const std::vector<Part>& parts) {
  std::map<std::string, int64_t> seen;
  std::vector<TensorInfo> infos;
  for (const Part& part : parts) {
    infos.push_back({name_of_part(part.name, seen[part.name]++), DType::kF32,
                     stored_shape(part.shape, part.rect.rows, part.rect.cols)});
  }
  return infos;
}

Json index_of(const std::vector<std::string>& files, const std::vector<std::vector<Part>>& parts) {
  Json tensors = Json::object();
  for (size_t file = 0; file < parts.size(); ++file) {
    std::map<std::string, int64_t> seen;
    for (const Part& part : parts[file]) {
      Json& tensor = tensors[part.name];
      tensor["shape"] = part.shape;
      const Rect& of = part.rect;
      tensor["pieces"].push_back({file, of.row, of.rows, of.col, of.cols, 0, seen[part.name]++});
    }
  }
  return {{"format", "danlu-native"},
          {"version", kVersionOfParts},
          {"files", files},
          {"tensors", std::move(tensors)}};
}

std::shared_ptr<const TensorSource> open_state(const std::filesystem::path& directory,
                                               bool some_elsewhere) {
  if (!is_native_directory(directory)) return nullptr;
  return open_all(directory, IndexReader(directory / kIndexFile).layout(true), some_elsewhere);
}

}  // namespace danlu::weights::native
