#include "doctor/nvidia_smi.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
#include "base/table.h"
#include "doctor/system.h"

namespace danlu::doctor {
namespace {

std::vector<std::string> comma_cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream parts(line);
  for (std::string part; std::getline(parts, part, ',');) cells.push_back(trimmed(part));
  return cells;
}

/// Every line of `text` that holds something, cut in exactly `count` cells whose first is a number.
std::vector<std::vector<std::string>> rows_of(std::string_view text, size_t count) {
  std::vector<std::vector<std::string>> rows;
  const auto lines = doctor::lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trimmed(lines[i]).empty()) continue;
    auto cells = comma_cells(lines[i]);
    if (cells.size() != count || !number_of(cells[0])) {
      throw DataError(
          tr("[nvidia-smi] line {} of its answer cannot be read: {}", i + 1, trimmed(lines[i])));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::string number_shown(const std::optional<int64_t>& value, const char* unit) {
  return value ? fmt::format("{}{}", *value, unit) : "-";
}

}  // namespace

std::vector<std::string> gpu_query() {
  return {
      "--query-gpu=index,name,pci.bus_id,driver_version,compute_cap,memory.used,memory.total,"
      "temperature.gpu,utilization.gpu",
      "--format=csv,noheader,nounits"};
}

std::vector<std::string> gpu_process_query() {
  return {"--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"};
}

std::vector<GpuCard> parse_gpu_cards(std::string_view text) {
  std::vector<GpuCard> cards;
  for (const auto& cells : rows_of(text, 9)) {
    GpuCard card;
    card.index = *number_of(cells[0]);
    card.name = cells[1];
    card.bus_id = cells[2];
    card.driver = cells[3];
    card.compute_capability = cells[4];
    const auto used = number_of(cells[5]), total = number_of(cells[6]);
    if (used && total) card.memory_mb = Usage{*used, *total};
    card.temperature_c = number_of(cells[7]);
    card.busy_percent = number_of(cells[8]);
    cards.push_back(card);
  }
  return cards;
}

std::vector<GpuProcess> parse_gpu_processes(std::string_view text) {
  std::vector<GpuProcess> processes;
  for (const auto& cells : rows_of(text, 2))
    processes.push_back({*number_of(cells[0]), number_of(cells[1])});
  return processes;
}

std::string describe(const std::vector<GpuCard>& cards) {
  Table table({"GPU", "name", "capability", "memory", "busy", "temperature", "bus"});
  for (const GpuCard& card : cards) {
    table.add_row({fmt::format("{}", card.index), card.name, card.compute_capability,
                   card.memory_mb
                       ? fmt::format("{} / {} MiB", card.memory_mb->used, card.memory_mb->total)
                       : "-",
                   number_shown(card.busy_percent, " %"), number_shown(card.temperature_c, " °C"),
                   card.bus_id});
  }
  return table.drawn();
}

}  // namespace danlu::doctor
