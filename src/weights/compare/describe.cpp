#include "weights/compare/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/progress.h"
#include "weights/hf/fit.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

/// Path components that are numbers become '*'.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin > 0 ? "." : "") + (number ? "*" : part);
    begin = end + 1;
  }
  return result;
}

std::string table_line(const std::string& count, const std::string& type,
                       const std::vector<int64_t>& shape, const std::string& name) {
  return fmt::format("  {:>6}  {:<4} {:<20} {}\n", count, type, shape_text(shape), name);
}

}  // namespace

std::string describe_totals(const TensorSource& source) {
  int64_t elements = 0;
  uint64_t bytes = 0;
  std::map<std::string, size_t> types;
  for (const TensorInfo& info : source.tensors()) {
    elements += info.num_elements();
    const Storage storage = source.storage(info.name);
    bytes += storage.size_bytes;
    ++types[storage.type];
  }
  std::vector<std::string> parts;
  for (const auto& [name, count] : types) parts.push_back(fmt::format("{} {}", name, count));
  return fmt::format("{} parameters in {} tensors, {}{}{}",
                     format_count(static_cast<uint64_t>(elements)),
                     format_count(source.tensors().size()), format_bytes(bytes),
                     parts.empty() ? "" : ": ", fmt::join(parts, ", "));
}

std::string describe_tensor_table(const TensorSource& source, bool every_one) {
  std::string text;
  if (every_one) {
    for (const TensorInfo& info : source.tensors()) {
      text += table_line(
          "", source.storage(info.name).type, info.shape,
          fmt::format("{}  ({})", info.name, source.file_of(info.name).filename().string()));
    }
    return text;
  }
  struct Group {
    const TensorInfo* first;
    std::string type;
    size_t count = 0;
  };
  std::map<std::string, Group> groups;
  for (const TensorInfo& info : source.tensors()) {
    const std::string kind = without_numbers(info.name);
    const std::string type = source.storage(info.name).type;
    auto& group =
        groups.try_emplace(kind + "\n" + shape_text(info.shape) + type, Group{&info, type})
            .first->second;
    ++group.count;
  }
  for (const auto& [kind, group] : groups) {
    const std::string name = group.count == 1 ? group.first->name : kind.substr(0, kind.find('\n'));
    text += table_line(fmt::format("{} x", group.count), group.type, group.first->shape, name);
  }
  return text;
}

std::vector<std::string> mismatches(const arch::ModelConfig& config, const TensorSource& source) {
  const Misfit misfit = misfit_of(config, source);
  std::vector<std::string> lines;
  for (const arch::ParamSpec& spec : misfit.missing)
    lines.push_back(fmt::format("missing: {} {}", spec.name, shape_text(spec.shape)));
  for (const Misfit::Shape& shape : misfit.reshaped) {
    lines.push_back(fmt::format("wrong shape: {} is {}, config.json says {}", shape.name,
                                shape_text(shape.in_file), shape_text(shape.expected)));
  }
  for (const TensorInfo& info : misfit.not_floating)
    lines.push_back(fmt::format("wrong dtype: {} is {}", info.name, dtype_name(info.dtype)));
  for (const TensorInfo& info : misfit.unknown)
    lines.push_back(fmt::format("unknown: {} {}", info.name, shape_text(info.shape)));
  return lines;
}

}  // namespace danlu::weights
