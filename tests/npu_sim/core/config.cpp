#include "core/config.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace npu_sim {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
constexpr int64_t kMiB = 1ll << 20;

const Chip kChips[] = {
    {"Ascend910B1", Family::k910B, 24, 48, 192 * kMiB, 64 * kGiB, 1984},
    {"Ascend910B2", Family::k910B, 24, 48, 192 * kMiB, 64 * kGiB, 1984},
    {"Ascend910B3", Family::k910B, 20, 40, 192 * kMiB, 64 * kGiB, 1984},
    {"Ascend910B4", Family::k910B, 20, 40, 96 * kMiB, 32 * kGiB, 1984},
    {"Ascend910_9391", Family::k910B, 24, 48, 192 * kMiB, 64 * kGiB, 1984},
    {"Ascend910A", Family::k910A, 32, 0, 32 * kMiB, 32 * kGiB, 2048},
    {"Ascend310P3", Family::k310P, 8, 7, 16 * kMiB, 24000000000ull, 1024},
};

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "NPU SIMULATOR: %s\n", text.c_str());
  std::exit(2);
}

Chip chip_by_name(std::string name) {
  if (name == "910B") name = "Ascend910B3";
  if (name == "910A") name = "Ascend910A";
  if (name == "310P") name = "Ascend310P3";
  for (const Chip& chip : kChips) {
    if (name == chip.name) return chip;
  }
  refuse("NPU_SIM_CHIP=" + name +
         " is not one of 910B, 910A, 310P or a full name of one of their chips");
}

std::string word(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

/// "512M", "64G" or bytes.
uint64_t bytes_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (unit == "G") return static_cast<uint64_t>(value * static_cast<double>(kGiB));
  if (unit == "M") return static_cast<uint64_t>(value * static_cast<double>(kMiB));
  if (unit.empty() && value > 0) return static_cast<uint64_t>(value);
  refuse("NPU_SIM_MEMORY=" + text + " is not a size such as 512M, 64G or a number of bytes");
}

/// Ascending ids until the first that is not valid, as the vendor's library reads its list.
std::vector<int> visible_cards(int count) {
  std::vector<int> cards;
  const char* list = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!list) {
    for (int i = 0; i < count; ++i) cards.push_back(i);
    return cards;
  }
  std::istringstream in(list);
  std::string item;
  while (std::getline(in, item, ',')) {
    char* end = nullptr;
    const long id = std::strtol(item.c_str(), &end, 10);
    if (item.empty() || *end || id < 0 || id >= count) break;
    if (!cards.empty() && id <= cards.back()) break;
    cards.push_back(static_cast<int>(id));
  }
  return cards;
}

Schedule schedule_by_name(const std::string& name) {
  if (name == "random") return Schedule::kRandom;
  if (name == "lazy") return Schedule::kLazy;
  if (name == "eager") return Schedule::kEager;
  refuse("NPU_SIM_SCHEDULE=" + name + " is none of random, lazy, eager");
}

Config read_environment() {
  Config c{};
  c.chip = chip_by_name(word("NPU_SIM_CHIP", "910B"));
  const std::string memory = word("NPU_SIM_MEMORY", "");
  c.memory_bytes = memory.empty() ? c.chip.memory_bytes : bytes_of(memory);
  c.seed = static_cast<uint64_t>(number_from_environment("NPU_SIM_SEED", 1));
  c.schedule = schedule_by_name(word("NPU_SIM_SCHEDULE", "random"));
  c.delay_us = static_cast<int>(number_from_environment("NPU_SIM_DELAY_US", 2000));
  c.strict = number_from_environment("NPU_SIM_STRICT", 0) != 0;
  c.cards = visible_cards(static_cast<int>(number_from_environment("NPU_SIM_DEVICES", 8)));
  c.counters_file = word("NPU_SIM_COUNTERS", "");
  return c;
}

}  // namespace

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  if (!value || !*value) return otherwise;
  char* end = nullptr;
  const int64_t number = std::strtoll(value, &end, 10);
  if (*end) refuse(std::string(name) + "=" + value + " is not a number");
  return number;
}

Config& config() {
  static Config* the = new Config(read_environment());
  return *the;
}

}  // namespace npu_sim
