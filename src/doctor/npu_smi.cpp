#include "doctor/npu_smi.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/table.h"
#include "doctor/system.h"

namespace danlu::doctor {
namespace {

[[noreturn]] void refuse_line(size_t line, const std::string& what) {
  throw DataError(tr("[npu-smi] line {} of its answer cannot be read: {}", line + 1, what));
}

/// "| a | b |" -> {a, b}.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = line.find('|'); at != line.npos;) {
    const size_t end = line.find('|', at + 1);
    if (end == line.npos) break;
    cells.push_back(trimmed(std::string_view(line).substr(at + 1, end - at - 1)));
    at = end;
  }
  return cells;
}

/// "0 0 / 0 3318/ 65536" -> 0, {0, 0}, {3318, 65536}: a '/' joins the words beside it, however it
/// is spaced.
struct Figures {
  std::vector<std::string> words;
  std::vector<Usage> usages;
};

Figures figures_of(const std::string& cell) {
  std::string spaced;
  for (const char c : cell) spaced += c == '/' ? std::string(" / ") : std::string(1, c);
  const auto words = words_of(spaced);
  Figures figures;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i + 2 < words.size() && words[i + 1] == "/") {
      const auto used = number_of(words[i]), total = number_of(words[i + 2]);
      figures.usages.push_back({used.value_or(-1), total.value_or(-1)});
      i += 2;
    } else {
      figures.words.push_back(words[i]);
    }
  }
  return figures;
}

std::optional<Usage> usage_at(const Figures& figures, size_t place) {
  if (place >= figures.usages.size()) return std::nullopt;
  const Usage usage = figures.usages[place];
  return usage.used < 0 || usage.total < 0 ? std::nullopt : std::optional(usage);
}

std::optional<double> decimal_of(const std::string& word) {
  double value = 0;
  const char* end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, value);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

/// The lines of one answer, in the sections that their heads begin.
class NpuInfoReader {
 public:
  NpuInfo read(std::string_view text) {
    const auto lines = doctor::lines_of(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      line_ = i;
      take(trimmed(lines[i]));
    }
    if (is_second_) refuse_line(line_, "a card's second line is missing");
    if (info_.chips.empty()) throw DataError(tr("[npu-smi] its answer holds no table of cards"));
    return std::move(info_);
  }

 private:
  void take(const std::string& line) {
    if (line.starts_with("+=")) in_head_ = false;
    if (!line.starts_with('|')) return;
    const auto cells = cells_of(line);
    if (cells.empty()) return;
    if (cells[0].starts_with("npu-smi")) {
      const auto words = words_of(cells[0]);
      if (words.size() > 1) info_.version = words[1];
    } else if (cells[0].starts_with("NPU")) {
      in_head_ = true;
      of_processes_ = cells.size() > 1 && cells[1].starts_with("Process");
    } else if (cells[0].starts_with("Chip")) {
      has_hbm_ = cells.size() > 2 && cells[2].find("HBM-Usage") != std::string::npos;
    } else if (!in_head_) {
      if (of_processes_) {
        take_process(cells);
      } else if (!is_second_) {
        take_first(cells);
      } else {
        take_second(cells);
      }
    }
  }

  void take_first(const std::vector<std::string>& cells) {
    if (cells.size() < 3) refuse_line(line_, "three cells are expected");
    const auto words = words_of(cells[0]);
    const auto npu = words.empty() ? std::nullopt : number_of(words[0]);
    if (!npu) refuse_line(line_, cells[0]);
    chip_ = {};
    chip_.npu = *npu;
    chip_.name = words.size() > 1 ? words[1] : "";
    chip_.health = cells[1];
    const Figures figures = figures_of(cells[2]);
    if (figures.words.size() > 0) chip_.power_w = decimal_of(figures.words[0]);
    if (figures.words.size() > 1) chip_.temperature_c = number_of(figures.words[1]);
    chip_.huge_pages = usage_at(figures, 0);
    is_second_ = true;
  }

  void take_second(const std::vector<std::string>& cells) {
    if (cells.size() < 3) refuse_line(line_, "three cells are expected");
    const auto words = words_of(cells[0]);
    const auto chip = words.empty() ? std::nullopt : number_of(words[0]);
    if (!chip) refuse_line(line_, cells[0]);
    chip_.chip = *chip;
    if (words.size() > 1) chip_.physical = number_of(words[1]);
    chip_.bus_id = cells[1];
    const Figures figures = figures_of(cells[2]);
    if (!figures.words.empty()) chip_.cores_percent = number_of(figures.words[0]);
    chip_.memory_mb = usage_at(figures, 0);
    if (has_hbm_) chip_.hbm_mb = usage_at(figures, 1);
    info_.chips.push_back(chip_);
    is_second_ = false;
  }

  void take_process(const std::vector<std::string>& cells) {
    if (cells.size() < 4) return;  // "No running processes found in NPU 0"
    const auto words = words_of(cells[0]);
    NpuProcess process;
    const auto npu = words.empty() ? std::nullopt : number_of(words[0]);
    const auto pid = number_of(cells[1]);
    if (!npu || !pid) refuse_line(line_, cells[0] + " " + cells[1]);
    process.npu = *npu;
    process.chip = words.size() > 1 ? number_of(words[1]).value_or(0) : 0;
    process.pid = *pid;
    process.name = cells[2];
    process.memory_mb = number_of(cells[3]);
    info_.processes.push_back(process);
  }

  NpuInfo info_;
  NpuChip chip_;
  size_t line_ = 0;
  bool in_head_ = true, of_processes_ = false, has_hbm_ = false, is_second_ = false;
};

template <typename Value>
std::string shown(const std::optional<Value>& value, const char* unit) {
  return value ? fmt::format("{}{}", *value, unit) : "-";
}

std::string shown(const std::optional<Usage>& usage) {
  return usage ? fmt::format("{} / {} MB", usage->used, usage->total) : "-";
}

}  // namespace

NpuInfo parse_npu_info(std::string_view text) { return NpuInfoReader().read(text); }

std::string describe(const NpuInfo& info) {
  Table table(
      {"NPU", "chip", "name", "health", "power", "temperature", "AICore", "memory", "HBM", "bus"});
  for (const NpuChip& chip : info.chips) {
    table.add_row({fmt::format("{}", chip.npu),
                   chip.physical ? fmt::format("{} ({})", chip.chip, *chip.physical)
                                 : fmt::format("{}", chip.chip),
                   chip.name, chip.health, shown(chip.power_w, " W"),
                   shown(chip.temperature_c, " °C"), shown(chip.cores_percent, " %"),
                   shown(chip.memory_mb), shown(chip.hbm_mb), chip.bus_id});
  }
  std::string out = table.drawn();
  if (info.processes.empty()) return out;
  Table processes({"NPU", "chip", "process", "name", "memory"});
  for (const NpuProcess& process : info.processes) {
    processes.add_row({fmt::format("{}", process.npu), fmt::format("{}", process.chip),
                       fmt::format("{}", process.pid), process.name,
                       shown(process.memory_mb, " MB")});
  }
  return out + "\n" + processes.drawn();
}

}  // namespace danlu::doctor
