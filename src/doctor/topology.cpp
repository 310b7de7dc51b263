// How devices are joined, read and drawn.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/table.h"
#include "doctor/npu_smi.h"
#include "doctor/system.h"

namespace danlu::doctor {
namespace {

/// A terminal's underlining, which nvidia-smi puts around heads even in a pipe.
std::string without_escapes(std::string_view text) {
  std::string bare;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      bare += text[i];
      continue;
    }
    while (i < text.size() && !std::isalpha(static_cast<unsigned char>(text[i]))) ++i;
  }
  return bare;
}

/// "NPU0", "Phy-ID12", "GPU3", "NIC1", "mlx5_0".
bool is_device(const std::string& word) {
  static const std::array kKinds = {"NPU", "Phy-ID", "GPU", "NIC", "mlx5_"};
  for (const std::string_view kind : kKinds) {
    if (word.starts_with(kind) && number_of(std::string_view(word).substr(kind.size())))
      return true;
  }
  return false;
}

struct LinkKind {
  const char* name;
  const char* meaning;  ///< a text of the catalogue
};

const std::vector<LinkKind>& link_kinds() {
  static const std::vector<LinkKind> kinds = {
      {"HCCS", "a direct HCCS link"},
      {"HCCS_SW", "HCCS through its switch"},
      {"SIO", "two dies of one package"},
      {"PIX", "through one PCIe switch"},
      {"PXB", "through several PCIe switches"},
      {"PHB", "through the PCIe host bridge of a processor"},
      {"NODE", "through the PCIe host bridges of one NUMA node"},
      {"SYS", "over PCIe and between NUMA nodes"},
      {"NA", "not known"},
  };
  return kinds;
}

}  // namespace

Topology parse_topology(std::string_view text) {
  Topology topology;
  const auto lines = doctor::lines_of(without_escapes(text));
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto words = words_of(lines[i]);
    if (words.empty() || !is_device(words[0])) {
      if (topology.links.empty()) continue;
      break;  // after the table stands a legend, which repeats names
    }
    if (topology.devices.empty()) {
      for (const std::string& word : words) {
        if (!is_device(word)) break;
        topology.devices.push_back(word);
      }
      continue;
    }
    const size_t count = topology.devices.size(), row = topology.links.size();
    if (row >= count || words[0] != topology.devices[row] || words.size() <= count ||
        words[1 + row] != "X") {
      throw DataError(
          tr("[topology] line {} of the answer cannot be read: {}", i + 1, trimmed(lines[i])));
    }
    topology.links.emplace_back(words.begin() + 1, words.begin() + 1 + static_cast<long>(count));
    // The first of a row's further words that is a list counts: names of columns differ.
    const bool has_list = words.size() > count + 1 && processors_of(words[count + 1]).has_value();
    topology.processors.push_back(has_list ? words[count + 1] : "");
  }
  if (topology.devices.empty() || topology.links.size() != topology.devices.size())
    throw DataError(tr("[topology] the answer holds no whole table of links"));
  return topology;
}

std::string describe(const Topology& topology) {
  std::vector<std::string> heads = {""};
  heads.insert(heads.end(), topology.devices.begin(), topology.devices.end());
  heads.emplace_back("processors near it");
  Table table(heads);
  std::set<std::string> seen;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    std::vector<std::string> row = {topology.devices[i]};
    row.insert(row.end(), topology.links[i].begin(), topology.links[i].end());
    row.push_back(topology.processors[i]);
    seen.insert(topology.links[i].begin(), topology.links[i].end());
    table.add_row(row);
  }
  std::string out = table.drawn();
  for (const LinkKind& kind : link_kinds()) {
    if (seen.count(kind.name)) out += fmt::format("{}: {}\n", kind.name, translated(kind.meaning));
  }
  const bool has_nvlink = std::any_of(seen.begin(), seen.end(), [](const std::string& name) {
    return name.starts_with("NV") && number_of(std::string_view(name).substr(2));
  });
  if (has_nvlink) out += tr("NV and a number: so many NVLinks side by side\n");
  return out;
}

}  // namespace danlu::doctor
