// tests/board/run_folder.h: run directories as training leaves them, made by hand.
#pragma once
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/descriptor.h"
#include "support/temporary_directory.h"

namespace danlu::board {

inline void put(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

inline void append(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

/// As write_file_atomic: another file takes the name.
inline void replace(const std::filesystem::path& file, const std::string& text) {
  put(file.string() + ".new", text);
  std::filesystem::rename(file.string() + ".new", file);
}

inline std::string step_line(int64_t step, double loss, int64_t total = 100) {
  return fmt::format(
      R"({{"loss":{},"learning_rate":0.1,"global_step":{},"global_step/max_steps":"{}/{}"}})"
      "\n",
      loss, step, step, total);
}

/// What a run of Danlu has from its begin on.
inline void put_settings(const std::filesystem::path& run, const std::string& args = "{}") {
  put(run / "args.json", args);
  put(run / "sft_args.json", args);
  put(run / "config.yaml", "# danlu sft config.yaml repeats this run\nlr: 0.1\nmodel: \"m\"\n");
}

inline void put_lock(const std::filesystem::path& run, int64_t pid) {
  put(run / ".danlu.lock", fmt::format("{} {}\n", pid, host_name()));
}

}  // namespace danlu::board
